package compile

// fFlags lists the -f options that change nothing but code, warnings, or both, and that
// involve no other file and no path. Each stands without "-f" and "no-"; a name that
// takes a value ends in "=". They are sorted for human readers, and come from the help of
// gcc 12 to 16 and clang 14 to 22 and from the manuals of gcc 9 to 15 and clang 11 to 20. A name that
// only one family knows is an error that the other family reports itself.
const fFlags = "" +
	" PIC PIE aapcs-bitfield-load aapcs-bitfield-width aarch64-jump-table-hardening abi-compat-version=" +
	" abi-version abi-version= access-control addrsig aggressive-loop-optimizations align-functions" +
	" align-functions= align-jumps align-jumps= align-labels align-labels= align-loops align-loops=" +
	" aligned-allocation aligned-new aligned-new= all-virtual alloc-token-max= allocation-dce" +
	" allow-editor-placeholders allow-leading-underscore allow-parameterless-variadic-functions" +
	" allow-runtime-check-skip-hot-cutoff= allow-store-data-races alt-external-templates altivec" +
	" altivec-src-compat= analyzer analyzer-assume-nothrow analyzer-call-summaries analyzer-checker=" +
	" analyzer-feasibility analyzer-fine-grained analyzer-show-duplicate-count" +
	" analyzer-show-events-in-system-headers analyzer-simplify-supergraph analyzer-state-merge" +
	" analyzer-state-purge analyzer-suppress-followups analyzer-transitivity analyzer-undo-inlining" +
	" analyzer-verbose-edges analyzer-verbose-state-changes analyzer-verbosity= android-pad-segment" +
	" ansi-escape-codes apple-kext apple-link-rtlib apple-pragma-pack application-extension approx-func" +
	" argument-alias argument-noalias argument-noalias-anything argument-noalias-global" +
	" asan-shadow-offset= asm asm-blocks associative-math assume-nothrow-exception-dtor" +
	" assume-sane-operator-new assume-sane-operators-new-delete assume-sane-operators-new-delete=" +
	" assume-unique-vtables assumptions async-exceptions asynchronous-unwind-tables" +
	" atomic-fine-grained-memory atomic-ignore-denormal-mode atomic-remote-memory auto-inc-dec autolink" +
	" avoid-store-forwarding basic-block-address-map binutils-version= bit-tests blocks" +
	" borland-extensions bounds-check bounds-safety bracket-depth= branch-count-reg" +
	" branch-target-load-optimize branch-target-load-optimize2 btr-bb-exclusive builtin builtin-printf" +
	" c++-abi= c++-static-destructors c++-static-destructors= call-saved-x10 call-saved-x11" +
	" call-saved-x12 call-saved-x13 call-saved-x14 call-saved-x15 call-saved-x18 call-saved-x8" +
	" call-saved-x9 caller-saves canonical-system-headers caret-diagnostics caret-diagnostics-max-lines=" +
	" cf-branch-label-scheme= cf-protection cf-protection= cf-runtime-abi= char8_t check-data-deps" +
	" check-new check-pointer-bounds checking checking= clang-abi-compat= code-hoisting color-diagnostics" +
	" combine-stack-adjustments comment-block-commands= common compare-elim complete-member-pointers" +
	" complex-arithmetic= concepts concepts-diagnostics-depth= concepts-ts cond-mismatch conserve-space" +
	" conserve-stack const-string-class= constant-cfstrings constant-string-class=" +
	" constexpr-backtrace-limit= constexpr-cache-depth= constexpr-depth= constexpr-fp-except" +
	" constexpr-loop-limit= constexpr-ops-limit= constexpr-steps= contract-assumption-mode=" +
	" contract-build-level= contract-checks-outlined contract-continuation-mode=" +
	" contract-disable-optimized-checks contract-evaluation-semantic= contract-mode= contract-role=" +
	" contract-semantic= contract-strict-declarations= contracts contracts-client-check=" +
	" contracts-conservative-ipa contracts-definition-check= convergent-functions coro-aligned-allocation" +
	" coroutines coroutines-ts cprop-registers crash-diagnostics crash-diagnostics= crc-optimization" +
	" crossjumping cse-follow-jumps cse-skip-blocks cx-fortran-rules cx-limited-range cx-method=" +
	" cxx-exceptions data-sections dce debug-default-version= debug-prefix-map= debug-ranges-base-address" +
	" debug-types-section declone-ctor-dtor declspec deduce-init-list default-inline defer-pop defer-ts" +
	" define-target-os-macros delayed-branch delayed-template-parsing delete-dead-exceptions" +
	" delete-null-pointer-checks denormal-fp-math= dep-fusion devirtualize devirtualize-at-ltrans" +
	" devirtualize-speculatively diagnostics-absolute-paths diagnostics-all-candidates diagnostics-color" +
	" diagnostics-color= diagnostics-column-origin= diagnostics-column-unit= diagnostics-escape-format=" +
	" diagnostics-fixit-info diagnostics-generate-patch diagnostics-hotness-threshold=" +
	" diagnostics-json-formatting diagnostics-minimum-margin-width= diagnostics-misexpect-tolerance=" +
	" diagnostics-parseable-fixits diagnostics-path-format= diagnostics-plain-output" +
	" diagnostics-print-source-range-info diagnostics-show-caret diagnostics-show-category=" +
	" diagnostics-show-context diagnostics-show-context= diagnostics-show-cwe" +
	" diagnostics-show-event-links diagnostics-show-highlight-colors diagnostics-show-hotness" +
	" diagnostics-show-labels diagnostics-show-line-numbers diagnostics-show-location=" +
	" diagnostics-show-nesting diagnostics-show-nesting-levels diagnostics-show-nesting-locations" +
	" diagnostics-show-note-include-stack diagnostics-show-option diagnostics-show-path-depths" +
	" diagnostics-show-rules diagnostics-show-template-tree diagnostics-text-art-charset=" +
	" diagnostics-urls= digraphs direct-access-external-data disable-block-signature-string" +
	" discard-value-names dollars-in-identifiers double-square-bracket-attributes dse dwarf-directory-asm" +
	" dwarf-exceptions dwarf2-cfi-asm early-inlining elide-constructors elide-type eliminate-dwarf2-dups" +
	" eliminate-unused-debug-symbols eliminate-unused-debug-types emit-all-decls emit-class-debug-always" +
	" emit-compact-unwind-non-canonical emit-dwarf-unwind= emit-struct-debug-baseonly" +
	" emit-struct-debug-detailed= emit-struct-debug-reduced emulated-tls enable-matrix enforce-eh-specs" +
	" enum-int-equiv error-limit= escaping-block-tail-calls exceptions excess-precision= exec-charset=" +
	" expensive-optimizations experimental-call-graph-section experimental-isel" +
	" experimental-late-parse-attributes experimental-library experimental-loop-fusion" +
	" experimental-new-constant-interpreter experimental-new-pass-manager" +
	" experimental-overflow-behavior-types experimental-relative-c++-abi-vtables" +
	" experimental-sanitize-metadata= experimental-strict-floating-point ext-dce ext-numeric-literals" +
	" extend-arguments= extend-variable-liveness extend-variable-liveness= extended-identifiers" +
	" extern-tls-init external-templates fast-math fat-lto-objects ffp-model= file-prefix-map=" +
	" file-reproducible fine-grained-bitfield-accesses finite-loops finite-math-only fixed-a0 fixed-a1" +
	" fixed-a2 fixed-a3 fixed-a4 fixed-a5 fixed-a6 fixed-d0 fixed-d1 fixed-d2 fixed-d3 fixed-d4 fixed-d5" +
	" fixed-d6 fixed-d7 fixed-point fixed-r19 fixed-r9 fixed-x1 fixed-x10 fixed-x11 fixed-x12 fixed-x13" +
	" fixed-x14 fixed-x15 fixed-x16 fixed-x17 fixed-x18 fixed-x19 fixed-x2 fixed-x20 fixed-x21 fixed-x22" +
	" fixed-x23 fixed-x24 fixed-x25 fixed-x26 fixed-x27 fixed-x28 fixed-x29 fixed-x3 fixed-x30 fixed-x31" +
	" fixed-x4 fixed-x5 fixed-x6 fixed-x7 fixed-x8 fixed-x9 float-store fold-mem-offsets" +
	" fold-simple-inlines for-scope force-addr force-dwarf-frame force-emit-vtables force-enable-int128" +
	" forward-propagate fp-contract= fp-eval-method= fp-exception-behavior= fp-int-builtin-inexact" +
	" fp-model= freestanding friend-injection fuchsia-api-level= function-cse function-sections" +
	" fuse-ops-with-volatile-access gcse gcse-after-reload gcse-las gcse-lm gcse-sm gimple global-isel" +
	" gnat-encodings= gnu-inline-asm gnu-keywords gnu-runtime gnu-tm gnu-unique gnu89-inline" +
	" gnuc-version= graphite graphite-identity guess-branch-probability guiding-decls handle-exceptions" +
	" hardcfr-check-exceptions hardcfr-check-noreturn-calls= hardcfr-check-returning-calls" +
	" hardcfr-skip-leaf harden-compares harden-conditional-branches harden-control-flow-redundancy" +
	" hardened heinous-gnu-extensions hoist-adjacent-loads honor-infinities honor-nans honor-std hosted" +
	" huge-objects ident if-conversion if-conversion2 ignore-exceptions immediate-escalation" +
	" implement-inlines implicit-constexpr implicit-inline-templates implicit-templates indirect-inlining" +
	" inhibit-size-directive inline inline-atomics inline-functions inline-functions-called-once" +
	" inline-hint-functions inline-limit= inline-max-stacksize= inline-small-functions inline-stringops" +
	" inline-stringops= instrument-function-entry-bare instrument-functions" +
	" instrument-functions-after-inlining instrument-functions-exclude-file-list=" +
	" instrument-functions-exclude-function-list= instrument-functions-once integrated-as integrated-cc1" +
	" integrated-objemitter ipa-bit-cp ipa-cp ipa-cp-alignment ipa-cp-clone ipa-icf ipa-icf-functions" +
	" ipa-icf-variables ipa-matrix-reorg ipa-modref ipa-profile ipa-pta ipa-pure-const ipa-ra" +
	" ipa-reference ipa-reference-addressable ipa-reorder-for-locality ipa-sra ipa-stack-alignment" +
	" ipa-strict-aliasing ipa-struct-reorg ipa-vrp ira-algorithm= ira-hoist-pressure ira-loop-pressure" +
	" ira-region= ira-share-save-slots ira-share-spill-slots isolate-erroneous-paths-attribute" +
	" isolate-erroneous-paths-dereference ivar-visibility= ivopts jmc jump-tables kcfi keep-gc-roots-live" +
	" keep-inline-dllexport keep-inline-functions keep-persistent-storage-variables keep-static-consts" +
	" keep-static-functions knr-functions labels-ok large-source-files late-combine-instructions" +
	" lax-vector-conversions lax-vector-conversions= leading-underscore legacy-pass-manager lifetime-dse" +
	" lifetime-dse= limit-debug-info limit-function-alignment limited-precision= link-libatomic" +
	" live-patching live-patching= live-range-shrinkage local-ivars loop-block loop-flatten" +
	" loop-interchange loop-nest-optimize loop-optimize loop-parallelize-all loop-strip-mine" +
	" loop-unroll-and-jam lra-remat macro-backtrace-limit= macro-prefix-map= malloc-dce malloc-dce=" +
	" math-errno matrix-memory-layout= max-errors= max-include-depth= max-tokens= max-type-align" +
	" max-type-align= mcdc-max-conditions= mcdc-max-test-vectors= merge-all-constants merge-constants" +
	" merge-debug-strings message-length= min-function-alignment min-function-alignment= modulo-sched" +
	" modulo-sched-allow-regmoves move-loop-invariants move-loop-stores ms-compatibility" +
	" ms-compatibility-version= ms-define-stdc ms-extensions ms-hotpatch ms-memptr-rep=" +
	" ms-omit-default-lib ms-runtime-lib= ms-tls-guards ms-volatile msc-version= multiflags named-loops" +
	" new-abi new-alignment= new-infallible new-inheriting-ctors new-ttp-matching next-runtime" +
	" nil-receivers non-call-exceptions nonansi-builtins nonnull-objects nothrow-opt objc-abi-version=" +
	" objc-arc objc-arc-exceptions objc-avoid-heapify-local-blocks objc-call-cxx-cdtors" +
	" objc-constant-literals objc-convert-messages-to-runtime-calls objc-direct-dispatch" +
	" objc-direct-precondition-thunk objc-disable-direct-methods-for-testing" +
	" objc-encode-cxx-class-template-spec objc-exceptions objc-gc objc-infer-related-result-type" +
	" objc-legacy-dispatch objc-link-runtime objc-nilcheck objc-nonfragile-abi" +
	" objc-nonfragile-abi-version= objc-runtime= objc-sender-dependent-dispatch objc-sjlj-exceptions" +
	" objc-std= objc-weak omit-frame-pointer openacc openacc-dim= openacc-kernels= openmp" +
	" openmp-allocators openmp-assume-no-nested-parallelism openmp-assume-no-thread-state" +
	" openmp-assume-teams-oversubscription openmp-assume-threads-oversubscription openmp-enable-irbuilder" +
	" openmp-extensions openmp-force-usm openmp-implicit-rpath openmp-optimistic-collapse openmp-simd" +
	" openmp-target-simd-clone openmp-target-simd-clone= openmp-use-tls openmp-version=" +
	" operator-arrow-depth= operator-names optimize-crc optimize-register-move optimize-sibling-calls" +
	" optimize-strlen optional-diags pack-struct pack-struct= parse-all-comments partial-inlining" +
	" partition-static-data-sections pascal-strings patchable-function-entry= path-coverage-limit=" +
	" pcc-struct-return peel-loops peephole peephole2 permissive permitted-flt-eval-methods= pic pie" +
	" plan9-extensions plt pointer-tbaa predictive-commoning prefetch-loop-arrays preserve-as-comments" +
	" pretty-templates printf-return-value protect-parens ptrauth-auth-traps" +
	" ptrauth-block-descriptor-pointers ptrauth-calls ptrauth-elf-got" +
	" ptrauth-function-pointer-type-discrimination ptrauth-indirect-gotos ptrauth-init-fini" +
	" ptrauth-init-fini-address-discrimination ptrauth-intrinsics ptrauth-objc-class-ro" +
	" ptrauth-objc-interface-sel ptrauth-objc-isa ptrauth-returns" +
	" ptrauth-type-info-vtable-pointer-discrimination ptrauth-vtable-pointer-address-discrimination" +
	" ptrauth-vtable-pointer-type-discrimination random-seed random-seed= randomize-layout-seed=" +
	" range-for-ext-temps raw-string-literals reciprocal-math ree reflection reg-struct-return" +
	" register-global-dtors-with-atexit regmove relaxed-template-template-args rename-registers" +
	" reorder-blocks reorder-blocks-algorithm= reorder-blocks-and-partition reorder-functions" +
	" replace-objc-classes require-return-statement reroll-loops rerun-cse-after-loop rerun-loop-opt" +
	" reschedule-modulo-scheduled-loops retain-comments-from-system-headers ropi rounding-math" +
	" rtlib-defaultlib rtti rtti-data rwpi safe-buffer-usage-suggestions sample-profile-use-profi" +
	" sanitize-address-destructor= sanitize-address-field-padding=" +
	" sanitize-address-globals-dead-stripping sanitize-address-outline-instrumentation" +
	" sanitize-address-poison-custom-array-cookie sanitize-address-use-after-return" +
	" sanitize-address-use-after-return= sanitize-address-use-after-scope" +
	" sanitize-address-use-odr-indicator sanitize-alloc-token-extended sanitize-alloc-token-fast-abi" +
	" sanitize-annotate-debug-info sanitize-annotate-debug-info= sanitize-blacklist" +
	" sanitize-cfi-canonical-jump-tables sanitize-cfi-cross-dso" +
	" sanitize-cfi-icall-experimental-normalize-integers sanitize-cfi-icall-generalize-pointers" +
	" sanitize-coverage-stack-depth-callback-min= sanitize-coverage= sanitize-debug-trap-reasons" +
	" sanitize-debug-trap-reasons= sanitize-handler-preserve-all-regs sanitize-hwaddress-abi=" +
	" sanitize-hwaddress-experimental-aliasing sanitize-ignorelist sanitize-kcfi sanitize-kcfi-arity" +
	" sanitize-kcfi-hash= sanitize-link-c++-runtime sanitize-link-runtime sanitize-memory-param-retval" +
	" sanitize-memory-track-origins sanitize-memory-track-origins= sanitize-memory-use-after-dtor" +
	" sanitize-memtag-mode= sanitize-merge sanitize-merge= sanitize-minimal-runtime sanitize-recover" +
	" sanitize-recover= sanitize-sections= sanitize-skip-hot-cutoff= sanitize-stable-abi sanitize-stats" +
	" sanitize-thread-atomics sanitize-thread-func-entry-exit sanitize-thread-memory-access sanitize-trap" +
	" sanitize-trap= sanitize-type sanitize-type-outline-instrumentation" +
	" sanitize-undefined-ignore-overflow-pattern= sanitize-undefined-strip-path-components=" +
	" sanitize-undefined-trap-on-error sched-critical-path-heuristic sched-dep-count-heuristic" +
	" sched-group-heuristic sched-interblock sched-last-insn-heuristic sched-pressure" +
	" sched-rank-heuristic sched-spec sched-spec-insn-heuristic sched-spec-load sched-spec-load-dangerous" +
	" sched-stalled-insns sched-stalled-insns-dep sched-stalled-insns-dep= sched-stalled-insns=" +
	" sched2-use-superblocks sched2-use-traces schedule-fusion schedule-insns schedule-insns2" +
	" section-anchors see seh-exceptions sel-sched-pipelining sel-sched-pipelining-outer-loops" +
	" sel-sched-reschedule-pipelined selective-scheduling selective-scheduling2 semantic-interposition" +
	" separate-named-sections short-enums short-wchar show-column show-overloads= show-source-location" +
	" shrink-wrap shrink-wrap-separate signaling-math signaling-nans signed-bitfields signed-char" +
	" signed-zeros simd-cost-model= single-precision-constant sized-deallocation sjlj-exceptions" +
	" skip-odr-check-in-gmf slp-vectorize slp-vectorize-aggressive speculatively-call-stored-functions" +
	" spell-checking spell-checking-limit= split-dwarf-inlining split-ivs-in-unroller split-loops" +
	" split-lto-unit split-machine-functions split-paths split-stack split-wide-types" +
	" split-wide-types-early squangle ssa-backprop ssa-phiopt sso-struct= stack-check stack-check=" +
	" stack-clash-protection stack-limit stack-limit-register= stack-limit-symbol= stack-protector" +
	" stack-protector-all stack-protector-explicit stack-protector-strong stack-reuse= stack-size-section" +
	" standalone-debug stdarg-opt store-merging strength-reduce strict-aliasing strict-enums" +
	" strict-flex-arrays strict-flex-arrays= strict-float-cast-overflow strict-overflow strict-prototype" +
	" strict-return strict-volatile-bitfields strict-vtable-pointers strong-eval-order strong-eval-order=" +
	" strub= struct-path-tbaa swift-async-fp= symbol-partition= sync-libcalls tabstop= temp-file" +
	" temp-stack template-backtrace-limit= template-depth= this-is-variable thread-jumps" +
	" threadsafe-statics tls-model= toplevel-reorder tracer track-macro-expansion track-macro-expansion=" +
	" trampoline-impl= trampolines trapping-math trapv tree-bit-ccp tree-builtin-call-dce tree-ccp" +
	" tree-ch tree-coalesce-inlined-vars tree-coalesce-vars tree-copy-prop tree-copyrename tree-cselim" +
	" tree-dce tree-dominator-opts tree-dse tree-forwprop tree-fre tree-loop-distribute-patterns" +
	" tree-loop-distribution tree-loop-if-convert tree-loop-if-convert-stores tree-loop-im" +
	" tree-loop-ivcanon tree-loop-linear tree-loop-optimize tree-loop-vectorize tree-lrs" +
	" tree-parallelize-loops tree-parallelize-loops= tree-partial-pre tree-phiprop tree-pre tree-pta" +
	" tree-reassoc tree-salias tree-scev-cprop tree-sink tree-slp-vectorize tree-slsr tree-sra" +
	" tree-store-ccp tree-store-copy-prop tree-switch-conversion tree-tail-merge tree-ter" +
	" tree-vect-loop-version tree-vectorize tree-vectorizer-verbose= tree-vrp trigraphs" +
	" trivial-auto-var-init-max-size= trivial-auto-var-init-stop-after= trivial-auto-var-init=" +
	" unconstrained-commons unified-lto unique-basic-block-section-names unique-internal-linkage-names" +
	" unique-section-names unique-source-file-names unit-at-a-time unreachable-traps unroll-all-loops" +
	" unroll-completely-grow-size unroll-loops unsafe-loop-optimizations unsafe-math-optimizations" +
	" unsigned-bitfields unsigned-char unswitch-loops unwind-tables use-ctor-homing use-cuid=" +
	" use-cxa-atexit use-cxa-get-exception-ptr use-init-array var-tracking var-tracking-assignments" +
	" var-tracking-assignments-toggle var-tracking-uninit variable-expansion-in-unroller veclib=" +
	" vect-cost-model vect-cost-model= vectorize version-loops-for-strides virtual-function-elimination" +
	" visibility-dllexport= visibility-externs-dllimport= visibility-externs-nodllstorageclass=" +
	" visibility-from-dllstorageclass visibility-global-new-delete-hidden visibility-global-new-delete=" +
	" visibility-inlines-hidden visibility-inlines-hidden-static-local-var visibility-ms-compat" +
	" visibility-nodllstorageclass= visibility= vpt vtable-gc vtable-thunks wasm-exceptions weak web" +
	" whole-program whole-program-vtables wide-exec-charset= winx64-eh-unwindv2= wrapv wrapv-pointer" +
	" writable-strings xl-pragma-pack xray-always-emit-customevents xray-always-emit-typedevents" +
	" xray-function-groups= xray-function-index xray-ignore-loops xray-instruction-threshold=" +
	" xray-instrument xray-instrumentation-bundle= xray-link-deps xray-modes=" +
	" xray-selected-function-group= xray-shared xref zee zero-call-used-regs= zero-init-padding-bits=" +
	" zero-initialized-in-bss zero-link zos-extensions zvector" +
	" "

