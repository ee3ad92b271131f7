package compile

import "strings"

// value says what an option's argument may be where the command runs on another machine. It
// holds on both sides: what does not fit is compiled here, and refused by a host that gets it
// anyway. Options that keep a command here have never; options without an argument have none.
type value uint8

const (
	none         value = iota // there is none
	never                     // the option keeps a command here
	word                      // a compiler's name, or several: haswell, address,undefined
	number                    // numbers with their units and separators: 16,16
	level                     // of optimization: 2, s, fast
	ident                     // a symbol of the program
	setting                   // NAME=VALUE of --param
	exact                     // the option with its value is in listedFlags
	seed                      // of -frandom-seed: nothing, or any text after "="
	optInfoWords              // of -fopt-info: names of passes, and a file after "="
	flagValue                 // of a flag in flags.go, depending on its name
	warningName               // after -W
	judged                    // words for another program, which are examined one by one
	text                      // any text
	macroText                 // the same, for a macro: it ends at the first newline
	pathText                  // paths that are compared with others or written into the object, but never opened
	path                      // of a file or a directory: in the sources form it is the job's own
)

// Bounds, in bytes.
const (
	maxWord = 256
	maxPath = 4096
	maxText = 64 << 10
)

// Bytes that a value may consist of.
const (
	digitBytes  = "0123456789"
	letterBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	wordBytes   = letterBytes + digitBytes + "_+.,:;=%^!~*-"
	numberBytes = digitBytes + "abcdefABCDEFxXkKMGTPiB,:+-"
	identBytes  = letterBytes + digitBytes + "_$.@?"
)

// onlyOf reports whether all bytes of s are in set, and s is not longer than limit.
func onlyOf(s, set string, limit int) bool {
	if len(s) > limit {
		return false
	}
	for i := 0; i < len(s); i++ {
		if strings.IndexByte(set, s[i]) < 0 {
			return false
		}
	}
	return true
}

