package proto

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/worker/distcc/lzo"
)

var some = Limits{Words: 100, Text: 1000, Files: 10, Source: 1 << 20}

// request encodes tokens: a number for one without content, a string for one with it.
func request(tokens ...any) []byte {
	var b []byte
	for i := 0; i < len(tokens); i += 2 {
		kind := tokens[i].(string)
		switch v := tokens[i+1].(type) {
		case int:
			b = appendToken(b, kind, v)
		case string:
			b = append(appendToken(b, kind, len(v)), v...)
		}
	}
	return b
}

func packed(s string) string { return string(lzo.Append(nil, []byte(s))) }

func TestRead(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []byte
		want Request
	}{
		{"plain", request("DIST", 1, "ARGC", 4, "ARGV", "gcc", "ARGV", "-c", "ARGV", "a b\xff.c", "ARGV", "", "DOTI", "int x;"),
			Request{Version: 1, Args: []string{"gcc", "-c", "a b\xff.c", ""}, Source: []byte("int x;")}},
		{"nothing in it", request("DIST", 1, "ARGC", 1, "ARGV", "gcc", "DOTI", ""), Request{Version: 1, Args: []string{"gcc"}}},
		{"packed", request("DIST", 2, "ARGC", 1, "ARGV", "gcc", "DOTI", packed("int x;")), Request{Version: 2, Args: []string{"gcc"}, Source: []byte("int x;")}},
		{"packed, nothing in it", request("DIST", 2, "ARGC", 1, "ARGV", "gcc", "DOTI", 0), Request{Version: 2, Args: []string{"gcc"}}},
		{"files", request("DIST", 3, "CDIR", "/src", "ARGC", 1, "ARGV", "gcc", "NFIL", 2, "NAME", "/src/a.c", "FILE", packed("int x;"), "NAME", "/src/b.h", "LINK", "c.h"),
			Request{Version: 3, Cwd: "/src", Args: []string{"gcc"}, Files: []File{{Name: "/src/a.c", Text: []byte("int x;")}, {Name: "/src/b.h", Target: "c.h"}}}},
	} {
		r := bytes.NewReader(append(c.in, "rest"...))
		got, err := Read(r, some)
		if err != nil || !reflect.DeepEqual(*got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
		if rest, _ := io.ReadAll(r); string(rest) != "rest" {
			t.Errorf("%s: read beyond the request, %q are left", c.name, rest)
		}
		for i := range c.in {
			if _, err := Read(bytes.NewReader(c.in[:i]), some); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s: the first %d bytes: %v", c.name, i, err)
			}
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []byte
		want error
	}{
		{"another protocol", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), ErrMalformed},
		{"version 0", request("DIST", 0), ErrMalformed},
		{"version 4", request("DIST", 4), ErrMalformed},
		{"no digits", []byte("DIST0000000g"), ErrMalformed},
		{"a sign", []byte("DIST-0000001"), ErrMalformed},
		{"spaces", []byte("DIST       1"), ErrMalformed},
		{"no words", request("DIST", 1, "ARGC", 0), ErrMalformed},
		{"another order", request("DIST", 1, "DOTI", "x"), ErrMalformed},
		{"a zero byte", request("DIST", 1, "ARGC", 1, "ARGV", "g\x00c"), ErrMalformed},
		{"not packed", request("DIST", 2, "ARGC", 1, "ARGV", "gcc", "DOTI", "int x;"), ErrMalformed},
		{"neither file nor link", request("DIST", 3, "CDIR", "/", "ARGC", 1, "ARGV", "gcc", "NFIL", 1, "NAME", "a", "NAME", "b"), ErrMalformed},
		{"a link to nowhere", request("DIST", 3, "CDIR", "/", "ARGC", 1, "ARGV", "gcc", "NFIL", 1, "NAME", "a", "LINK", ""), ErrMalformed},
		{"many words", request("DIST", 1, "ARGC", 101), ErrTooMuch},
		{"most words", []byte("DIST00000001ARGCffffffff"), ErrTooMuch},
		{"a long word", request("DIST", 1, "ARGC", 2, "ARGV", strings.Repeat("x", 900), "ARGV", strings.Repeat("x", 101)), ErrTooMuch},
		{"the longest word", []byte("DIST00000001ARGC00000001ARGVffffffff"), ErrTooMuch},
		{"a long source", append(request("DIST", 1, "ARGC", 1, "ARGV", "gcc"), "DOTIffffffff"...), ErrTooMuch},
		{"many files", request("DIST", 3, "CDIR", "/", "ARGC", 1, "ARGV", "gcc", "NFIL", 11), ErrTooMuch},
		{"long files", request("DIST", 3, "CDIR", "/", "ARGC", 1, "ARGV", "gcc", "NFIL", 2, "NAME", "a", "FILE", packed(strings.Repeat("x", 1<<19)), "NAME", "b", "FILE", packed(strings.Repeat("x", 1<<19+1))), ErrTooMuch},
		{"a long source from few bytes", request("DIST", 2, "ARGC", 1, "ARGV", "gcc", "DOTI", packed(strings.Repeat("x", 1<<20+1))), ErrTooMuch},
	} {
		taken := 0
		lim := some
		lim.Take = func(n int) error { taken += n; return nil }
		if _, err := Read(bytes.NewReader(c.in), lim); !errors.Is(err, c.want) {
			t.Errorf("%s: %v; want %v", c.name, err, c.want)
		}
		if taken > len(c.in)+some.Source {
			t.Errorf("%s: %d bytes were taken for %d", c.name, taken, len(c.in))
		}
	}
}

