package move

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/unit"
)

func TestOf(t *testing.T) {
	for dir, want := range map[string]string{
		"/home/a/p": "/home/a/p", "/home/a/p/": "/home/a/p", "/w": "/w", "": "", "/": "", "//": "", "rel": "", "/a//b": "", "/a/./b": "", "/a/../b": "", "/a b": "",
		"/a$b": "", "/a#b": "", "/é": "",
	} {
		if got, ok := Of(dir); string(got) != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", dir, got, ok)
		}
	}
}

func TestHide(t *testing.T) {
	b := Base("/home/a/p")
	for s, want := range map[string]string{
		"/home/a/p": hidden, "-I/home/a/p/inc": "-I" + hidden + "/inc", "-Ix/home/a/p/inc": "-Ix/home/a/p/inc", "-I=/home/a/p/inc": "-I=" + hidden + "/inc", "/home/a/pq/x": "/home/a/pq/x", "/x/home/a/p": "/x/home/a/p",
		"/home/a/p/x:/home/a/p": hidden + "/x:" + hidden, "/home/a/p-1": "/home/a/p-1", "": "", "-Wl,/home/a/p/x": "-Wl," + hidden + "/x",
	} {
		if got := b.Hide(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}

// TestCommand: which commands may share results, and that two that may have the same command without their bases.
func TestCommand(t *testing.T) {
	body := func(base string, args ...string) *job.Body {
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "$B", base)
		}
		return &job.Body{Argv0: "gcc", Compiler: "/usr/bin/gcc-12", Cwd: base + "/build", Name: "a.c", Args: args, Env: []string{"PWD=" + base + "/build"},
			Outputs: []unit.Output{{Name: "a.o"}}}
	}
	for line, want := range map[string]bool{
		"-c ../a.c":                                         true,
		"-I../inc -c ../a.c -o $B/build/a.o":                true,
		"-c $B/a.c":                                         false,
		"-I$B/inc -c ../a.c":                                false,
		"-I $B/inc -c ../a.c":                               false,
		"-ffile-prefix-map=$B=. -I$B/inc -c $B/a.c":         true,
		"-fmacro-prefix-map=$B/=./ -c $B/a.c":               true,
		"-fdebug-prefix-map=$B=. -c $B/a.c":                 false,
		"-ffile-prefix-map=$B/build=. -c $B/a.c":            false,
		"-ffile-prefix-map=$B -c $B/a.c":                    false,
		"-ffile-prefix-map=$B=. -c $B/a.c -flto":            false,
		"-gsplit-dwarf -c ../a.c":                           false,
		"-fprofile-arcs -c ../a.c":                          false,
		"-ffile-prefix-map=/elsewhere=. -I$B/inc -c ../a.c": false,
		// Debug information names the working directory.
		"-O2 -g -c ../a.c":                       false,
		"-ggdb3 -g -c ../a.c":                    false,
		"-g -g0 -c ../a.c":                       true,
		"-g -fdebug-prefix-map=$B=. -c ../a.c":   true,
		"-g -fdebug-compilation-dir=. -c ../a.c": true,
		"-g -Wa,-g -c ../a.c":                    true,
		// No map applies to a macro of the command.
		"-ffile-prefix-map=$B=. -DROOT=\"$B\" -c a.c":                                           false,
		"-ffile-prefix-map=$B=. -D ROOT=\"$B\" -c a.c":                                          false,
		"-ffile-prefix-map=$B=. -D $B/a.c -c a.c":                                               false,
		"-ffile-prefix-map=$B=. -DX$B=1 -c a.c":                                                 false,
		"-ffile-prefix-map=$B=. -Wp,-DROOT=\"$B\" -c a.c":                                       false,
		"-ffile-prefix-map=$B=. -Xpreprocessor -DROOT=$B -c a.c":                                false,
		"-ffile-prefix-map=$B=. -Xclang $B/a.c -c a.c":                                          false,
		"-ffile-prefix-map=$B=. -Wa,-I$B -c a.c":                                                false,
		"-ffile-prefix-map=$B=. -fsomething=$B -c a.c":                                          false,
		"-ffile-prefix-map=$B=. -isystem $B/i -include $B/b.h -c $B/a.c -MD -MT $B/x -o $B/a.o": true,
		"-ffile-prefix-map=$B=. -I=$B/i --sysroot=$B/s -isystem$B/i -c a.c":                     true,
		// Maps that leave the base, or a part of it.
		"-ffile-prefix-map=$B=$B -c $B/a.c":                             false,
		"-ffile-prefix-map=$B=$B/x -c a.c":                              false,
		"-ffile-prefix-map=$B=. -ffile-prefix-map=/=/x -c $B/a.c":       false,
		"-ffile-prefix-map=$B=. -fdebug-prefix-map=/h=x -g -c a.c":      false,
		"-ffile-prefix-map=$B=. -fdebug-prefix-map=/w/=x -g -c a.c":     false,
		"-ffile-prefix-map=$B=. -ffile-prefix-map=$B/build=b -c $B/a.c": true,
		"-ffile-prefix-map=$B=a=b -c $B/a.c":                            false,
		// What looks at parts of names.
		"-ffile-prefix-map=$B=. -finstrument-functions-exclude-file-list=anna -c $B/a.c": false,
		"-ffile-prefix-map=$B=. -fsanitize-undefined-strip-path-components=2 -c $B/a.c":  false,
		"-ffile-prefix-map=$B=. -fsanitize-ignorelist=list -c $B/a.c":                    false,
		"-fsanitize-ignorelist=list -c a.c":                                              true,
		"-funique-source-file-names -c a.c":                                              false,
	} {
		one, ok := Base("/home/anna/p").Command(body("/home/anna/p", strings.Fields(line)...), false, "")
		two, ok2 := Base("/w/bob").Command(body("/w/bob", strings.Fields(line)...), false, "")
		if (ok && ok2) != want {
			t.Errorf("%s: %v, %v", line, ok, ok2)
		}
		if !want {
			continue
		}
		if ok && fmt.Sprint(*one) != fmt.Sprint(*two) {
			t.Errorf("%s: %v\n%+v\n%+v", line, ok2, one, two)
		}
	}
	if _, ok := Base("/other").Command(body("/home/anna/p", "-c", "a.c"), false, ""); ok {
		t.Error("a command outside of the base")
	}
	b := body("/b", "-c", "a.c")
	b.Argv0 = "/b/tools/gcc"
	if _, ok := Base("/b").Command(b, false, ""); ok {
		t.Error("a compiler below the base, whose headers have absolute names")
	}
	b = body("/b", "-c", "a.c")
	b.Env = append(b.Env, "CPATH=/b/inc")
	if _, ok := Base("/b").Command(b, false, ""); ok {
		t.Error("a variable names a directory below the base")
	}
}

