package driver

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

// TestSplitUndoesQuoting: the driver's quoting, read back, gives the words.
func TestSplitUndoesQuoting(t *testing.T) {
	got, _, err := split(` /x/cc1 -D "A=\"q\\\$\"" "" "a b" -o /tmp/x.s`)
	want := []string{"/x/cc1", "-D", `A="q\$"`, "", "a b", "-o", "/tmp/x.s"}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %q, %v; want %q", got, err, want)
	}
}

// TestOtherCommandsAreNotPlain: links, pipes and other programs need the driver.
func TestOtherCommandsAreNotPlain(t *testing.T) {
	for _, text := range []string{
		"",
		"Target: x\n",
		"gcc: warning: no effect\n /x/cc1 \"" + Source + "\" -o /tmp/a.s\n as -o x /tmp/a.s\n",
		" /x/collect2 -o a.out\n",
		" /x/cc1 \"" + Source + "\" | as -o x\n",
		" /x/cc1 other.c -o /tmp/a.s\n as -o x /tmp/a.s\n",
		" /x/cc1 \"" + Source + "\" -o /tmp/a.s\n as -o x /tmp/b.s\n",
		" /x/cc1 \"" + Source + "\" -o /tmp/a.s\n as -o x /tmp/a.s\n /x/collect2 x\n",
	} {
		if _, err := Parse(text); !errors.Is(err, ErrNotPlain) {
			t.Errorf("Parse(%q) = %v, want ErrNotPlain", text, err)
		}
	}
}

// TestProgramsOfTarget: an assembler, and what extracts debug information, may have the target in front of their names.
func TestProgramsOfTarget(t *testing.T) {
	const text = " /x/cc1 \"" + Source + "\" -o /tmp/a.s\n /usr/bin/x86_64-linux-gnu-as -o x /tmp/a.s\n x86_64-linux-gnu-objcopy --extract-dwo x x.dwo\n"
	r, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if as := r.Step(1, Names{Source: "s.c", Temp: "t.s"}); as[len(as)-1] != "t.s" {
		t.Errorf("assembles %q", as)
	}
	if _, err := Parse(strings.Replace(text, "gnu-as", "gnu-gas", 1)); !errors.Is(err, ErrNotPlain) {
		t.Errorf("another program: %v, want ErrNotPlain", err)
	}
}

// TestNewlineInsideQuotes: an argument with a newline does not end its command.
func TestNewlineInsideQuotes(t *testing.T) {
	r, err := Parse("Using built-in specs.\nCOLLECT_GCC=gcc\nTarget: x\nThread model: y\n /x/cc1 -D \"A=1\n 2\" \"" + Source + "\"\nX=\"\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Step(0, Names{Source: "s.c"}); len(got) != 4 || got[2] != "A=1\n 2" || got[3] != "s.c" {
		t.Fatalf("got %q", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(" /x/cc1 -D \"A=\\\"\" \"" + Source + "\" -o /tmp/a.s\n as -o x /tmp/a.s\n")
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := Parse(text); err == nil {
			for i := range r.Steps() {
				r.Step(i, Names{Source: "s", Output: "o"})
			}
		}
	})
}
