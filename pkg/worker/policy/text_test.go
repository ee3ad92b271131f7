package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/compile"
)

var (
	gcc12   = Compiler{Family: "gcc", Major: 12}
	clang14 = Compiler{Family: "clang", Major: 14}
)

func policyBody(args ...string) *job.Body {
	return &job.Body{Args: args, Language: "c", Name: "a.c", Outputs: []unit.Output{{Kind: unit.OutputObject, Name: "a.o"}}}
}

func wantRefused(t *testing.T, err error, what any) {
	t.Helper()
	var r *job.Refusal
	if !errors.As(err, &r) || r.Cause != job.CausePolicy {
		t.Errorf("%q: error is %v, want a refusal by policy", what, err)
	}
}

// What loads code, names a file, or writes one that is not declared.
func TestHostileArguments(t *testing.T) {
	for _, list := range []string{
		"@/etc/passwd", "@file", "/etc/passwd", "other.c", "-", "-wrapper sh,-c,id", "-fplugin=/tmp/x.so", "-fplugin=x",
		"-specs=/tmp/x", "--specs=x", "-specs x", "-B/tmp", "-B /tmp", "-Bx", "-o /tmp/x", "-o x", "--output=x", "-MD", "-MF x", "-MMD",
		"-Wp,-MD,x", "-Wp,-include,/etc/passwd", "-Wa,-a=x", "-Wa,-al=/tmp/x", "-Wa,@x", "-Wa,-I/tmp", "-Xassembler -a=x", "-Xpreprocessor -MD",
		"-aux-info x", "-fdump-tree-all", "-fdump-tree-all=/tmp/x", "-save-temps", "-dumpdir /tmp/", "-fcallgraph-info", "-include /etc/passwd",
		"-imacros /etc/passwd", "-isystem /etc", "-I/etc", "-iquote .", "--sysroot=/", "-fmodule-mapper=|id", "-fmodules-ts", "-fprofile-use=/x",
		"-fprofile-generate", "--coverage", "-ftest-coverage", "-fauto-profile=x", "-Xclang -load", "-Xclang -load -Xclang x.so", "-mllvm -load=x",
		"-cc1", "-fpass-plugin=x.so", "-E", "-M", "-###", "--version", "-v", "-x c", "-c", "-S", "-fsyntax-only", "-march=native", "-mtune=native",
		"-fsanitize-ignorelist=x", "-fcrash-diagnostics-dir=/x", "-ftime-trace", "-gsplit-dwarf", "--param", "-fopt-info-all=x",
		"-fdebug-prefix-map", "-T x", "-L/tmp", "-lfoo",
		// The daemon's own words follow; these would undo them, or make more of them.
		"-o a -o b", "-x none", "-x c-header", "-S -c", "-c -E", "--help", "-fhelp", "-dumpbase x", "-dumpdir x", "-dumpbase-ext .x", "-foffload=x", "-fuse-ld=/x",
		"-fno-preprocessed", "-fpreprocessed", "-fpch-preprocess", "-no-canonical-prefixes", "--", "-Wp,-DX",
		// Values.
		"-mllvm -x86-lvi-load-opt-plugin=a.so", "-Wa,--defsym,@a.c", "-Wa,--defsym -Wa,@a.c", "-Wa,-march=x,@a.c", "-mtune=@a.c", "-std=/x", "-O@a.c", "-ggdb/x", "-gz=/x",
		"-fsanitize=/x", "-fvisibility=a/b", "-fexec-charset=/x", "-fcrash-diagnostics-dir=..", "-fcrash-diagnostics-dir=x", "-W/etc/passwd", "-Wno-/", "--param=x/y=1",
		"-march=a\nb", "-fno-builtin-/x", "-ffile-prefix-map=\x01=x", "-Xclang -fplugin", "-Xclang -W/x", "-Xclang -target-feature -Xclang @x", "-mcpu=../x", "--target=../../x",
		"-Xclang -plugin-arg-x", "-Xclang -ast-dump", "-Xclang -emit-pch", "-Xclang -code-completion-at=x:1:1", "-mllvm -stats", "-mllvm -info-output-file=x", "-mllvm -print-after-all",
	} {
		for _, tc := range []Compiler{gcc12, clang14} {
			words := strings.Fields(list)
			for i := range words {
				words[i] = strings.NewReplacer(`\n`, "\n", `\x01`, "\x01").Replace(words[i])
			}
			wantRefused(t, Text(policyBody(words...), tc, nil), list)
		}
	}
}

