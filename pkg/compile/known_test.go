package compile

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	turns "github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// lookedAt lists the compilers whose every option has been reviewed. Options that others list and we do not
// know are logged.
var lookedAt = []string{"gcc-11", "gcc-12", "gcc-13", "gcc-14", "gcc-15", "gcc-16", "clang-13", "clang-14", "clang-15", "clang-16", "clang-19", "clang-21", "clang-22"}

// installed are lookedAt, and gcc and clang where these are other ones: a compiler has
// two thousand options, and each takes a run of it.
func installed() []string {
	names, seen := slices.Clone(lookedAt), map[string]bool{}
	for _, name := range lookedAt {
		seen[program(name)] = true
	}
	for _, name := range []string{"gcc", "clang"} {
		if !seen[program(name)] {
			names = append(names, name)
		}
	}
	return names
}

// program is the file that a command's name leads to; "" without one.
func program(name string) string {
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return ""
	}
	return path
}

// otherLanguages are options of gcc's for languages that do not travel, in its own
// words.
func otherLanguages(t *testing.T, path string) map[string]bool {
	others := map[string]bool{}
	for _, ours := range []bool{false, true} {
		languages := []string{"ada", "d", "fortran", "go", "lto", "brig", "modula-2", "rust", "cobol"}
		if ours {
			languages = []string{"c", "c++", "objc", "objc++", "common", "target"}
		}
		for _, l := range languages {
			for _, more := range []string{"", ",undocumented"} {
				out, _ := exec.Command(path, "--help="+l+more).Output() // not every gcc has every language
				for line := range strings.SplitSeq(string(out), "\n") {
					if o := strings.TrimLeft(line, " "); len(line)-len(o) == 2 && strings.HasPrefix(o, "-") {
						o, _, _ = strings.Cut(o, " ")
						name, _, valued := strings.Cut(o, "=")
						if valued {
							name += "="
						}
						others[name] = !ours
					}
				}
			}
		}
	}
	return others
}