// TestNamesTypes: a compiler that shows the names of files in those of types shares no result of a source that is named absolutely.
func TestNamesTypes(t *testing.T) {
	for _, c := range []struct {
		family   string
		major    int
		language string
		shares   bool
	}{{"clang", 14, "c++", false}, {"clang", 18, "objective-c++", false}, {"clang", 19, "c++", true}, {"clang", 14, "c", true}, {"gcc", 12, "c++", true}} {
		body := &job.Body{Argv0: "cc", Cwd: "/b", Name: "a.cc", Args: []string{"-ffile-prefix-map=/b=.", "-c", "/b/a.cc"}, Outputs: []unit.Output{{Name: "a.o"}}}
		if _, ok := Base("/b").Command(body, NamesTypes(c.family, c.major, c.language), ""); ok != c.shares {
			t.Errorf("%+v: %v", c, ok)
		}
		body.Args = []string{"-c", "a.cc"}
		if _, ok := Base("/b").Command(body, NamesTypes(c.family, c.major, c.language), ""); !ok {
			t.Errorf("%+v: a source that is named relatively is not shared", c)
		}
	}
}

// TestCommandOfBazel: a compiler that is to take its directory from a PWD that names none in particular writes that one.
func TestCommandOfBazel(t *testing.T) {
	body := &job.Body{Argv0: "gcc", Compiler: "/usr/bin/gcc-12", Cwd: "/home/a", Name: "a.c", Args: []string{"-g", "-c", "a.c"}, Outputs: []unit.Output{{Name: "a.o"}}}
	for pwd, want := range map[string]bool{"/proc/self/cwd": true, "/home/a": false, "/home/a/": false, "/home/ab": true} {
		body.Env = []string{"A=b", "PWD=" + pwd}
		if _, ok := Base("/home/a").Command(body, false, ""); ok != want {
			t.Errorf("PWD=%s: %v, want %v", pwd, ok, want)
		}
	}
}