// mFlags is the same for -m, of x86, Arm, RISC-V, Power, MIPS, S/390, SPARC and LoongArch.
const mFlags = "" +
	" 128bit-long-double 16 32 3dnow 3dnowa 64 68000 68010 68020 68030 68040 68060 68881 80387 8bit-idiv" +
	" 96bit-long-double EB EL abi= abicalls abm abort-on-noreturn abs= accumulate-outgoing-args" +
	" address-mode= adx aes aix aix-shared-lib-tls-model-opt aix-small-local-dynamic-tls" +
	" aix-small-local-exec-tls aix-struct-return aix32 aix64 align-branch-boundary= align-branch=" +
	" align-data= align-double align-functions= align-jumps= align-loops= align-stringops altivec" +
	" amdgpu-ieee amdgpu-precise-memory-op amx-avx512 amx-bf16 amx-complex amx-fp16 amx-fp8 amx-int8" +
	" amx-movrs amx-tf32 amx-tile amx-transpose android annotate-tablejump apcs-frame app-regs" +
	" apx-features= apx-inline-asm-use-gpr32 apxf arm arm64x armv6k asm-syntax-unified asm= atomics" +
	" avoid-indexed-addresses avx avx10.1 avx10.1-256 avx10.1-512 avx10.2 avx2" +
	" avx256-split-unaligned-load avx256-split-unaligned-store avx5124fmaps avx5124vnniw avx512bf16" +
	" avx512bitalg avx512bw avx512cd avx512dq avx512er avx512f avx512fp16 avx512ifma avx512pf avx512vbmi" +
	" avx512vbmi2 avx512vl avx512vnni avx512vp2intersect avx512vpopcntdq avxifma avxneconvert avxvnni" +
	" avxvnniint16 avxvnniint8 backchain be8 big-endian bionic block-compare-inline-limit=" +
	" block-move-inline-limit= bmi bmi2 branch-cost= branch-likely branch-protection=" +
	" branches-within-32B-boundaries bss-plt bti-at-return-twice bulk-memory cabac call-ms2sysv-xlogues" +
	" callee-super-interworking cbcond cet-switch check-zero-division cld cldemote clflushopt clwb clzero" +
	" cmodel= cmpb cmpccxadd cmse code-object-v3 code-object-version= code-readable= compact-branches=" +
	" console constant-cfstrings constructor-aliases crbits crc crc32 crypto csr-check cumode cx16" +
	" daz-ftz debug default default-build-attributes default-visibility-export-mapping=" +
	" direct-extern-access direct-move disable-callt dispatch-scheduler div div32 divide-breaks" +
	" divide-traps dll dlmzb double-float double= dsp dspr2 early-ldp-fusion early-ra= eb efpu2 el" +
	" embedded-data enable-experimental-extensions enable-unsafe-fp-math enqcmd esa eva evex512" +
	" exception-handling exec-model= execute-only explicit-relocs explicit-relocs= extended-const" +
	" extern-sdata f16c fancy-math-387 faster-structs fdpic fence-as-lfence-with-lfence fentry" +
	" fentry-name= fentry-section= fix-24k fix-at697f fix-cmse-cve-2021-35465 fix-cortex-a53-835769" +
	" fix-cortex-a53-843419 fix-cortex-a57-aes-1742098 fix-cortex-a72-aes-1655431 fix-cortex-m3-ldrd" +
	" fix-gr712rc fix-r10000 fix-r4000 fix-r4400 fix-sb1 fix-ut699 fix-ut700 fix-vr4120 fix-vr4130" +
	" fix4300 flat flip-thumb float-abi= float128 float128-hardware flush-func= fma fma4 fmaf fmv" +
	" force-drap force-indirect-call forced-sw-shadow-stack fp-exceptions fp-in-toc fp-ret-in-387" +
	" fp16-format= fp32 fp64 fpmath= fprnd fpu fpu= fpxx frame-chain= frecipe friz fsgsbase fsmuld" +
	" full-toc function-return-mem= function-return-reg= function-return= fused-madd fxsr gather gcc-abi" +
	" general-regs-only gfni ghs ginv glibc global-merge gp32 gp64 gpopt guard= half-precision hard-dfp" +
	" hard-float hard-quad-float harden-sls= hle hotpatch= hreset htm hvx hvx-ieee-fp hvx-length=" +
	" hvx-qfloat hvx= hwdiv= hwmult= iamcu ibt-seal ieee-fp ieee-rnd-near ignore-xcoff-visibility imadd" +
	" implicit-float implicit-it= incoming-stack-boundary= incremental-linker-compatible" +
	" indirect-branch-call= indirect-branch-cs-prefix indirect-branch-jump= indirect-branch-register" +
	" indirect-branch-table indirect-branch= indirect-jump= inline-all-stringops inline-atomics" +
	" inline-strcmp inline-stringops-dynamically inline-strlen inline-strncmp instrument-return=" +
	" intel-syntax interlink-compressed interlink-mips16 invariant-function-descriptors invpcid" +
	" ios-simulator-version-min= ios-version-min= iphoneos-version-min= iphonesimulator-version-min= ips1" +
	" ips16 ips2 ips3 ips32 ips32r2 ips32r3 ips32r5 ips32r6 ips4 ips5 ips64 ips64r2 ips64r3 ips64r5" +
	" ips64r6 isa-spec= isel kl lam-bh lam= lamcas large-data-threshold= lasx late-ldp-fusion ld-seq-sa" +
	" ldc1-sdc1 link-builtin-bitcode-postopt little-endian llsc load-store-pairs local-sdata long-calls" +
	" long-double-128 long-double-64 long-double-80 long-jumps long32 long64 longcall low-precision-div" +
	" low-precision-recip-sqrt low-precision-sqrt lr-for-calls-only lsx lvi-cfi lvi-hardening lwp" +
	" lxc1-sxc1 lzcnt macos-version-min= macosx-version-min= mad madd4 manual-endbr mark-bti-property" +
	" mcount-ra-address mcu= mdmx memcpy memcpy-strategy= memops memset-strategy= mfcrf mfocrf micromips" +
	" minimal-toc mips16 mips3d mitigate-rop mma mmx movbe movcc movdir64b movdiri move-max= movrs movt" +
	" mpx ms-bitfields msa mt mulhw multimemory multiple multivalue musl mutable-globals mvcle mwait" +
	" mwaitx nan= needed neg-immediates neon-for-64bits no-toc nocrc nontrapping-fptoint nop-mcount" +
	" noreturn-no-callee-saved-registers nvj nvs odd-spreg omit-leaf-frame-pointer oslib= outline" +
	" outline-atomics packed-stack packets pad-max-prefix-size= paired-single paired-vector-memops" +
	" partial-vector-fp-math pc-relative-literal-loads pc32 pc64 pc80 pclmul pcommit pconfig pcrel" +
	" pic-data-is-text-relative pic-register= pku plt pointers-to-nested-functions poke-function-name" +
	" popc popcnt popcntb popcntd power10-vector power8-vector power9-vector powerpc powerpc-gfxopt" +
	" powerpc-gpopt powerpc64 prefer-avx128 prefer-vector-width= preferred-stack-boundary= prefetchi" +
	" prefetchwt1 prefixed prfchw printf-kind= privileged prototype ptwrite pure-code push-args" +
	" qdsp6-compat quad-memory quad-memory-atomic raoint rdpid rdpru rdrnd rdseed readonly-in-sdata recip" +
	" recip-precision recip= record-mcount record-return red-zone reference-types regnames regparm= relax" +
	" relax-all relax-cmpxchg-loop relax-pic-calls relax-relocations relax-relocations= relaxed-simd" +
	" relocatable relocatable-lib restrict-it retpoline retpoline-external-thunk riscv-attribute" +
	" rop-protect rtd rtm rvv-max-lmul= rvv-vector-bits= sahf save-restore scalar-strict-align scatter" +
	" sched-prolog sdata sdata= secure-plt serialize seses sgx sha sha512 shared shorten-memrefs shstk" +
	" sign-ext sign-return-address= sim simd128 simd= single-float single-pic-base skip-rax-setup" +
	" slow-flash-data sm3 sm4 small-data-limit= small-data-threshold= small-exec smartmips soft-float" +
	" soft-quad-float spe speculative-load-hardening split-addresses sse sse2 sse2avx sse3 sse4 sse4.1" +
	" sse4.2 sse4a sse5 sseregparm ssse3 stack-alignment= stack-arg-probe stack-bias stack-guard=" +
	" stack-probe-size= stack-protector-guard-offset= stack-protector-guard-reg=" +
	" stack-protector-guard-symbol= stack-protector-guard= stack-size= stackrealign store-max=" +
	" strict-align string stringop-strategy= structure-size-boundary= stv subxc sum-in-toc" +
	" sve-vector-bits= svr4-struct-return sym32 synci tail-call targetos= tbm tgsplit thread-model" +
	" thread-model= threads thumb thumb-interwork tls-dialect= tls-direct-seg-refs tls-markers tls-size=" +
	" toc tocdata tocdata= tp= tpcs-frame tpcs-leaf-frame tpf-trace traceback= track-speculation tsxldtrk" +
	" tune-ctrl= tvos-version-min= uclibc uintr unaligned-access unaligned-symbols unicode" +
	" uninit-const-in-rodata unroll-only-small-loops unsafe-fp-atomics update upper-regs user-mode" +
	" user_msr usermsr v5 v55 v60 v62 v65 v66 v67 v67t v68 v69 v71 v71t v73 v8plus vaes veclibabi=" +
	" vect-compare-costs vect8-ret-in-mem vector-strict-align vectorize-with-neon-double" +
	" vectorize-with-neon-quad vevpu virt vis vis2 vis3 vis4 vpclmulqdq vr4130-align vrsave vscale-max=" +
	" vscale-min= vsx vx vzeroupper waitpkg warn-dynamicstack warn-framesize= warn-nonportable-cfstrings" +
	" watchos-simulator-version-min= watchos-version-min= wavefrontsize64 wbnoinvd widekl windows" +
	" word-relocations x32 x87 xcoff-build-id= xcoff-roptr xgot xl-compat xop xpa xsave xsavec xsaveopt" +
	" xsaves zarch zvector" +
	" "