// plain reports whether s has no control characters, and is not longer than limit. s need not
// be UTF-8: file names are not, and compilers take them as they are.
func plain(s string, limit int) bool {
	if len(s) > limit {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// fits reports whether an option may have a value. w is its first word; arg is the value,
// which is in w or is the next word.
func (v value) fits(w, arg string) bool {
	switch v {
	case none, never:
		return plain(w, maxWord)
	case word:
		return onlyOf(arg, wordBytes, maxWord)
	case number:
		return isNumber(arg)
	case level:
		return arg == "" || arg == "fast" || arg == "s" || arg == "g" || arg == "z" || onlyOf(arg, digitBytes, 9)
	case ident:
		return onlyOf(arg, identBytes, maxWord)
	case setting:
		name, value, ok := strings.Cut(strings.TrimPrefix(arg, "="), "=")
		return ok && onlyOf(name, letterBytes+digitBytes+"_.-", maxWord) && onlyOf(value, letterBytes+digitBytes+"_.+-", maxWord)
	case exact:
		return isListed(w[1:])
	case seed:
		return arg == "" || arg[0] == '=' && plain(arg, maxText)
	case optInfoWords:
		passes, file, _ := strings.Cut(arg, "=")
		return onlyOf(passes, "abcdefghijklmnopqrstuvwxyz-", maxWord) && plain(file, maxPath)
	case flagValue:
		return flagFits(w)
	case warningName:
		return onlyOf(w, wordBytes+"#", maxWord)
	case macroText:
		return plain(macroBlanks.Replace(arg), maxText)
	case path:
		return len(arg) <= maxPath // file names may have any byte, even newlines
	}
	return plain(arg, maxText) // judged, text, pathText
}

// macroBlanks replaces control characters that a macro's definition may have. Compilers cut it
// off at a newline ("the definition is truncated by embedded newline characters") wherever they
// run.
var macroBlanks = strings.NewReplacer("\t", " ", "\n", " ")

// isNumber reports whether s is a number as compilers read them, of at most 20 digits.
func isNumber(s string) bool {
	if !onlyOf(s, numberBytes, maxWord) || s != "" && strings.IndexByte(digitBytes+"+-", s[0]) < 0 {
		return false
	}
	run := 0
	for i := 0; i < len(s); i++ {
		if run++; s[i] < '0' || s[i] > '9' {
			run = 0
		}
		if run > 20 {
			return false
		}
	}
	return true
}

// flagFits checks the value of a code generation flag; w is the whole word.
func flagFits(w string) bool {
	name, arg, valued := strings.Cut(w, "=")
	if !valued {
		return plain(w, maxWord)
	}
	switch name {
	case "-fdebug-prefix-map", "-ffile-prefix-map", "-fmacro-prefix-map", "-finstrument-functions-exclude-file-list",
		"-finstrument-functions-exclude-function-list", "-frandom-seed":
		return plain(arg, maxText)
	case "-mstack-protector-guard-symbol", "-mfentry-name", "-fstack-limit-symbol", "-fconst-string-class", "-fconstant-string-class", "-fsymbol-partition":
		return onlyOf(arg, identBytes, maxWord)
	}
	if inList(numbered, name[1:]) {
		return isNumber(arg)
	}
	return onlyOf(arg, wordBytes, maxWord)
}

// numbered lists the flags of flags.go whose values are numbers, without their hyphen, sorted.
// The values of the others are names.
const numbered = "" +
	" fabi-compat-version fabi-version falign-functions falign-jumps falign-labels falign-loops faligned-new falloc-token-max fanalyzer-verbosity" +
	" fasan-shadow-offset fbracket-depth fcaret-diagnostics-max-lines fconcepts-diagnostics-depth fconstexpr-backtrace-limit" +
	" fconstexpr-cache-depth fconstexpr-depth fconstexpr-loop-limit fconstexpr-ops-limit fconstexpr-steps fdebug-default-version" +
	" fdiagnostics-column-origin fdiagnostics-minimum-margin-width fdiagnostics-show-context ferror-limit finline-limit finline-max-stacksize flifetime-dse" +
	" fmacro-backtrace-limit fmax-errors fmax-include-depth fmax-tokens fmax-type-align fmcdc-max-conditions fmcdc-max-test-vectors" +
	" fmessage-length fmin-function-alignment fnew-alignment foperator-arrow-depth fpack-struct fpatchable-function-entry fpath-coverage-limit" +
	" fsanitize-coverage-stack-depth-callback-min fsanitize-undefined-strip-path-components fsched-stalled-insns fsched-stalled-insns-dep fspell-checking-limit ftabstop" +
	" ftemplate-backtrace-limit ftemplate-depth ftrack-macro-expansion ftree-parallelize-loops ftree-vectorizer-verbose" +
	" ftrivial-auto-var-init-max-size ftrivial-auto-var-init-stop-after fxray-instruction-threshold malign-branch-boundary" +
	" malign-functions malign-jumps malign-loops mblock-compare-inline-limit mblock-move-inline-limit mbranch-cost" +
	" mincoming-stack-boundary mlarge-data-threshold mpad-max-prefix-size mpreferred-stack-boundary mregparm msmall-data-limit" +
	" mstack-alignment mstack-probe-size mstack-size mwarn-framesize" + " "

// isListed looks up a word without its hyphen in listedFlags. A name may follow its "=".
func isListed(w string) bool {
	if i := strings.IndexByte(w, '='); i >= 0 {
		return inList(listedFlags, w[:i+1]) && onlyOf(w[i+1:], wordBytes, maxWord)
	}
	return inList(listedFlags, w)
}

// listedFlags lists all accepted words for those options that share a prefix, sorted.
const listedFlags = "" +
	" flto flto-compression-level= flto-jobs= flto-odr-type-merging flto-partition= flto-report flto-report-wpa flto-unit" +
	" flto-visibility-public-std flto= fsave-optimization-record fsave-optimization-record= gas-loc-support gas-locview-support" +
	" gcodeview gcodeview-ghash gctf gctf0 gctf1 gctf2 gdwarf gdwarf-2 gdwarf-3 gdwarf-4 gdwarf-5 gdwarf-aranges gdwarf32 gdwarf64 ggdb" +
	" ggdb0 ggdb1 ggdb2 ggdb3 gline-directives-only gline-tables-only gno-as-loc-support gno-as-locview-support" +
	" gno-codeview-command-line gno-codeview-ghash gno-column-info gno-describe-dies gno-embed-source gno-gnu-pubnames" +
	" gno-inline-line-tables gno-inline-points gno-internal-reset-location-views gno-key-instructions gno-modules gno-prune-btf" +
	" gno-pubnames gno-record-command-line gno-record-gcc-switches gno-simple-template-names gno-split-dwarf gno-statement-frontiers" +
	" gno-strict-dwarf gno-template-alias gno-toggle gno-variable-location-views gsimple-template-names gsimple-template-names=" +
	" gsplit-dwarf gsplit-dwarf= gstabs gstabs+ gstabs0 gstabs1 gstabs2 gstabs3 gvariable-location-views gvariable-location-views= gvms" +
	" gvms0 gvms1 gvms2 gvms3 gz gz= save-temps save-temps=" + " "