func TestOutputs(t *testing.T) {
	b := Base("/home/a/my-p")
	object := func(s string) []Output { return []Output{{unit.OutputObject, []byte("text " + s + " rest")}} }
	for s, want := range map[string]bool{"": true, "/home/a/my": true, "/home/a/my-p/x": false, "_GLOBAL__sub_I__home_a_my_p_x.cc": false, "/home/a/my-pq": false} {
		if got := b.Outputs(nil, nil, object(s), ""); got != want {
			t.Errorf("%q: %v", s, got)
		}
	}
	if b.Outputs(nil, []byte("/home/a/my-p/a.c:1: warning"), nil, "") {
		t.Error("a message that names a file below the base")
	}
	if b.Outputs(nil, nil, object(""), "") != true || b.Outputs(nil, nil, []Output{{unit.OutputObject, []byte("BC\xc0\xde")}}, "") || b.Outputs(nil, nil, []Output{{unit.OutputModule, nil}}, "") {
		t.Error("an output whose names cannot be seen")
	}
}

// TestRules moves the rules that real compilers write, and compares them with what they write elsewhere.
func TestRules(t *testing.T) {
	one, two := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "another", "directory", "with-a-longer-name")
	files := map[string]string{"inc/dir.h": "", "src/x.c": "#include <stdio.h>\n"}
	for i := range 30 {
		name := fmt.Sprintf("inc/h%s.h", strings.Repeat("x", i))
		files[name], files["src/x.c"] = "", files["src/x.c"]+fmt.Sprintf("#include \"%s\"\n", filepath.Base(name))
	}
	for _, base := range []string{one, two} {
		for name, text := range files {
			name = filepath.Join(base, name)
			if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, cc := range []string{"gcc", "clang"} {
		if _, err := exec.LookPath(cc); err != nil {
			need.Skipf(t, need.Tools, "no %s", cc)
		}
		for _, words := range []string{"-MD", "-MMD -MP", "-MD -MT some/target -MT other", "-MD -MQ $B/src/x.o"} {
			var rules [2][]byte
			for i, base := range []string{one, two} {
				args := strings.Fields(strings.ReplaceAll(words, "$B", base) + " -c -I" + base + "/inc " + base + "/src/x.c -o " + base + "/x.o -MF " + base + "/x.d")
				if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				var err error
				if rules[i], err = os.ReadFile(base + "/x.d"); err != nil {
					t.Fatal(err)
				}
			}
			moved, ok := Base(one).Rules(rules[0], Base(two))
			if !ok || string(moved) != string(rules[1]) {
				t.Errorf("%s %s: %v\n%s\nwant\n%s", cc, words, ok, moved, rules[1])
			}
		}
	}
	if _, ok := Base("/a").Rules([]byte("x.o: a.c b.c\n"), "/b"); !ok {
		t.Error("a short rule")
	}
	for _, odd := range []string{"x.o: a.c \\\n b.c\n", "x.o a.c\n", "x.o: a.c", ":\n\n:", "x.o:  a.c\n"} {
		if _, ok := Base("/a").Rules([]byte(odd), "/b"); ok {
			t.Errorf("%q is what a compiler writes", odd)
		}
	}
}

// FuzzRules: no rules make it panic, and those that do not move stay as they are.
func FuzzRules(f *testing.F) {
	f.Add([]byte("x.o: a.c \\\n b.c\n"))
	f.Add([]byte("x.o: /base/a.c /base/b\\ c.h\n\n/base/b\\ c.h:\n"))
	f.Fuzz(func(t *testing.T, rules []byte) {
		if same, ok := Base("/base").Rules(rules, "/base"); ok && string(same) != string(rules) {
			t.Errorf("%q became %q", rules, same)
		}
		Base("/base").Rules(rules, "/elsewhere")
	})
}
