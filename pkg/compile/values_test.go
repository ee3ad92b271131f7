package compile

import (
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/reason"
)

// TestListsAreSorted: they are searched by halving.
func TestListsAreSorted(t *testing.T) {
	for _, list := range []string{numbered, listedFlags, llvmFlags, negatives} {
		if names := strings.Fields(list); !slices.IsSorted(names) || list != " "+strings.Join(names, " ")+" " {
			t.Errorf("list is not sorted, or has two blanks: %.60q...", list)
		}
	}
	for _, name := range strings.Fields(numbered) {
		list := fFlags
		if name[0] == 'm' {
			list = mFlags
		}
		if !inList(list, name[1:]+"=") {
			t.Errorf("-%s= is no flag", name)
		}
	}
}

// TestEveryRowHasAValue: what may travel says what its value may be, and what takes
// none has no rule for one.
func TestEveryRowHasAValue(t *testing.T) {
	for _, rows := range [][]spec{table[:], longTable[:]} {
		for i := range rows {
			row := &rows[i]
			travels := func(c class) bool { return c != unknown && c < isQuery }
			switch {
			case row.form == alone && row.value != none:
				t.Errorf("%s takes no value, and has a rule for one", row.name)
			case row.form != alone && row.value == none:
				t.Errorf("%s takes a value, and has no rule", row.name)
			case row.form != alone && row.value == never && (travels(row.gcc) || travels(row.clang)):
				t.Errorf("%s travels, and has no rule for its value", row.name)
			}
		}
	}
}

// values are words of commands that may travel, and words that are like them and must
// not: each but for its value, or for a row that takes what begins so.
var valued = []struct{ family, good, bad string }{
	{"both", "-O -O0 -O2 -O3 -Os -Ofast -Og -O99", "-O/etc -O@x -Ox -Ofaster -O1234567890"},
	{"both", "-std=c11 -std=gnu++2a -std=iso9899:1990", "-std=/x -std=c11/ -std=a\x01"},
	{"both", "-fvisibility=hidden -ftls-model=initial-exec -fcf-protection=full -fstack-reuse=none", "-fvisibility=/x -ftls-model=a\nb -fcf-protection=|id"},
	{"both", "-falign-functions=32 -fpack-struct=8 -fmessage-length=0 -ftemplate-depth=900 -ftabstop=4 -mregparm=3",
		"-falign-functions=x -fpack-struct=/ -fmessage-length=123456789012345678901 -ftemplate-depth=$(id) -mregparm=zz"},
	{"both", "-ffile-prefix-map=/a=/b -fdebug-prefix-map=/with\x20blank=. -fmacro-prefix-map=./= -fdebug-prefix-map=/l\xe4tin=x", "-ffile-prefix-map=/a\n=/b -fdebug-prefix-map=\x7f"},
	{"both", "-frandom-seed=src/a.c -frandom-seed=0x12 -frandom-seed", "-frandom-seedx -frandom-seed=a\rb"},
	{"both", "-march=x86-64-v3 -mtune=generic -march=armv8.2-a+crc+crypto -march=rv64imafdc_zicsr", "-march=/x -mtune=@x -march=a|b"},
	{"both", "-fsanitize=address,undefined -fno-sanitize=vptr -fsanitize-recover=all", "-fsanitize=/x -fsanitize-recover=@l"},
	{"both", "-Wall -Wformat=2 -Wno-error=c++11-narrowing -Wframe-larger-than=2048 -Wno-attributes=vendor::attr -Wno-#warnings", "-W/x -Wall/ -Wno-error=/etc/passwd -Wx\ty"},
	{"both", "-g -g3 -ggdb3 -gdwarf-4 -gno-column-info -gz=zlib -gno-record-gcc-switches -gsplit-dwarf=split", "-gdwarf-x -ggdbx -gz/x -gno-such -gsplit-dwarf=/x -gdwarf-4=/x"},
	{"both", "-flto -flto=4 -flto=auto", "-flto-cache=/x -flto=/x -flto-incremental=x"},
	{"both", "-fno-builtin-memcpy -fno-builtin-printf -ffixed-x18 -fcall-used-r9", "-fno-builtin-/x -ffixed-a=b"},
	{"both", "-DX=1 -DX=\"a\x20b\" -DX(a)=a@b -D_FORTIFY_SOURCE=2 -UX -DT=a\tb -DX=a\nb -DX=\n -DX(a)=a\\\nb", "-DX=a\rb -DX=a\x00 -U\x01"},
	{"both", "-Iinc -I/usr/include/x -I.. -isystem=x -Ia\nb", "-I@x"},
	{"both", "-Wa,--noexecstack -Wa,-march=haswell -Wa,--defsym,A=1 -Wa,--defsym,A=-0x10+B -Wa,--compress-debug-sections=zlib",
		"-Wa,--defsym,@a.c -Wa,@a.c -Wa,-march=/x -Wa,-march=x,@a.c -Wa,--defsym,A=/ -Wa,a.s -Wa,-o,x -Wa,--MD,x -Wa,-mtune=@x"},
	{"both", "-Wp,-DX=1 -Wp,-MD,x.d", "-Wp,@x -Wp,-MD,@x -Wp,-MF,@x,-MD,y -Wp,-include,x"},
	{"both", "-fexec-charset=UTF-8 -fwide-exec-charset=UTF-32LE", "-fexec-charset=/tmp/x -fexec-charset=../x"},
	{"gcc", "--param=max-inline-insns-auto=3 -fabi-version=0 -fsso-struct=big-endian -fopt-info-loop-missed=x.txt -fzero-call-used-regs=used-gpr -fno-directives-only -fpatchable-function-entry=16,16",
		"--param=x --param=a/b=1 --param=x=@y -fabi-version=x"},
	{"clang", "-Rpass=.* --target=x86_64-linux-gnu -fcrash-diagnostics-dir=../../crash -fcomment-block-commands=foo,bar -ftrap-function=my_trap -fsanitize-coverage=trace-pc-guard",
		"--target=/x --target=../x -ftrap-function=a/b"},
}