// TestTake: a claim alone takes a piece of memory, not what it claims; and what Take says is final.
func TestTake(t *testing.T) {
	taken, full := 0, errors.New("full")
	lim := Limits{Words: 10, Text: 100, Source: 1 << 30, Take: func(n int) error { taken += n; return nil }}
	in := append(request("DIST", 1, "ARGC", 1, "ARGV", "gcc"), "DOTI40000000abc"...)
	if _, err := Read(bytes.NewReader(in), lim); !errors.Is(err, io.ErrUnexpectedEOF) || taken > 2*piece {
		t.Errorf("%v, %d bytes taken", err, taken)
	}
	lim.Take = func(n int) error {
		if n > 100 {
			return full
		}
		return nil
	}
	if _, err := Read(bytes.NewReader(in), lim); !errors.Is(err, full) {
		t.Errorf("%v, want %v", err, full)
	}
}

func TestReply(t *testing.T) {
	p := Reply{Stderr: []byte("a.c:1: warning\n"), Object: []byte("\x7fELF"), Deps: []byte("a.o: a.c\n")}
	for version, want := range map[int]string{
		Plain:   string(request("DONE", 1, "STAT", 0, "SERR", "a.c:1: warning\n", "SOUT", "", "DOTO", "\x7fELF")),
		Packed:  string(request("DONE", 2, "STAT", 0, "SERR", packed("a.c:1: warning\n"), "SOUT", "", "DOTO", packed("\x7fELF"))),
		Sources: string(request("DONE", 3, "STAT", 0, "SERR", packed("a.c:1: warning\n"), "SOUT", "", "DOTO", packed("\x7fELF"), "DOTD", packed("a.o: a.c\n"))),
	} {
		if got := string(p.Append(nil, version)); got != want {
			t.Errorf("version %d: %q, want %q", version, got, want)
		}
	}
	p.Status = 256
	if got, want := string(p.Append(nil, Sources)), string(request("DONE", 3, "STAT", 256, "SERR", packed("a.c:1: warning\n"), "SOUT", "", "DOTO", 0)); got != want {
		t.Errorf("a failure: %q, want %q", got, want)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(request("DIST", 1, "ARGC", 2, "ARGV", "gcc", "ARGV", "-c", "DOTI", "int x;"))
	f.Add(request("DIST", 2, "ARGC", 1, "ARGV", "gcc", "DOTI", packed("int x;")))
	f.Add(request("DIST", 3, "CDIR", "/src", "ARGC", 1, "ARGV", "gcc", "NFIL", 2, "NAME", "/src/a.c", "FILE", packed("int x;"), "NAME", "/src/b.h", "LINK", "c.h"))
	f.Add([]byte("DIST00000001ARGCffffffff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		taken := 0
		lim := Limits{Words: 50, Text: 500, Files: 5, Source: 1 << 16, Take: func(n int) error { taken += n; return nil }}
		q, err := Read(bytes.NewReader(b), lim)
		if most := 2*lim.Text + 2*lim.Source; taken > most+piece {
			t.Fatalf("%d bytes taken, of %d", taken, most)
		}
		if err != nil {
			return
		}
		total := len(q.Source)
		for _, x := range q.Files {
			total += len(x.Text)
		}
		if len(q.Args) == 0 || len(q.Args) > lim.Words || len(q.Files) > lim.Files || total > lim.Source {
			t.Fatalf("%d words, %d files, %d bytes", len(q.Args), len(q.Files), total)
		}
		if strings.ContainsRune(fmt.Sprint(q.Args, q.Cwd), 0) {
			t.Fatal("a zero byte in a word")
		}
	})
}