// deliberate has options that are unknown here on purpose: such a command is left to the compiler on the
// user's machine.
var deliberate = map[Family]*regexp.Regexp{
	GCC: regexp.MustCompile(`^-(fmachine.*|m?achine.*` + // "--machine X" in two words, which completion joins
		`|J|Mmodules|Mno-modules|R|callgraph|fbuilding-libgcc|gnat|gimple-stats|k8|name-sort|nophoboslib|posix|profile|quiet|reverse-sort|size-sort|symbol=|tree-stats|type-stats` +
		`|shared-libphobos|static-lib(go|gfortran|hwasan|mpx|mpxwrappers|phobos)|tno-android-(cc|ld)|Hd|Hf|Xf|version` + // of other languages or of none
		`|ccc-gcc-name|fgcc-triple=|fc?hkp.*|fcilkplus|fmudflap.*|gx?coff.*|fname-mangling-version-|fpthread` + // clang's; no longer supported
		`|f(directives-only|fhelp=|help=|pch-deps|pch-preprocess|preprocessed|self-test=|target-help|use-ld=|help|version)` + // negated, or told so in vain
		`|copyext|nomain|truncate|preprocess|main=?|fa68-.*|fbrackets|fstropping=|f(flex|yacc|trace)-debug|fanalyzer-debug-text-art|fcobol-.*|fdefaultbyte|findicator-column|(fexec|finternal)-(national|ebcdic).*|fstatic-call|frust-.*|mno-ain=?|foutput-pch|fcompile-std-module|fsearch-include-path=?|shared-libga68` +
		`|fdeps-.*|fdump-analyzer-callgraph|flto-(incremental=|toplevel-asm-heuristics)|m(no-)?avx512bmm` + // asked for, or of the driver's
		`|fgimple|fstd.*|fgo-.*|ffree-line-length-.*|foffload.*|f?lang-asm)$`),
	Clang: regexp.MustCompile(`(?i)^-([a-z-]+:.*|f[a-z]+:.*|.*(cuda|hip|gpu|offload|opencl|hlsl|sycl|nvptx|amdgcn|libomptarget|rocm|ptxas|dxv|spv|objcmt|arcmt).*|cl-.*|[fm]?wasm-opt|fopenmp-(target|new-driver|relocatable-target).*|Xopenmp-target.*|Xarch_.*|fno?openmp-.*` + // for other processors
		`|G.*|Q.*|Z.*|Y.*|E[HP]|MDd|J|JMC-?|await|analyze-|arm64EC|bigobj|homeparams|hotpatch|imsvc|kernel-?|permissive-?|regcall4|sdl-?|showFilenames-?|showIncludes|sourceDependencies|translateInclude|validate-charset-?|validator-version|vctools.*|vd|vm[bgmsv]|wd[0-9]*|winsdk.*|winsysroot|headerUnit|reference|nologo|clr|fast|fastcp|fastf|favor|volatile.*` + // of clang-cl and of others' drivers
		`|(f|\?|help|emit|ccc|m?module|fapinotes|iapinotes|rewrite|relocatable|verify|gen-reproducer|gen-cdb|darwin-target)(-.*|$)|fmodule.*|frelocatable-pch|fverify-debug-info|fpretty-sgf|fsymbol-graph-dir=|frewrite-.*|fexperimental-modules-.*|ff?orce-check-.*|fno_.*|fstrict-modules-decluse|fvalidate-ast-.*|fpch-.*|fdepfile-entry=|fclangir|fincremental-extensions|fextract-api-ignores=|femit-extension.*` + // modules, precompiled headers, other products than objects
		`|f(D|E|aggressive-function-elimination|align-commons|all-intrinsics|automatic|backtrace|blas-matmul-limit=|bootclasspath=|bounds-check|check=|check-array-temporaries|classpath=|coarray=|convert=|cray-pointer|d-lines-.*|dollar-ok|encoding=|extdirs=|external-blas|f2c|fpe-trap=|free-line-length-|frontend-optimize|init-.*|integer-4.*|max-(array|identifier|stack-var|subrecord).*|output-class-dir=|pack-derived|range-check|real-[48].*|realloc-lhs|record-marker=|recursive|repack-arrays|second-underscore|sign-zero|stack-arrays|underscoring|whole-file|compile-resource=|nested-functions|mudflap.*)|static-libgfortran` + // of other languages
		`|fallow-unsupported|fanalyzer-output|Xanalyzer|fauto-import|fauto-profile|fcgl|fdebug-pass-.*|fdefault-config|fdirectives-only|fdriver-.*|filelist|fgcc-triple=|fkeep-system-includes|frsp-quoting=|fsanitize-address-vcasan-lib|fverify-intermediate-code|fworking-directory|fxray-instruction-threshold|fno?xray-link-deps|gsce|imultilib|inline-asm=|meabi|mdynamic-no-pic|mkernel|mlinker-version=|mmlir|mzos-.*|cuid=|vfsoverlay|cgthreads|Mach|Xclangas=?|Xthinlto-distributor=|clangir-.*|fcodegen-data-.*|fdx-.*|flibclc-lib=|fms-secure-hotpatch-.*|f?multi-lib-config=|fswift-.*` +
		`|funique-source-file-identifier=|fuse-lipo=|ignore-pch|object-file-name=|res-may-alias|startfiles|static-libclosure|stdlib|no-use-spirv-backend` +
		`|m(no-)?(avx10\.2-(256|512)|bulk-memory-opt|call-indirect-overlong|cf-branch-label-scheme=|fp16|gc|reserve-frame-pointer-reg|save-reg-params|scq|sve-streaming-vector-bits=|v75|v79|v81|wide-arithmetic)|fexperimental-openacc.*)$`),
}

// TestKnowsInstalledOptions: every option that a compiler lists of itself has a row
// or a place among the flags, and takes its argument as the compiler says.
func TestKnowsInstalledOptions(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the compiler for each of its options")
	}
	today := turns.Of(t)
	for _, name := range installed() {
		t.Run(name, func(t *testing.T) {
			if !today.Has(name) {
				t.Skip("its turn is another day")
			}
			path, err := exec.LookPath(name)
			if err != nil {
				t.Skipf("no %s here", name)
			}
			t.Parallel()
			d := testDriver(t, name)
			complain := t.Errorf
			if !slices.Contains(lookedAt, name) {
				complain = t.Logf
			}
			options := listed(t, path, d.Family)
			if len(options) < 1500 {
				t.Fatalf("%s lists %d options only", name, len(options))
			}
			var others map[string]bool
			if d.Family == GCC {
				others = otherLanguages(t, path)
			}
			takes := takesNext(t, path, d.Family, options)
			for _, o := range options {
				row, _, ours := lookup(o, d.Family)
				if row == nil {
					if o := canonical(o); !deliberate[d.Family].MatchString(o) && !others[o] {
						complain("%s: %q is in no row and no list", name, o)
					}
					continue
				}
				if theirs, judged := takes[o]; judged && ours != theirs && row.class(d.Family) < notHere && row.class(d.Family) != include && row.class(d.Family) != xpre {
					complain("%s: %q takes the next word: %v, but row %q says %v", name, o, theirs, row.name, ours)
				}
			}
		})
	}
}

// canonical is an option's name without its value, with one hyphen, and not negated.
func canonical(o string) string {
	if strings.HasPrefix(o, "--") {
		if short := translated(o); short != "" {
			o = short
		}
	}
	name, _, valued := strings.Cut(o, "=")
	if valued {
		name += "="
	}
	if rest, ok := strings.CutPrefix(name, "-fno-"); ok {
		return "-f" + rest
	}
	return name
}

