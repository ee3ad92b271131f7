package driver

import (
	"strings"
	"testing"
)

// answerOf reads an answer whose compiler gets words.
func answerOf(t *testing.T, words, rest string) *Answer {
	t.Helper()
	a, err := ReadAnswer("Target: x\n" + rest + "COLLECT_GCC_OPTIONS='" + words + "'\n /x/cc1 -quiet " + words + " -o /tmp/a.s\nCOLLECT_GCC_OPTIONS=''\n as -o x.o /tmp/a.s\n")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestLike: only what means nothing may differ.
func TestLike(t *testing.T) {
	for _, c := range []struct {
		a, b          string
		strict, loose bool
	}{
		{"-fPIE -O2", "-fPIE -O2", true, true},
		{"-fPIE -O2", "-O2 -fPIE", false, false},
		{"-fPIE", "-fPIE -fPIE", false, false},
		{"-fPIE", "", false, false},
		{"-DX=1 -g -D Y", "-g -D X=1 -D Y", false, true},
		{"-D X=1 -U X", "-U X -D X=1", false, false},
		{"-isystem a -g", "-g -isystem a", false, true},
		{"-isystem a -isystem b", "-isystem b -isystem a", false, false},
		{"-isystem a -I b", "-Ib -isystem a", false, true},
		{"-isystem a", "-idirafter a", false, false},
		{"-nostdinc -g -nostdinc", "-g -nostdinc", false, true},
		{"-nostdinc", "", false, false},
		{"-include -Dx -D y", "-D y -include -Dx", false, true},
		{"-include -Dx -D y", "-include -D y -Dx", false, false},
		{"-o a -fx", "-fx -o a", false, true},
		{"-o a", "-o b", false, false},
	} {
		a, b := answerOf(t, c.a, "Reading specs from x\n"), answerOf(t, c.b, "")
		for loose, want := range map[bool]bool{false: c.strict, true: c.loose} {
			if got := a.Like(b, loose); got != want {
				t.Errorf("%q like %q, loose %v: %v", c.a, c.b, loose, got)
			}
		}
	}
	if a, b := answerOf(t, "", "gcc: warning: no effect\n"), answerOf(t, "", ""); a.Like(b, true) || b.Like(a, true) {
		t.Error("a message is lost")
	}
	if a, b := answerOf(t, "", ""), answerOf(t, "", "Multilib: x\n"); a.Like(b, true) {
		t.Error("a remark is missing")
	}
}

// TestOtherProgramsAreNotLike: the same words for another program, another order of programs, or a pipe.
func TestOtherProgramsAreNotLike(t *testing.T) {
	texts := []string{
		" /x/cc1 -D x\n", " /y/cc1 -D x\n", " /x/cc1 -D x |\n as\n", " /x/cc1 -D x\n as\n", " as\n /x/cc1 -D x\n", " sh -c x\n", " /x/cc1 -D x\n as --x\n",
	}
	for i, x := range texts {
		for k, y := range texts {
			a, err := ReadAnswer(x)
			b, err2 := ReadAnswer(y)
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			if a.Like(b, true) != (i == k) {
				t.Errorf("%q like %q: %v", x, y, i != k)
			}
		}
	}
	for _, text := range []string{"", "gcc: fatal error: no\n", " \"a\n", " a | b\n"} {
		if _, err := ReadAnswer(text); err == nil {
			t.Errorf("%q is an answer", text)
		}
	}
}

// TestBeside: options come with their arguments.
func TestBeside(t *testing.T) {
	for _, c := range []struct{ a, b, more, less string }{
		{"-fPIE", "", "-fPIE", ""},
		{"-g -isystem m -isystem i -isystem own -O", "-g -isystem own -O", "-isystem m -isystem i", ""},
		{"-fno-pic -g", "-fPIC -g", "-fno-pic", "-fPIC"},
		{"-DX=1 -g -DY", "-g", "-D X=1 -D Y", ""},
	} {
		more, less, ok := answerOf(t, c.a, "").Beside(answerOf(t, c.b, ""))
		if !ok || strings.Join(more, " ") != c.more || strings.Join(less, " ") != c.less {
			t.Errorf("%q beside %q: %q, %q, %v", c.a, c.b, more, less, ok)
		}
	}
	one, _ := ReadAnswer(" /x/cc1 -g -fPIE -o /tmp/1.s\n /usr/bin/x86_64-linux-gnu-as -o x.o /tmp/1.s\n")
	two, _ := ReadAnswer(" /x/cc1 -g -o /tmp/2.s\n /usr/bin/x86_64-linux-gnu-as -o x.o /tmp/2.s\n")
	if more, less, ok := one.Beside(two); !ok || strings.Join(more, " ") != "-fPIE" || len(less) > 0 {
		t.Errorf("with an assembler whose name has the target: %q, %q, %v", more, less, ok)
	}
	a, _ := ReadAnswer(" /x/cc1 -g\n as --x\n")
	b, _ := ReadAnswer(" /x/cc1 -g\n as\n")
	if _, _, ok := a.Beside(b); ok {
		t.Error("an option of the assembler is one of the compiler's")
	}
}

func FuzzReadAnswer(f *testing.F) {
	f.Add(" /x/cc1 -D \"A=\\\"\" -o - |\n as -o x\n", "remark\n /x/cc1 -DA -nostdinc\n")
	f.Fuzz(func(t *testing.T, x, y string) {
		a, err := ReadAnswer(x)
		if err != nil {
			return
		}
		if !a.Like(a, false) || !a.Like(a, true) {
			t.Fatal("not like itself")
		}
		b, err := ReadAnswer(y)
		if err != nil {
			return
		}
		a.Beside(b)
		if a.Like(b, false) && !a.Like(b, true) {
			t.Fatal("strict, and not loose")
		}
	})
}
