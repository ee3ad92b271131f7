package compile

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	turns "github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// TestExpandAsCompiler compares the words with those that the compilers read
// from the same files: macros in a text show them.
func TestExpandAsCompiler(t *testing.T) {
	turns.Skip(t)
	t.Chdir(t.TempDir())
	must(t, os.Mkdir("dir", 0o777))
	for name, text := range map[string]string{
		"plain":  "-DA=1 -DB=2\n\t-DC=3\r\n",
		"quoted": "'-DA=a b' \"-DB=c  d\" -DC='e'\"f\"g\\ h",
		"escape": `-DA=\"a\" '-DB=x\'y' "-DC=q\\r\"s"`,
		"empty":  " \n ",
		"nested": "-DA=1 @plain @quoted",
		"loose":  "-DA='a b",
		"dir/in": "@plain",
	} {
		must(t, os.WriteFile(name, []byte(text), 0o666))
	}
	must(t, os.WriteFile("a.c", []byte("A B C\n"), 0o666))
	for _, args := range []string{"@plain", "@quoted", "@escape", "@empty", "@nested -DB=9", "-DB @plain", "@loose", "@dir/in", "-DB=0 @empty @plain @empty"} {
		argv := append(strings.Fields(args), "-E", "-P", "a.c")
		words := Expand(argv)
		for _, w := range words {
			if strings.HasPrefix(w, "@") {
				t.Errorf("%s: %q", args, words)
			}
		}
		for _, cc := range []string{"gcc", "clang"} {
			if _, err := exec.LookPath(cc); err != nil {
				continue
			}
			want, _ := exec.Command(cc, append([]string{"-w"}, argv...)...).Output()
			got, _ := exec.Command(cc, append([]string{"-w"}, words...)...).Output()
			if string(got) != string(want) {
				t.Errorf("%s %s: words %q give\n%swant\n%s", cc, args, words, got, want)
			}
		}
	}
}

// TestExpandLeaves what is no response file, or none that can be read.
func TestExpandLeaves(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, os.Mkdir("dir", 0o777))
	must(t, os.WriteFile("self", []byte("-DX @self"), 0o666))
	must(t, os.WriteFile("zero", []byte("-DX\x00"), 0o666))
	must(t, os.WriteFile("none", []byte("-DX '' -DY"), 0o666))
	must(t, os.WriteFile("end", []byte("-DX \\"), 0o666))
	must(t, os.WriteFile("mark", []byte("\xef\xbb\xbf-DX"), 0o666))
	must(t, os.WriteFile("feed", []byte("-DX\f-DY"), 0o666))
	argv := []string{"-c", "a.c", "@", "@missing", "@dir", "@zero", "a@b", "@none", "@end", "@mark", "@feed"}
	if got := Expand(argv); !slices.Equal(got, argv) {
		t.Errorf("got %q", got)
	}
	p := Parse(Expand([]string{"-c", "a.c", "@self"}), testDriver(t, "gcc"), nil)
	if want := "not-reproducible:response-file"; p.Reason != want {
		t.Errorf("a file that names itself: %q, want %q", p.Reason, want)
	}
	plain := []string{"-c", "a.c"}
	if n := testing.AllocsPerRun(10, func() { Expand(plain) }); n != 0 {
		t.Errorf("%v allocations for no response file", n)
	}
}

// TestExpandOpensNoPipe: a pipe is for the compiler. What its writer says could not be read twice.
func TestExpandOpensNoPipe(t *testing.T) {
	pipe := t.TempDir() + "/pipe"
	if err := unix.Mkfifo(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(watch)
	if _, err := unix.InotifyAddWatch(watch, pipe, unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	argv := []string{"gcc", "@" + pipe, "-c", "x.c"}
	if got := Expand(argv); !slices.Equal(got, argv) {
		t.Errorf("%q becomes %q", argv, got)
	}
	clangModule(pipe)
	if n, err := unix.Read(watch, make([]byte, 1024)); err != unix.EAGAIN {
		t.Errorf("the pipe was opened (%d bytes of events, %v)", n, err)
	}
}

// FuzzExpand: what a response file has never makes more words than bytes, nor a panic.
func FuzzExpand(f *testing.F) {
	for _, text := range []string{"-DA=1 -DB=2\n", "'-DA=a b' \"x\\\"", "\\", "''", "@self @self", "a\x00b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		words, ok := splitResponse(text)
		if !ok {
			return
		}
		n := 0
		for _, w := range words {
			if w == "" || strings.IndexByte(w, 0) >= 0 {
				t.Fatalf("%q: %q", text, words)
			}
			n += len(w)
		}
		if n > len(text) {
			t.Fatalf("%q: %d bytes in words", text, n)
		}
		p := Parse(words, Driver{Family: Clang}, nil)
		p.List(14)
		p.Preprocess(14)
	})
}