// listed are all options that a compiler completes.
func listed(t *testing.T, path string, f Family) []string {
	arg := "--completion=-"
	if f == Clang {
		arg = "--autocomplete=-"
	}
	out, err := exec.Command(path, arg).Output()
	must(t, err)
	seen := map[string]bool{}
	var options []string
	for line := range strings.SplitSeq(string(out), "\n") {
		o, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if len(o) > 1 && o[0] == '-' && !seen[o] && !strings.HasPrefix(o, "-W") && !strings.HasPrefix(o, "--warn-") {
			seen[o] = true
			options = append(options, o)
		}
	}
	return options
}

// notAsked are options that make a driver do something else than look at its words.
var notAsked = regexp.MustCompile(`^(-o|--output|-x|--language|--?help|--?target-help|--?version|-v|--verbose|--?print-|-dump|--dump|-fhelp|-ftarget-help|-fversion|-E$|--preprocess` +
	`|-M$|-MM$|--dependencies|--user-dependencies|--print-missing|--completion|--driver-mode|--autocomplete|--config|-cc1|--no-default-config|-ccc-|-###|-@|-wrapper|-specs|--specs|-e$|--rsp-quoting` +
	`|-fxray-.*=$|--?analyze|-target|--target|-arch|-working-directory|--(hip|cuda|offload)|-f?offload|-foffload|-fplugin|-fuse-ld|-fopenmp-targets|-Xarch|-Xcuda|-Xopenmp|-Xoffload|-B|--prefix|--sysroot|-mtargetos|-no-canonical|--no-canonical|-fself-test)`)

// takesNext asks a driver which options take the following word. Options that the driver cannot be asked
// about are not in the answer.
func takesNext(t *testing.T, path string, f Family, options []string) map[string]bool {
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/a.c", nil, 0o666))
	missing := regexp.MustCompile(`zz([0-9]+)zz(: |'|’)`)
	// gcc looks for files only if it has nothing else to report: one at a time, and not those without an
	// argument or with one after "=".
	atOnce, plain := 100, regexp.MustCompile(`^$`)
	if f == GCC {
		atOnce, plain = 1, regexp.MustCompile(`^--?(std|param|machine|optimize)|^-[fmg]`)
	}
	asked := 0 // no name twice: some options write the file that they name
	ask := func(options []string) map[int]bool {
		first := asked
		asked += len(options)
		args := []string{"-fsyntax-only", "a.c"}
		if f == Clang {
			args = append(args, "-###")
		}
		for i, o := range options {
			args = append(args, o, "zz"+strconv.Itoa(first+i)+"zz")
		}
		cmd := exec.Command(path, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		out, _ := cmd.CombinedOutput()
		files := map[int]bool{}
		if f == GCC && strings.Contains(string(out), "error: ") && !strings.Contains(string(out), "o such file") {
			return nil
		}
		for _, line := range strings.Split(string(out), "\n") {
			if strings.Contains(line, "o such file") {
				if m := missing.FindStringSubmatch(line); m != nil {
					i, _ := strconv.Atoi(m[1])
					files[i-first] = true
				}
			}
		}
		return files
	}
	takes := map[string]bool{}
	options = slices.DeleteFunc(slices.Clone(options), func(o string) bool {
		return notAsked.MatchString(o) || plain.MatchString(o) || f == GCC && strings.HasPrefix(o, "--") && find(o) == nil
	})
	for chunk := range slices.Chunk(options, atOnce) {
		files := ask(chunk)
		if files == nil {
			continue
		}
		for i, o := range chunk {
			takes[o] = !files[i]
			if takes[o] && atOnce > 1 {
				takes[o] = len(ask(chunk[i:i+1])) == 0 // by itself: another one may have stopped the driver
			}
		}
	}
	return takes
}

// TestForwarded: an option that may follow -Xclang, because the driver treats it as a code generation flag,
// takes no further word there either.
func TestForwarded(t *testing.T) {
	if testing.Short() {
		t.Skip("runs clang for every option")
	}
	turns.Skip(t)
	separate := regexp.MustCompile(`(?m)^  (-[a-zA-Z][^ ]*) <`)
	for _, name := range lookedAt {
		path, err := exec.LookPath(name)
		if err != nil || testDriver(t, name).Family != Clang {
			continue
		}
		out, err := exec.Command(path, "-cc1", "-help").Output()
		must(t, err)
		found := separate.FindAllStringSubmatch(string(out), -1)
		if len(found) < 50 {
			t.Errorf("%s: only %d options that take a word", name, len(found))
		}
		for _, m := range found {
			if forwarded(m[1]) && !strings.HasSuffix(m[1], "=") {
				t.Errorf("%s -cc1 %s takes the next word", name, m[1])
			}
		}
	}
}
