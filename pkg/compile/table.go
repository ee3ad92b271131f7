package compile

import "strings"

// form is how an option takes its argument.
type form uint8

const (
	alone    form = iota // -c
	joined               // -std=c11, -O2, -O: all that begins so
	separate             // -MF FILE
	either               // -DX, -D X
)

// spec is one row of the option table.
type spec struct {
	name       string
	form       form
	gcc, clang class
}

func (s *spec) class(f Family) class {
	if f == Clang {
		return s.clang
	}
	return s.gcc
}

// takes reports whether word is this option.
func (s *spec) takes(word string) bool {
	switch s.form {
	case joined, either:
		return strings.HasPrefix(word, s.name)
	}
	return word == s.name
}

// find looks a word up: the longest row that takes it, then the flags of one
// -f, -m and -W. nil means that the option is not known.
//
// Rows are sorted by name, so what begins like word lies before it; each step
// shortens word to what it shares with its neighbour, until a row takes it.
func find(word string) *spec {
	for key := word; key != ""; {
		lo, hi := 0, len(table)
		for lo < hi {
			if mid := int(uint(lo+hi) >> 1); table[mid].name <= key {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		if lo == 0 {
			break
		}
		row := &table[lo-1]
		if strings.HasPrefix(key, row.name) {
			if row.takes(word) {
				return row
			}
			key = row.name[:len(row.name)-1]
			continue
		}
		n := 0
		for n < len(key) && n < len(row.name) && key[n] == row.name[n] {
			n++
		}
		key = key[:n]
	}
	if len(word) < 3 || word[0] != '-' {
		return nil
	}
	switch word[1] {
	case 'W':
		return &anyWarning
	case 'f':
		if isFlag(fFlags, word[2:]) {
			return &anyFlag
		}
		if rest, ok := strings.CutPrefix(word, "-fno-"); ok {
			return negated(rest)
		}
	case 'm':
		if isFlag(mFlags, word[2:]) {
			return &anyFlag
		}
	}
	return nil
}

var (
	anyWarning = spec{"-W", joined, both, both}
	anyFlag    = spec{"-f", joined, both, both}
)

// isFlag looks name up in one of the lists of flags.go.
func isFlag(list, name string) bool {
	if i := strings.IndexByte(name, '='); i >= 0 {
		name = name[:i+1]
	}
	if inList(list, name) {
		return true
	}
	name, ok := strings.CutPrefix(name, "no-")
	return ok && inList(list, name)
}

// inList searches a sorted list of words that each have a blank before and
// behind them.
func inList(list, name string) bool {
	for lo, hi := 0, len(list)-1; lo < hi; { // both at blanks
		start := lo + strings.LastIndexByte(list[lo:lo+(hi-lo+1)/2], ' ')
		end := start + 1 + strings.IndexByte(list[start+1:], ' ')
		switch word := list[start+1 : end]; {
		case word == name:
			return true
		case word < name:
			lo = end
		default:
			hi = start
		}
	}
	return false
}

// negated finds -fno-NAME by the row of -fNAME: whatever NAME would write or
// read, its opposite does not.
func negated(name string) *spec {
	if strings.IndexByte(name, '=') >= 0 {
		return nil
	}
	row := find("-f" + name)
	if row == nil || row.gcc == hereComments || row.gcc == herePCH {
		return nil // it would undo what our own half asks for
	}
	return &anyFlag
}

// table is every option that is more than a flag of code or of warnings, sorted.
//
// For clang some rows differ on purpose: it warns of words that it does not
// use, so what only the linker reads stays in the half that runs here.
var table = [...]spec{
	{"-###", alone, isQuery, isQuery},
	{"--analyze", alone, unknown, hereSideFile},
	{"--config", joined, unknown, hereToolPath},
	{"--coverage", alone, hereCoverage, hereCoverage},
	{"--dump", joined, hereDumps, hereDumps},
	{"--gcc-install-dir=", joined, unknown, preproc},
	{"--gcc-toolchain=", joined, unknown, preproc},
	{"--help", joined, isQuery, isQuery},
	{"--no-sysroot-suffix", alone, preproc, unknown},
	{"--param", either, both, both},
	{"--print-", joined, isQuery, isQuery},
	{"--specs", joined, hereSpecs, hereSpecs},
	{"--std=", joined, both, both},
	{"--sysroot", separate, preproc, preproc},
	{"--sysroot=", joined, preproc, preproc},
	{"--target-help", alone, isQuery, isQuery},
	{"--target=", joined, unknown, both},
	{"--traditional-cpp", alone, plainText, plainText},
	{"--verbose", alone, isQuery, isQuery},
	{"--version", alone, isQuery, isQuery},
	{"-A", either, preproc, preproc},
	{"-B", either, hereToolPath, hereToolPath},
	{"-C", alone, hereComments, hereComments},
	{"-CC", alone, hereComments, hereComments},
	{"-D", either, macro, macro},
	{"-E", alone, isPreprocess, isPreprocess},
	{"-F", either, preproc, preproc},
	{"-H", alone, hereMessages, hereMessages},
	{"-I", either, preproc, preproc},
	{"-L", either, linker, linker},
	{"-M", alone, isDependencies, isDependencies},
	{"-MD", alone, dependAuto, dependAuto},
	{"-MF", either, dependFile, dependFile},
	{"-MG", alone, depend, depend},
	{"-MM", alone, isDependencies, isDependencies},
	{"-MMD", alone, dependAuto, dependAuto},
	{"-MP", alone, depend, depend},
	{"-MQ", either, dependTo, dependTo},
	{"-MT", either, dependTo, dependTo},
	{"-MV", alone, unknown, depend},
	{"-N", alone, linker, linker},
	{"-O", joined, both, both},
	{"-P", alone, drop, hereComments},
	{"-Q", alone, hereMessages, unknown},
	{"-Qn", alone, both, both},
	{"-Qunused-arguments", alone, unknown, both},
	{"-Qy", alone, both, both},
	{"-R", joined, linker, hereMessages}, // gcc: -R DIR for the linker; clang: remarks
	{"-S", alone, modeAssembly, modeAssembly},
	{"-T", either, linker, linker},
	{"-U", either, macro, macro},
	{"-V", separate, hereToolPath, hereToolPath},
	{"-W", alone, both, both}, // an old name of -Wextra
	{"-Wa,", joined, wa, wa},
	{"-Wl,", joined, linker, linker},
	{"-Wp,", joined, wp, wp},
	{"-X", alone, linker, linker},
	{"-Xassembler", separate, xasm, xasm},
	{"-Xclang", separate, unknown, xclang},
	{"-Xlinker", separate, linker, linker},
	{"-Xpreprocessor", separate, xpre, xpre},
	{"-Z", alone, linker, linker},
	{"-ansi", alone, both, both},
	{"-arch", separate, unknown, hereToolPath},
	{"-aux-info", either, hereSideFile, unknown},
	{"-b", separate, hereToolPath, hereToolPath},
	{"-c", alone, modeCompile, modeCompile},
	{"-canonical-prefixes", alone, unknown, preproc},
	{"-coverage", alone, hereCoverage, hereCoverage},
	{"-cxx-isystem", separate, unknown, preproc},
	{"-d", joined, hereDumps, hereDumps},
	{"-dumpfullversion", alone, isQuery, isQuery},
	{"-dumpmachine", alone, isQuery, isQuery},
	{"-dumpspecs", alone, isQuery, isQuery},
	{"-dumpversion", alone, isQuery, isQuery},
	{"-e", either, linker, linker},
	{"-emit-", joined, unknown, hereEmitLLVM},
	{"-fada-spec-parent=", joined, hereSideFile, unknown},
	{"-fauto-profile", joined, hereProfile, hereProfile},
	{"-fbasic-block-sections=", joined, unknown, hereInputFile},
	{"-fbranch-probabilities", alone, hereProfile, hereProfile},
	{"-fbuild-session-", joined, unknown, hereModules},
	{"-fbuiltin-", joined, both, both},
	{"-fbuiltin-module-map", alone, unknown, hereModules},
	{"-fcall-saved-", joined, both, both},
	{"-fcall-used-", joined, both, both},
	{"-fcallgraph-info", joined, hereSideFile, unknown},
	{"-fcompare-debug", joined, hereDumps, unknown},
	{"-fcondition-coverage", alone, hereCoverage, unknown},
	{"-fcoverage-", joined, unknown, hereCoverage},
	{"-fcrash-diagnostics-dir=", joined, unknown, both},
	{"-fcreate-profile", alone, unknown, hereProfile},
	{"-fcs-profile-", joined, unknown, hereProfile},
	{"-fcxx-modules", alone, unknown, hereModules},
	{"-fdbg-cnt", joined, hereMessages, unknown},
	{"-fdebug-compilation-dir", separate, unknown, compDirWord},
	{"-fdebug-compilation-dir=", joined, unknown, compDir},
	{"-fdebug-cpp", alone, hereMessages, unknown},
	{"-fdebug-info-for-profiling", alone, unknown, hereProfile},
	{"-fdebug-macro", alone, unknown, hereSideFile},
	{"-fdeps-", joined, hereSideFile, unknown},
	{"-fdiagnostics-add-output=", joined, hereSideFile, unknown},
	{"-fdiagnostics-format=", joined, hereSideFile, both},
	{"-fdiagnostics-format=json", alone, both, both},
	{"-fdiagnostics-format=json-stderr", alone, both, both},
	{"-fdiagnostics-format=sarif-stderr", alone, both, both},
	{"-fdiagnostics-format=text", alone, both, both},
	{"-fdiagnostics-set-output=", joined, hereSideFile, unknown},
	{"-fdirectives-only", alone, hereComments, unknown},
	{"-fdisable-", joined, hereMessages, hereMessages},
	{"-fdump-", joined, hereDumps, hereDumps},
	{"-fembed-", joined, hereInputFile, hereCommandLine},
	{"-femit-struct-debug-detailed=", joined, both, both},
	{"-fenable-", joined, hereMessages, hereMessages},
	{"-fenable-matrix", alone, unknown, both},
	{"-ffile-compilation-dir=", joined, unknown, compDir},
	{"-ffixed-", joined, both, both},
	{"-fhelp", joined, isQuery, isQuery},
	{"-fimplicit-module", joined, unknown, hereModules},
	{"-finline-limit-", joined, both, both},
	{"-finput-charset=", joined, preproc, preproc},
	{"-fira-verbose=", joined, hereMessages, unknown},
	{"-flang-info-", joined, hereMessages, unknown},
	{"-flto", joined, lto, lto},
	{"-fmacro-prefix-map=", joined, both, macro},
	{"-fmem-report", joined, hereMessages, unknown},
	{"-fmemory-profile", joined, unknown, hereProfile},
	{"-fminimize-whitespace", alone, unknown, hereComments},
	{"-fmodule-", joined, hereModules, hereModules},
	{"-fmodules", joined, hereModules, hereModules},
	{"-fno-builtin-", joined, both, both},
	{"-fno-rtlib-add-rpath", alone, unknown, linker},
	{"-fno-sanitize=", joined, both, both},
	{"-fno-use-linker-plugin", alone, linker, linker},
	{"-fno-working-directory", alone, compileOn, unknown},
	{"-fopt-info", joined, hereMessages, unknown},
	{"-foptimization-record-", joined, hereSideFile, hereSideFile},
	{"-forder-file-instrumentation", alone, unknown, hereProfile},
	{"-fpass-plugin", joined, unknown, herePlugin},
	{"-fpath-coverage", alone, hereCoverage, unknown},
	{"-fpch-", joined, herePCH, herePCH},
	{"-fplugin", joined, herePlugin, herePlugin},
	{"-fpost-ipa-mem-report", alone, hereMessages, unknown},
	{"-fpre-include=", joined, preproc, unknown},
	{"-fpre-ipa-mem-report", alone, hereMessages, unknown},
	{"-fprebuilt-", joined, unknown, hereModules},
	{"-fpreprocessed", alone, hereComments, unknown},
	{"-fproc-stat-report", joined, unknown, hereMessages},
	{"-fprofile", joined, hereProfile, hereProfile},
	{"-fprofile-arcs", alone, hereCoverage, hereCoverage},
	{"-fpseudo-probe-for-profiling", alone, unknown, hereProfile},
	{"-frandom-seed", joined, both, both},
	{"-frecord-command-line", alone, hereCommandLine, hereCommandLine},
	{"-frecord-gcc-switches", alone, hereCommandLine, hereCommandLine},
	{"-frepo", alone, hereSideFile, unknown},
	{"-freport-bug", alone, hereMessages, unknown},
	{"-frewrite-includes", alone, unknown, hereComments},
	{"-frtlib-add-rpath", alone, unknown, linker},
	{"-fsanitize-blacklist=", joined, unknown, hereInputFile},
	{"-fsanitize-coverage-allowlist=", joined, unknown, hereInputFile},
	{"-fsanitize-coverage-blacklist=", joined, unknown, hereInputFile},
	{"-fsanitize-coverage-ignorelist=", joined, unknown, hereInputFile},
	{"-fsanitize-coverage-whitelist=", joined, unknown, hereInputFile},
	{"-fsanitize-coverage=", joined, sanitize, sanitize},
	{"-fsanitize-ignorelist=", joined, unknown, hereInputFile},
	{"-fsanitize-system-", joined, unknown, hereInputFile},
	{"-fsanitize=", joined, sanitize, sanitize},
	{"-fsave-optimization-record", joined, hereSideFile, hereSideFile},
	{"-fsched-verbose=", joined, hereMessages, unknown},
	{"-fself-test=", joined, isQuery, unknown},
	{"-fshow-skipped-includes", alone, unknown, hereMessages},
	{"-fstack-usage", alone, stackUsage, hereSideFile},
	{"-fstats", alone, hereMessages, unknown},
	{"-fsyntax-only", alone, hereSyntaxOnly, hereSyntaxOnly},
	{"-fsystem-module", alone, unknown, hereModules},
	{"-ftemplate-depth-", joined, both, both},
	{"-ftest-coverage", alone, hereCoverage, hereCoverage},
	{"-fthin", joined, unknown, hereInputFile},
	{"-ftime-", joined, hereMessages, hereSideFile},
	{"-fuse-ld=", joined, linker, linker},
	{"-fuse-line-directives", alone, unknown, hereComments},
	{"-fuse-linker-plugin", alone, linker, linker},
	{"-fverbose-asm", alone, hereCommandLine, hereCommandLine},
	{"-fversion", alone, isQuery, unknown},
	{"-fvtable-verify=", joined, hereSideFile, unknown},
	{"-fvtv-", joined, hereSideFile, unknown},
	{"-fworking-directory", alone, compileOn, unknown},
	{"-fxray-always-instrument=", joined, unknown, hereInputFile},
	{"-fxray-attr-list=", joined, unknown, hereInputFile},
	{"-fxray-never-instrument=", joined, unknown, hereInputFile},
	{"-g", alone, debug, debug},
	{"-g0", alone, debug, debug},
	{"-g1", alone, debug, debug},
	{"-g2", alone, debug, debug},
	{"-g3", alone, debug, debug},
	{"-gas-loc", joined, debug, unknown},
	{"-gbtf", alone, debug, unknown},
	{"-gcodeview", joined, debug, debug},
	{"-gcolumn-info", alone, debug, debug},
	{"-gctf", joined, debug, unknown},
	{"-gdbx", alone, unknown, debug},
	{"-gdescribe-dies", alone, debug, unknown},
	{"-gdwarf", joined, debug, debug},
	{"-gembed-source", alone, unknown, hereInputFile},
	{"-gen-decls", alone, hereSideFile, unknown},
	{"-ggdb", joined, debug, debug},
	{"-ggnu-pubnames", alone, debug, debug},
	{"-ginline-points", alone, debug, unknown},
	{"-ginternal-reset-location-views", alone, debug, unknown},
	{"-gkey-instructions", alone, unknown, debug},
	{"-gline-", joined, unknown, debug},
	{"-glldb", alone, unknown, debug},
	{"-gmodules", alone, unknown, hereModules},
	{"-gno-", joined, debug, debug},
	{"-gprune-btf", alone, debug, unknown},
	{"-gpubnames", alone, debug, debug},
	{"-grecord-command-line", alone, hereCommandLine, hereCommandLine},
	{"-grecord-gcc-switches", alone, debug, hereCommandLine},
	{"-gsimple-template-names", joined, unknown, debug},
	{"-gsplit-dwarf", joined, hereSplitDwarf, hereSplitDwarf},
	{"-gstabs", joined, debug, unknown},
	{"-gstatement-frontiers", alone, debug, unknown},
	{"-gstrict-dwarf", alone, debug, debug},
	{"-gtemplate-alias", alone, unknown, debug},
	{"-gtoggle", alone, debug, unknown},
	{"-gvariable-location-views", joined, debug, unknown},
	{"-gvms", joined, debug, unknown},
	{"-gz", joined, debug, debug},
	{"-h", separate, linker, linker},
	{"-help", joined, isQuery, isQuery},
	{"-ibuiltininc", alone, unknown, preproc},
	{"-idirafter", either, preproc, preproc},
	{"-iframework", either, preproc, preproc},
	{"-iframeworkwithsysroot", either, unknown, preproc},
	{"-imacros", either, preproc, preproc},
	{"-imultiarch", separate, preproc, unknown},
	{"-imultilib", separate, preproc, unknown},
	{"-include", either, preproc, preproc},
	{"-include-pch", separate, unknown, herePCH},
	{"-index-", joined, unknown, hereSideFile},
	{"-integrated-as", alone, unknown, both},
	{"-iplugindir=", joined, herePlugin, herePlugin},
	{"-iprefix", either, preproc, preproc},
	{"-iquote", either, preproc, preproc},
	{"-isysroot", either, preproc, preproc},
	{"-isystem", either, preproc, preproc},
	{"-isystem-after", either, unknown, preproc},
	{"-ivfsoverlay", either, unknown, preproc},
	{"-iwithprefix", either, preproc, preproc},
	{"-iwithprefixbefore", either, preproc, preproc},
	{"-iwithsysroot", either, unknown, preproc},
	{"-l", either, linker, linker},
	{"-m16", alone, both, both},
	{"-march=", joined, arch, arch},
	{"-mcpu=", joined, arch, arch},
	{"-mdump-tune-features", alone, hereMessages, unknown},
	{"-mtune=", joined, arch, arch},
	{"-n", alone, linker, linker},
	{"-no-canonical-prefixes", alone, preproc, preproc},
	{"-no-integrated-as", alone, unknown, both},
	{"-no-integrated-cpp", alone, hereToolPath, hereToolPath},
	{"-no-pie", alone, linker, linker},
	{"-nobuiltininc", alone, unknown, preproc},
	{"-nodefaultlibs", alone, linker, linker},
	{"-nolibc", alone, linker, linker},
	{"-nostartfiles", alone, linker, linker},
	{"-nostdinc", alone, preproc, preproc},
	{"-nostdinc++", alone, preproc, preproc},
	{"-nostdlib", alone, linker, linker},
	{"-nostdlib++", alone, linker, linker},
	{"-nostdlibinc", alone, unknown, preproc},
	{"-o", either, output, output},
	{"-p", alone, both, both},
	{"-pass-exit-codes", alone, drop, preproc},
	{"-pedantic", alone, both, both},
	{"-pedantic-errors", alone, both, both},
	{"-pg", alone, both, both},
	{"-pie", alone, linker, linker},
	{"-pipe", alone, drop, both},
	{"-print-", joined, isQuery, isQuery},
	{"-pthread", alone, both, both},
	{"-r", alone, linker, linker},
	{"-rdynamic", alone, linker, linker},
	{"-remap", alone, preproc, unknown},
	{"-resource-dir", joined, unknown, hereToolPath},
	{"-rpath", separate, unknown, linker},
	{"-rtlib=", joined, unknown, linker},
	{"-s", alone, linker, linker},
	{"-save-stats", joined, unknown, hereSideFile},
	{"-save-temps", joined, hereSaveTemps, hereSaveTemps},
	{"-serialize-diagnostics", joined, unknown, hereSideFile},
	{"-shared", alone, linker, linker},
	{"-shared-libasan", alone, unknown, linker},
	{"-shared-libgcc", alone, linker, linker},
	{"-shared-libsan", alone, unknown, linker},
	{"-specs", joined, hereSpecs, hereSpecs},
	{"-static", alone, linker, linker},
	{"-static-libasan", alone, linker, unknown},
	{"-static-libgcc", alone, linker, linker},
	{"-static-liblsan", alone, linker, unknown},
	{"-static-libsan", alone, unknown, linker},
	{"-static-libstdc++", alone, linker, linker},
	{"-static-libtsan", alone, linker, unknown},
	{"-static-libubsan", alone, linker, unknown},
	{"-static-openmp", alone, unknown, linker},
	{"-static-pie", alone, linker, linker},
	{"-std=", joined, both, both},
	{"-stdlib++-isystem", either, unknown, preproc},
	{"-stdlib=", joined, preproc, preproc},
	{"-symbolic", alone, linker, linker},
	{"-t", alone, linker, linker},
	{"-target", separate, unknown, both},
	{"-time", joined, hereMessages, hereMessages},
	{"-traditional", alone, plainText, plainText},
	{"-traditional-cpp", alone, plainText, plainText},
	{"-trigraphs", alone, both, both},
	{"-u", either, linker, linker},
	{"-undef", alone, both, preproc},
	{"-unwindlib=", joined, unknown, linker},
	{"-v", alone, isQuery, isQuery},
	{"-via-file-asm", alone, unknown, hereToolPath},
	{"-w", alone, both, both},
	{"-working-directory", joined, unknown, hereToolPath},
	{"-wrapper", separate, hereToolPath, unknown},
	{"-x", either, language, language},
	{"-z", separate, linker, linker},
}