func TestHonestArguments(t *testing.T) {
	for _, list := range []string{
		"", "-O2", "-O2 -g -Wall -Wextra -Werror -std=c11 -fPIC -pthread -fno-strict-aliasing -march=x86-64-v3 -mtune=generic",
		"-O3 -fvisibility=hidden -ffunction-sections -fdata-sections -fstack-protector-strong",
		"-ffile-prefix-map=/src/x=/y", "-fdebug-prefix-map=/a=/b", "-w", "-pedantic",
	} {
		for _, tc := range []Compiler{gcc12, clang14} {
			// The wrapper's own far half of the command, as it would come here.
			d := compile.Driver{Family: compile.GCC}
			if tc.Family == "clang" {
				d.Family = compile.Clang
			}
			p := compile.Parse(append(strings.Fields(list), "-c", "a.c"), d, nil)
			if p.Local {
				t.Fatalf("%s %q stays at home: %s", tc.Family, list, p.Reason)
			}
			b := policyBody()
			b.Args, b.Language = p.Remote(tc.Major, "/home/user/src")
			if err := Text(b, tc, nil); err != nil {
				t.Errorf("%s %q: %v", tc.Family, b.Args, err)
			}
		}
	}
}

// TestUnlistedWords: a word that the tables lack passes if the compiler takes it for a flag.
func TestUnlistedWords(t *testing.T) {
	b := policyBody()
	b.Args = []string{"-fpreprocessed", "-fdirectives-only", "-mno-avx999", "-O2"}
	wantRefused(t, Text(b, gcc12, nil), "a word of which nothing is known")
	var asked string
	tc := gcc12
	tc.Flag = func(word string) bool { asked = word; return true }
	if err := Text(b, tc, nil); err != nil || asked != "-mno-avx999" {
		t.Errorf("%v, asked about %q", err, asked)
	}
	tc.Flag = func(string) bool { return false }
	wantRefused(t, Text(b, tc, nil), "a word that the compiler does not know")
}

func TestBodyNamesAndKinds(t *testing.T) {
	b := policyBody()
	for _, name := range []string{"-o", "@list"} {
		b.Name = name
		wantRefused(t, Text(b, gcc12, nil), name)
	}
	b = policyBody()
	for _, lang := range []string{"", "assembler", "assembler-with-cpp", "none", "c-header", "ada", "c -E"} {
		b.Language = lang
		wantRefused(t, Text(b, gcc12, nil), lang)
	}
	b = policyBody()
	b.Outputs = nil
	if err := Text(b, gcc12, nil); err == nil {
		t.Error("a compile without an output is taken")
	}
	b = policyBody()
	b.Outputs = append(b.Outputs, unit.Output{Kind: unit.OutputObject, Name: "b.o"})
	if err := Text(b, gcc12, nil); err == nil {
		t.Error("two objects of one compile are taken")
	}
}

// TestTextIsNoPrecompiledHeader: gcc would take what the word names for its own memory.
func TestTextIsNoPrecompiledHeader(t *testing.T) {
	text := []byte("#pragma GCC pch_preprocess \"a.c\"\nint x;\n")
	wantRefused(t, Text(policyBody(), gcc12, text), text)
	if err := Text(policyBody(), clang14, text); err != nil {
		t.Errorf("clang does not know the word: %v", err)
	}
	b := sourcesBody(treeTools[0], "-c", "a.i")
	b.Files[0] = unit.File{Name: "a.i", Len: uint64(len(text))}
	wantRefused(t, checked(b, treeTools[0], text), text)
}

func TestVariablesWithText(t *testing.T) {
	good := []string{"LANG=de_DE.UTF-8", "LANGUAGE=de:en", "LC_ALL=C.UTF-8", "SOURCE_DATE_EPOCH=1700000000"}
	if env, err := TextVariables(good); err != nil || !slices.Equal(env, good) {
		t.Errorf("variables = %q, %v; want %q", env, err, good)
	}
	if env, err := TextVariables(good[3:]); err != nil || !slices.Equal(env, []string{good[3], "LC_ALL=C"}) {
		t.Errorf("variables = %q, %v; want a language", env, err)
	}
	for _, e := range []string{"LD_PRELOAD=x", "GCC_EXEC_PREFIX=/", "COMPILER_PATH=/", "PATH=/x", "TMPDIR=/", "SOURCE_DATE_EPOCH=",
		"SOURCE_DATE_EPOCH=1x", "LC_ALL=../x", "LC_ALL=/x", "LANG=/x", "LC_=C", "LC_x=C", "", "DEPENDENCIES_OUTPUT=x", "GCONV_PATH=/x"} {
		_, err := TextVariables([]string{e})
		wantRefused(t, err, e)
	}
}