func TestValues(t *testing.T) {
	for _, c := range valued {
		for _, f := range []struct {
			name string
			d    Driver
		}{{"gcc", Driver{Family: GCC}}, {"clang", Driver{Family: Clang}}} {
			if c.family != "both" && c.family != f.name {
				continue
			}
			for _, w := range strings.Split(c.good, " ") {
				w = strings.ReplaceAll(w, "\\x20", " ")
				if f.name == "clang" && slices.Contains([]string{"-fopt-info", "-isystem=x", "-fno-directives-only", "-fsanitize-recover=all"}, w) {
					continue
				}
				if p := Parse([]string{w, "-c", "a.c"}, f.d, nil); p.Local && strings.HasPrefix(p.Reason, reason.UnknownOption) {
					if l, _, _ := lookup(w, f.d.Family); l == nil {
						continue // the other family's
					}
					t.Errorf("%s %q stays here: %s", f.name, w, p.Reason)
				}
			}
			for _, w := range strings.Split(c.bad, " ") {
				if p := Parse([]string{w, "-c", "a.c"}, f.d, nil); !p.Local {
					t.Errorf("%s %q may travel", f.name, w)
				}
			}
		}
	}
}

// TestListsOfWords: a word "@FILE" is the words in FILE to a driver, to cc1 and to as, wherever it stands:
// what looks like the argument of an option is then a list of unchecked options.
func TestListsOfWords(t *testing.T) {
	for _, line := range []string{
		"@x", "-I @x", "-D @x", "-include @x", "-o @x", "-MF @x", "-MT @x -MD", "-x @x", "-isystem @x", "-Xlinker @x", "-l @x", "-T @x", "-u @x",
		"-Xassembler --defsym -Xassembler @x", "-Xassembler @x", "-Wa,--defsym -Wa,@x", "-Wa,--defsym,@x", "-Xpreprocessor -MF -Xpreprocessor @x",
		"-o@x", "-MF@x", "-MT@x -MD", "-I@x", "-D@x", "-o d/@x.o", "-fdebug-compilation-dir=@x -g", "-foptimization-record-file=@x",
		"-Wp,-MT,@x", "-Wp,-MD,@x", "--param @x", "-target @x", "-Xclang @x", "-Xclang -target-feature -Xclang @x", "-mllvm @x", "-aux-info @x",
	} {
		for _, d := range []Driver{{Family: GCC}, {Family: Clang}} {
			if p := Parse(append(strings.Fields(line), "-c", "a.c"), d, nil); !p.Local {
				t.Errorf("family %d: %q may travel", d.Family, line)
			}
		}
	}
}

// TestSourcesLikeLists: cc1 gets a source's base name in a word of its own.
func TestSourcesLikeLists(t *testing.T) {
	for _, d := range []Driver{{Family: GCC}, {Family: Clang}} {
		for _, source := range []string{"@x.c", "./@x.c", "d/@x.c", "/src/@x.c"} {
			if p := Parse([]string{"-c", source}, d, nil); !p.Local {
				t.Errorf("family %d: source %q may travel", d.Family, source)
			}
		}
		if p := Parse([]string{"-c", "d@x/a@x.c"}, d, nil); p.Local {
			t.Errorf("family %d: a name with an @ in it stays here: %s", d.Family, p.Reason)
		}
	}
}

// TestLLVMFlags: a word after -mllvm must be in a list, whole: x86-lvi-load-opt-plugin names a shared
// object that clang loads.
func TestLLVMFlags(t *testing.T) {
	clang := Driver{Family: Clang}
	for _, w := range strings.Fields("-x86-lvi-load-opt-plugin=/src/a.so -x86-lvi-load-opt-plugin=a.so -x86-nothing -asan-debug=1 -msan-print-stack-names" +
		" -load=x -pass-plugin=x -info-output-file=x -stats -print-after-all -aarch64- -x86-asm-syntax=/x -unroll-count=@x -riscv-new-plugin=x") {
		if p := Parse([]string{"-mllvm", w, "-c", "a.c"}, clang, nil); !p.Local {
			t.Errorf("-mllvm %s may travel", w)
		}
	}
	for _, w := range strings.Fields("-x86-asm-syntax=intel -inline-threshold=300 -asan-stack=1 --asan-globals -instcombine-lower-dbg-declare=0 -hwasan-kernel -unroll-count=4") {
		if p := Parse([]string{"-mllvm", w, "-c", "a.c"}, clang, nil); p.Local {
			t.Errorf("-mllvm %s stays here: %s", w, p.Reason)
		}
	}
}
