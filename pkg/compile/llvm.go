package compile

import "strings"

// llvmFlags lists the words after -mllvm that change nothing but code, each up to a "=" and
// without hyphens, sorted. They are those of the code generators, sanitizers, vectorizers
// and the inliner that clang 13 to 19 list in their help. Words that print, write or load
// are left out, such as x86-lvi-load-opt-plugin, which names a shared object.
const llvmFlags = "" +
	" aarch64-a57-fp-load-balancing-force-all aarch64-a57-fp-load-balancing-override" +
	" aarch64-authenticated-lr-check-method aarch64-b-offset-bits aarch64-base-histcnt-cost" +
	" aarch64-bcc-offset-bits aarch64-cbz-offset-bits aarch64-ccmp-limit aarch64-early-ifcvt" +
	" aarch64-elf-ldtls-generation aarch64-enable-atomic-cfg-tidy aarch64-enable-branch-relax" +
	" aarch64-enable-branch-targets aarch64-enable-ccmp aarch64-enable-collect-loh" +
	" aarch64-enable-compress-jump-tables aarch64-enable-cond-br-tune aarch64-enable-condopt" +
	" aarch64-enable-copy-propagation aarch64-enable-copyelim aarch64-enable-dead-defs" +
	" aarch64-enable-early-ifcvt aarch64-enable-ext-to-tbl aarch64-enable-falkor-hwpf-fix" +
	" aarch64-enable-gep-opt aarch64-enable-gisel-ldst-postlegal aarch64-enable-gisel-ldst-prelegal" +
	" aarch64-enable-gisel-sve aarch64-enable-global-isel-at-O aarch64-enable-global-merge" +
	" aarch64-enable-ldst-opt aarch64-enable-logical-imm aarch64-enable-loop-data-prefetch" +
	" aarch64-enable-mcr aarch64-enable-mgather-combine aarch64-enable-nonlazybind" +
	" aarch64-enable-pipeliner aarch64-enable-promote-const aarch64-enable-simd-scalar" +
	" aarch64-enable-sink-fold aarch64-enable-stp-suppress aarch64-enable-sve-intrinsic-opts" +
	" aarch64-fix-cortex-a53-835769 aarch64-insert-extract-base-cost aarch64-load-store-renaming" +
	" aarch64-load-store-scan-limit aarch64-lower-to-sme-routines aarch64-macho-enable-nonlazybind" +
	" aarch64-mark-bti-property aarch64-max-xors aarch64-min-jump-table-entries aarch64-neon-syntax" +
	" aarch64-order-frame-objects aarch64-postlegalizer-consecutive-memops aarch64-ptrauth-auth-checks" +
	" aarch64-redzone aarch64-select-opt aarch64-simd-scalar-force-all aarch64-slh-loads" +
	" aarch64-stack-hazard-in-non-streaming aarch64-stack-hazard-remark-size aarch64-stack-hazard-size" +
	" aarch64-stress-ccmp aarch64-stress-promote-const aarch64-sve-vector-bits-max" +
	" aarch64-sve-vector-bits-min aarch64-tbz-offset-bits aarch64-update-scan-limit aarch64-use-aa" +
	" aarch64-use-tbi align-all-blocks align-all-functions align-all-nofallthru-blocks" +
	" arm-add-build-attributes arm-adjust-jump-tables arm-assume-itcm-bankconflict" +
	" arm-assume-misaligned-load-store arm-atomic-cfg-tidy arm-constant-island-max-iteration" +
	" arm-data-bank-mask arm-default-it arm-disable-omit-dls arm-enable-merge-loopenddec" +
	" arm-enable-subreg-liveness arm-force-fast-isel arm-global-merge arm-implicit-it arm-interworking" +
	" arm-load-store-opt arm-loloops-disable-tailpred arm-memtransfer-tploop arm-no-restrict-it" +
	" arm-parallel-dsp-load-limit arm-prera-ldst-opt-reorder-limit arm-promote-constant" +
	" arm-promote-constant-max-size arm-promote-constant-max-total arm-restrict-it arm-set-lr-predicate" +
	" arm-synthesize-thumb-1-tbb arm-use-mulops asan-always-slow-path asan-constructor-kind" +
	" asan-destructor-kind asan-detect-invalid-pointer-cmp asan-detect-invalid-pointer-pair" +
	" asan-detect-invalid-pointer-sub asan-force-dynamic-shadow asan-force-experiment asan-globals" +
	" asan-globals-live-support asan-guard-against-version-mismatch asan-initialization-order" +
	" asan-instrument-atomics asan-instrument-byval asan-instrument-dynamic-allocas asan-instrument-reads" +
	" asan-instrument-writes asan-instrumentation-with-call-threshold asan-kernel" +
	" asan-kernel-mem-intrinsic-prefix asan-mapping-offset asan-mapping-scale" +
	" asan-max-inline-poisoning-size asan-max-ins-per-bb asan-memory-access-callback-prefix asan-opt" +
	" asan-opt-globals asan-opt-same-temp asan-opt-stack asan-optimize-callbacks asan-realign-stack" +
	" asan-recover asan-redzone-byval-args asan-skip-promotable-allocas asan-stack" +
	" asan-stack-dynamic-alloca asan-use-after-return asan-use-after-scope asan-use-odr-indicator" +
	" asan-use-private-alias asan-use-stack-safety asan-with-comdat asan-with-ifunc" +
	" asan-with-ifunc-suppress-remat emulated-tls enable-machine-outliner force-vector-interleave" +
	" force-vector-width generate-arange-section hot-cold-split hwasan-experimental-use-page-aliases" +
	" hwasan-generate-tags-with-calls hwasan-globals hwasan-inline-all-checks" +
	" hwasan-inline-fast-path-checks hwasan-instrument-atomics hwasan-instrument-byval" +
	" hwasan-instrument-landing-pads hwasan-instrument-mem-intrinsics" +
	" hwasan-instrument-personality-functions hwasan-instrument-reads hwasan-instrument-stack" +
	" hwasan-instrument-with-calls hwasan-instrument-writes hwasan-kernel" +
	" hwasan-kernel-mem-intrinsic-prefix hwasan-mapping-offset hwasan-match-all-tag" +
	" hwasan-memory-access-callback-prefix hwasan-percentile-cutoff-hot hwasan-random-rate" +
	" hwasan-record-stack-history hwasan-recover hwasan-uar-retag-to-zero hwasan-use-after-scope" +
	" hwasan-use-short-granules hwasan-use-stack-safety hwasan-with-ifunc hwasan-with-tls" +
	" import-instr-limit inline-threshold inlinecold-threshold inlinehint-threshold" +
	" instcombine-code-sinking instcombine-guard-widening-window instcombine-infinite-loop-threshold" +
	" instcombine-lower-dbg-declare instcombine-max-copied-from-constant-users instcombine-max-iterations" +
	" instcombine-max-num-phis instcombine-max-sink-users instcombine-maxarray-size" +
	" instcombine-negator-enabled instcombine-negator-max-depth msan-and-mask msan-check-access-address" +
	" msan-check-constant-shadow msan-disable-checks msan-disambiguate-warning-threshold msan-eager-checks" +
	" msan-handle-asm-conservative msan-handle-icmp msan-handle-icmp-exact msan-handle-lifetime-intrinsics" +
	" msan-instrumentation-with-call-threshold msan-keep-going msan-kernel msan-origin-base" +
	" msan-poison-stack msan-poison-stack-pattern msan-poison-stack-with-call msan-poison-undef" +
	" msan-shadow-base msan-track-origins msan-with-comdat msan-xor-mask" +
	" ppc-aix-shared-lib-tls-model-opt-limit ppc-always-use-base-pointer ppc-asm-full-reg-names" +
	" ppc-bit-perm-rewriter-stress-rotates ppc-chaincommon-max-vars ppc-chaincommon-min-threshold" +
	" ppc-convert-rr-to-ri ppc-disable-non-volatile-cr ppc-disable-perfect-shuffle" +
	" ppc-dispprep-min-threshold ppc-dqprep-max-vars ppc-dsprep-max-vars ppc-eliminate-signext" +
	" ppc-eliminate-zeroext ppc-enable-coldcc ppc-enable-gpr-to-vsr-spills ppc-enable-pe-vector-spills" +
	" ppc-enable-pipeliner ppc-fma-rp-factor ppc-fma-rp-reduction ppc-formprep-chain-commoning" +
	" ppc-formprep-max-vars ppc-formprep-prefer-update ppc-formprep-update-nonconst-inc" +
	" ppc-gather-alias-max-depth ppc-gen-isel ppc-gep-opt ppc-gpr-icmps ppc-late-peephole" +
	" ppc-loop-prefetch-cache-line ppc-lsr-no-insns-cost ppc-machine-combiner ppc-max-crbit-spill-dist" +
	" ppc-max-strings-pooled ppc-merge-string-pool ppc-min-jump-table-entries ppc-min-strings-before-pool" +
	" ppc-old-latency-calc ppc-opt-conditional-trap ppc-pcrel-linker-opt ppc-postra-bias-addi" +
	" ppc-preinc-prep-max-vars ppc-quadword-atomics ppc-reduce-cr-logicals ppc-reg-to-imm-fixed-point" +
	" ppc-reg-with-percent-prefix ppc-set-dscr ppc-stack-ptr-caller-preserved ppc-tls-opt" +
	" ppc-track-subreg-liveness ppc-use-absolute-jumptables ppc-use-base-pointer ppc-use-bit-perm-rewriter" +
	" ppc-use-branch-hint ppc-vec-mask-cost ppc-vsr-nums-as-vr riscv-abi-attributes" +
	" riscv-add-build-attributes riscv-asm-relax-branches riscv-disable-cost-per-use" +
	" riscv-disable-frm-insert-opt riscv-disable-insert-vsetvl-phi-opt riscv-disable-regalloc-hints" +
	" riscv-disable-sextw-removal riscv-disable-strip-w-suffix" +
	" riscv-disable-using-constant-pool-for-large-ints riscv-enable-copy-propagation riscv-enable-copyelim" +
	" riscv-enable-dead-defs riscv-enable-global-merge riscv-enable-loop-data-prefetch" +
	" riscv-enable-machine-combiner riscv-enable-sink-fold riscv-enable-subreg-liveness" +
	" riscv-force-machine-combiner-strategy riscv-insert-vsetvl-strict-asserts" +
	" riscv-lower-ext-max-web-size riscv-lower-form-vw-w-with-splat riscv-lower-fp-repeated-divisors" +
	" riscv-lower-fpimm-cost riscv-max-build-ints-cost riscv-min-jump-table-entries" +
	" riscv-misched-load-clustering riscv-no-aliases riscv-prefer-whole-register-move riscv-rvv-regalloc" +
	" riscv-uleb128-reloc riscv-use-aa riscv-use-rematerializable-movimm" +
	" riscv-v-fixed-length-vector-elen-max riscv-v-fixed-length-vector-lmul-max" +
	" riscv-v-register-bit-width-lmul riscv-v-slp-max-vf riscv-v-vector-bits-max riscv-v-vector-bits-min" +
	" riscv-vsetvl-after-rvv-regalloc slp-look-ahead-users-budget slp-max-look-ahead-depth" +
	" slp-max-reg-size slp-max-root-look-ahead-depth slp-max-store-lookup slp-max-stride slp-max-vf" +
	" slp-min-reg-size slp-min-strided-loads slp-min-tree-size slp-optimize-identity-hor-reduction-ops" +
	" slp-recursion-max-depth slp-revec slp-schedule-budget slp-skip-early-profitability-check" +
	" slp-threshold slp-vectorize-hor slp-vectorize-hor-store slp-vectorize-non-power-of-2" +
	" split-threshold-for-reg-with-hint tsan-compound-read-before-write tsan-distinguish-volatile" +
	" tsan-handle-cxx-exceptions tsan-instrument-atomics tsan-instrument-func-entry-exit" +
	" tsan-instrument-memintrinsics tsan-instrument-memory-accesses tsan-instrument-read-before-write" +
	" unroll-allow-loop-nests-peeling unroll-allow-partial unroll-allow-peeling unroll-allow-remainder" +
	" unroll-and-jam-count unroll-and-jam-threshold unroll-count unroll-force-peel-count" +
	" unroll-full-max-count unroll-max-count unroll-max-iteration-count-to-analyze" +
	" unroll-max-percent-threshold-boost unroll-max-upperbound unroll-optsize-threshold" +
	" unroll-partial-threshold unroll-peel-count unroll-peel-max-count unroll-peel-multi-deopt-exit" +
	" unroll-remainder unroll-revisit-child-loops unroll-runtime unroll-runtime-epilog" +
	" unroll-runtime-multi-exit unroll-runtime-other-exit-predictable unroll-threshold" +
	" unroll-threshold-aggressive unroll-threshold-default vectorize-loops" +
	" vectorize-memory-check-threshold vectorize-num-stores-pred vectorize-scev-check-threshold" +
	" vectorize-slp vectorize-use-legacy-cost-model x86-align-branch x86-align-branch-boundary" +
	" x86-and-imm-shrink x86-asm-syntax x86-br-merging-base-cost x86-br-merging-ccmp-bias" +
	" x86-br-merging-likely-bias x86-br-merging-unlikely-bias x86-branches-within-32B-boundaries" +
	" x86-bypass-prefetch-instructions x86-cmov-converter x86-cmov-converter-force-all" +
	" x86-cmov-converter-force-mem-operand x86-cmov-converter-threshold x86-disable-avoid-SFB" +
	" x86-discriminate-memops x86-early-ifcvt x86-experimental-lvi-inline-asm-hardening" +
	" x86-experimental-pref-innermost-loop-alignment x86-experimental-pref-loop-alignment" +
	" x86-experimental-unordered-atomic-isel x86-indirect-branch-tracking x86-lvi-load-no-cbranch" +
	" x86-machine-combiner x86-pad-for-align x86-pad-for-branch-align x86-pad-max-prefix-size" +
	" x86-promote-anyext-load x86-relax-relocations x86-seses-enable-without-lvi-cfi" +
	" x86-seses-omit-branch-lfences x86-seses-one-lfence-per-bb x86-seses-only-lfence-non-const" +
	" x86-sfb-inspection-limit x86-slh-fence-call-and-ret x86-slh-indirect x86-slh-ip x86-slh-lfence" +
	" x86-slh-loads x86-slh-post-load x86-speculative-load-hardening x86-sse2avx x86-tile-ra" +
	" x86-use-base-pointer x86-use-fsrm-for-memcpy x86-use-vzeroupper" +
	" "

// codeOnly reports whether a word after -mllvm changes nothing but code.
func codeOnly(w string) bool {
	name, value, _ := strings.Cut(strings.TrimLeft(w, "-"), "=")
	return inList(llvmFlags, name) && onlyOf(value, wordBytes, maxWord)
}
