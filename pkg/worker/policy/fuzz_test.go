package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/compile"
)

// dangerous are beginnings of words that run or load something, choose what is run,
// or make the compiler do something else than to compile, in any form.
var dangerous = strings.Fields(`@ -B --prefix -wrapper --wrapper -specs --specs -fplugin -iplugindir -fpass-plugin -fmodule-mapper --gcc-toolchain -gcc-toolchain
	--gcc-install-dir -ccc- --config -load -cc1 -Wa,@ -Wp,@ -M --help --version -v -### -dump -emit-pch -include-pch -fmodule -fmodules -fpch-p -fpch-d
	-fprebuilt -resource-dir -working-directory -no-integrated-cpp -fself-test --completion --autocomplete -time -Q -fdump -save-stats -fcompare-debug -repo
	-x=none -fdirectives-only -fpreprocessed --driver-mode -print -V -b -aux-target -mrelax-dump -plugin -add-plugin -ivfsoverlay --vfsoverlay -arch --analyze`)

// harmless begin so, and are something else.
var harmless = strings.Fields(`-MD -MMD -MP -MF -MT -MQ -MG -MV -EB -EL -mbranch -fmodule-private -fno-module -fmodulo-sched -fmodulo -print-x -vectorize -fdump-x -Qunused-arguments -Qn -Qy -time-x
	-fdump-tree-gimple= -fdump-tree-optimized= -fdump-tree-original=`)

// inText are words that never go with text, as they name a file there.
var inText = strings.Fields("-o -I -D -U -include -imacros -isystem -iquote -idirafter -L -l -T -MF -MD -MMD -MT -MQ -isysroot --sysroot -x -c -S -aux-info --coverage -fprofile -ftest-coverage -save-temps -fdump -E -fsyntax-only -Wp, -Wl, -Xlinker -Xpreprocessor")

// judge says what is wrong with words that were accepted.
func judge(args []string, text bool) string {
	for i, w := range args {
		if text && strings.ContainsAny(w, "\x00\n\r\x1b\x7f") {
			return "a control character"
		}
		behind := i > 0 && slices.Contains([]string{"-D", "-U", "-A", "-MT", "-MQ", "-I", "-o", "-include", "-imacros", "-isystem", "-iquote", "-idirafter", "-MF", "-l", "-L", "-u", "-e", "-z",
			"-Xlinker", "-T", "-x", "-h", "-rpath", "-F", "-Tbss", "-Tdata", "-Ttext", "-isysroot", "-iprefix", "-iwithprefix", "-iwithprefixbefore", "-imultiarch", "-imultilib", "-aux-info",
			"--param", "-Xclang", "-mllvm", "-Xassembler", "-Xpreprocessor", "-target", "-undefined", "--for-linker", "--for-assembler", "-cxx-isystem", "-iframework", "-stdlib++-isystem",
			"-isystem-after", "-serialize-diagnostics", "--serialize-diagnostics", "-fdebug-compilation-dir", "-mthread-model", "-ftrapv-handler", "-iframeworkwithsysroot", "-iwithsysroot"}, args[i-1]) ||
			i > 0 && strings.HasPrefix(args[i-1], "--")
		for _, d := range dangerous {
			if strings.HasPrefix(w, d) && (d == "@" || !behind && !slices.ContainsFunc(harmless, func(h string) bool { return strings.HasPrefix(w, h) })) {
				return d
			}
		}
		if i > 0 && (args[i-1] == "-Xclang" || args[i-1] == "-mllvm") {
			for _, d := range loadOptions {
				if strings.HasPrefix(strings.TrimLeft(w, "-"), d) || strings.Contains(w, "plugin") {
					return args[i-1] + " " + d
				}
			}
		}
		if !text {
			continue
		}
		for _, d := range inText {
			if strings.HasPrefix(w, d) && !behind && !(d == "-T" || d == "-o" || d == "-x" || d == "-S" || d == "-c" || d == "-D" || d == "-U") {
				return d
			}
			if w == d {
				return d
			}
		}
		if w != "" && w[0] != '-' && !behind {
			return "a file"
		}
	}
	return ""
}

// FuzzPolicy: no list makes the check panic, and none that it takes has a word that is
// known to be dangerous. Words are separated by NUL.
func FuzzPolicy(f *testing.F) {
	for _, s := range []string{
		"-O2\x00-g\x00-Wall", "@a.c", "-Wa,--defsym,@a.c", "-Xassembler\x00--defsym\x00-Xassembler\x00@x", "-mllvm\x00-x86-lvi-load-opt-plugin=a.so", "-wrapper\x00sh,-c,id", "-specs=a.c",
		"-fplugin=./a.c", "-B.", "-Xclang\x00-load\x00-Xclang\x00a.so", "-fmodule-mapper=|id", "-D\x00@x", "-I@x", "-include\x00config.h", "-o\x00@x.o", "--config\x00x", "-ffile-prefix-map=/a=/b",
		"-fno-fplugin=x", "-Wp,-MD,@x", "--param\x00@x", "-target\x00../x", "-march=native", "-x\x00none", "-E", "-v", "-###", "-fdump-tree-all=/x", "-fdump-tree-gimple=/x", "-frandom-seed=@x", "-MD\x00-MT\x00@x", "-target\x00",
	} {
		f.Add(s, byte(0))
		f.Add(s, byte(7))
	}
	f.Fuzz(func(t *testing.T, words string, how byte) {
		args := strings.Split(words, "\x00")
		if how&1 == 0 {
			b := policyBody(args...)
			tc := gcc12
			if how&2 != 0 {
				tc = clang14
			}
			if how&4 != 0 {
				b.Language = "cpp-output"
			}
			if Text(b, tc, nil) != nil {
				return
			}
			if what := judge(args, true); what != "" {
				t.Errorf("%s takes %q as text: %s", tc.Family, args, what)
			}
			return
		}
		tc := treeTools[how>>1&1]
		args = append(args, "-c", "a.c")
		d, _ := compile.DriverOf(tc.Exec, tc.Path)
		p := compile.Parse(args, d, nil)
		b := &job.Body{
			Argv0: tc.Exec, Compiler: tc.Path, Args: args, Language: "c", Name: "a.c", Cwd: "/src", Outputs: p.Outputs,
			Files: []unit.File{{Name: "a.c", Len: 3}},
		}
		if _, err := Sources(b, tc, [][]byte{three}); err != nil {
			return
		}
		if what := judge(args, false); what != "" {
			t.Errorf("%s takes %q as sources: %s", tc.Family, args, what)
		}
	})
}
