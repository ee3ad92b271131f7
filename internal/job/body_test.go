package job

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/unit"
)

var body = Body{
	Argv0: "gcc", Args: []string{"-O2", ""}, Language: "c", Name: "a.c", Cwd: "/src",
	Env:     []string{"LC_ALL=C"},
	Outputs: []unit.Output{{Kind: unit.OutputObject, Name: "a.o"}, {Kind: unit.OutputStackUsage, Name: "a.su"}},
}

const bodyHex = "03000000 676363  00000000  02000000 03000000 2d4f32 00000000  00000000  01000000 63  03000000 612e63" +
	"04000000 2f737263  01000000 08000000 4c435f414c4c3d43  02 00 00 03000000 612e6f 02 00 04000000 612e7375" +
	"00000000 00000000 00000000 00000000 00000000 00"

// sources is a body of the sources form.
var sources = Body{
	Argv0: "cc", Compiler: "/gcc", Args: []string{"-c", "a.c"}, Front: 1, Language: "c", Name: "a.c", Cwd: "/s",
	Outputs: []unit.Output{{Kind: unit.OutputObject, Name: "a.o"}, {Kind: unit.OutputDependency, Name: "a.d", Optional: true}},
	Files: []unit.File{
		{Name: "a.c", Len: 0x0102, MTime: -2},
		{Name: "../b.h", MTime: 1 << 40, Same: 1, Exec: true},
	},
	Dirs:  []string{"i"},
	Links: []unit.Link{{Name: "/l", Target: "/s"}},
	Blobs: []Blob{{ID: unit.ContentID{0: 0xb0, 31: 0xb1}, Len: 0x0304, Abridged: true}},
	Lists: []unit.ContentID{{0: 0xc0, 31: 0xc1}, {0: 0xd0}},
	Images: []Body{{
		Argv0: "cc", Compiler: "/gcc", Args: []string{"-c"}, Language: "c", Name: "x.h", Cwd: "/s",
		Outputs: []unit.Output{{Kind: unit.OutputObject, Name: "x.gch"}}, Lists: []unit.ContentID{{0: 0xe0}},
	}},
}

const sourcesHex = "02000000 6363  04000000 2f676363  02000000 02000000 2d63 03000000 612e63  01000000  01000000 63  03000000 612e63" +
	"02000000 2f73  00000000  02 00 00 03000000 612e6f 04 01 03000000 612e64" +
	"02000000 03000000 612e63 0201000000000000 feffffffffffffff 00000000 00" +
	"06000000 2e2e2f622e68 0000000000000000 0000000000010000 01000000 01" +
	"01000000 01000000 69  01000000 02000000 2f6c 02000000 2f73" +
	"01000000 b0" + zeros30 + "b1 0403000000000000 01  02000000 c0" + zeros30 + "c1 d0" + zeros30 + "00" +
	"01 73000000" + // a precompiled header
	"02000000 6363  04000000 2f676363  01000000 02000000 2d63  00000000  01000000 63  03000000 782e68" +
	"02000000 2f73  00000000  01 00 00 05000000 782e676368" +
	"00000000 00000000 00000000 00000000  01000000 e0" + zeros30 + "00 00"

const zeros30 = "000000000000000000000000000000000000000000000000000000000000"

func TestGoldenBody(t *testing.T) {
	for _, c := range []struct {
		body Body
		hex  string
	}{{body, bodyHex}, {sources, sourcesHex}} {
		want := unhex(t, c.hex)
		if got := c.body.Append(nil); !bytes.Equal(got, want) {
			t.Errorf("Append:\n got %x\nwant %x", got, want)
		}
		got, err := ParseBody(want)
		if err != nil || !reflect.DeepEqual(*got, c.body) {
			t.Errorf("ParseBody = %+v, %v", got, err)
		}
		for n := range want {
			if got, err := ParseBody(want[:n]); !errors.Is(err, ErrMalformed) {
				t.Errorf("body cut to %d of %d bytes: got %+v, %v", n, len(want), got, err)
			}
		}
		if _, err := ParseBody(append(want, 0)); !errors.Is(err, ErrMalformed) {
			t.Errorf("body and one byte more: error is %v", err)
		}
	}
}

func TestParseBodyRefuses(t *testing.T) {
	for _, name := range []string{"", ".", "..", "../a.c", "/a.c", "a/b.c", strings.Repeat("n", 256)} {
		b := body
		b.Name = name
		if _, err := ParseBody(b.Append(nil)); !errors.Is(err, ErrMalformed) {
			t.Errorf("source name %q: error is %v", name, err)
		}
	}
	b := body
	b.Args = []string{"-DX=\x00"}
	if _, err := ParseBody(b.Append(nil)); !errors.Is(err, ErrMalformed) {
		t.Errorf("NUL in an argument: error is %v", err)
	}
	b = body
	b.Outputs = []unit.Output{{Kind: unit.OutputModule + 1, Name: "a.o"}}
	if _, err := ParseBody(b.Append(nil)); !errors.Is(err, ErrMalformed) {
		t.Errorf("unknown kind of output: error is %v", err)
	}
	for name, change := range map[string]func(*Body){
		"sum of lengths wraps":     func(b *Body) { b.Files = []unit.File{{Name: "a", Len: 2}, {Name: "b", Len: 1<<64 - 1}} },
		"same as itself":           func(b *Body) { b.Files = []unit.File{{Name: "a", Same: 1}} },
		"same, with a length":      func(b *Body) { b.Files = []unit.File{{Name: "a"}, {Name: "b", Same: 1, Len: 1}} },
		"no name":                  func(b *Body) { b.Files = []unit.File{{Len: 1}} },
		"relative link":            func(b *Body) { b.Links = []unit.Link{{Name: "l", Target: "/s"}} },
		"link to a relative path":  func(b *Body) { b.Links = []unit.Link{{Name: "/l", Target: "s"}} },
		"directory without a file": func(b *Body) { b.Files, b.Links, b.Blobs, b.Lists = nil, nil, nil, nil },
		"link without a file":      func(b *Body) { b.Files, b.Dirs, b.Blobs, b.Lists = nil, nil, nil, nil },
		"blob without a file":      func(b *Body) { b.Files, b.Dirs, b.Links, b.Lists = nil, nil, nil, nil },
		"empty blob":               func(b *Body) { b.Blobs = []Blob{{}} },
		"lengths of blobs wrap":    func(b *Body) { b.Blobs = []Blob{{Len: 1<<64 - 1}} },
		"list twice":               func(b *Body) { b.Lists = []unit.ContentID{{1}, {2}, {1}} },
		"image with a file":        func(b *Body) { b.Images[0].Files = []unit.File{{Name: "a"}} },
		"image with a directory":   func(b *Body) { b.Images[0].Dirs = []string{"i"} },
		"image with a link":        func(b *Body) { b.Images[0].Links = []unit.Link{{Name: "/l", Target: "/s"}} },
		"image with a blob":        func(b *Body) { b.Images[0].Blobs = []Blob{{Len: 1}} },
		"image with an image":      func(b *Body) { b.Images[0].Images = []Body{b.Images[0]} },
		"image of no list":         func(b *Body) { b.Images[0].Lists = nil },
		"image of two lists":       func(b *Body) { b.Images[0].Lists = []unit.ContentID{{1}, {2}} },
		"image without outputs":    func(b *Body) { b.Images[0].Outputs = nil },
		"too many lists": func(b *Body) {
			b.Lists = make([]unit.ContentID, MaxLists+1)
			for i := range b.Lists {
				b.Lists[i] = unit.ContentID{byte(i), byte(i >> 8)}
			}
		},
	} {
		b := sources
		b.Images = slices.Clone(b.Images)
		change(&b)
		if _, err := ParseBody(b.Append(nil)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	// A count may not make the parser allocate more than the body could hold.
	huge := unhex(t, "00000000 00000000 ffffffff 00000000")
	if n := testing.AllocsPerRun(10, func() {
		if _, err := ParseBody(huge); err == nil {
			t.Error("a list of 2^32-1 strings in 16 bytes is taken")
		}
	}); n > 4 {
		t.Errorf("%v allocations", n)
	}
}

// A body whose files are all in lists has the sources form, too.
func TestBodyOfLists(t *testing.T) {
	b := sources
	b.Files = nil
	got, err := ParseBody(b.Append(nil))
	if err != nil || !reflect.DeepEqual(*got, b) || !got.HasFiles() {
		t.Errorf("ParseBody = %+v, %v", got, err)
	}
	if body.HasFiles() {
		t.Error("the text form has files")
	}
}

// TestModules: a host keeps what clang makes for ThinLTO, and nothing else.
func TestModules(t *testing.T) {
	const ir, wrapped, elf = "BC\xc0\xde0123", "\xde\xc0\x17\x0b01", "\x7fELF"
	content := []byte("said" + ir + wrapped + elf)
	thin := Body{Args: []string{"-c", "-flto=thin"}, Outputs: []unit.Output{{Kind: unit.OutputObject}, {Kind: unit.OutputObject}, {Kind: unit.OutputObject}, {Kind: unit.OutputSide}}}
	ran := Result{Files: []File{{Index: 3, Segment: Segment{4, 8}}, {Index: 1, Segment: Segment{4, 8}}, {Index: 0, Segment: Segment{12, 6}}, {Index: 2, Segment: Segment{18, 4}}}}
	got := thin.Modules(&ran, content)
	if len(got) != 2 || string(got[0]) != ir || string(got[1]) != wrapped {
		t.Errorf("kept: %q", got)
	}
	full, failed, refused := thin, ran, ran
	full.Args = []string{"-c", "-flto"}
	failed.Exit, refused.Status = 1, StatusRefused
	if full.Modules(&ran, content) != nil || thin.Modules(&failed, content) != nil || thin.Modules(&refused, content) != nil {
		t.Error("kept of a compile that failed, or is none for ThinLTO")
	}
}

func TestTextOffset(t *testing.T) {
	for _, c := range []struct{ n, want int }{{1, 64}, {63, 64}, {64, 64}, {65, 128}} {
		if got := TextOffset(c.n); got != c.want {
			t.Errorf("TextOffset(%d) = %d, want %d", c.n, got, c.want)
		}
	}
}

func FuzzParseBody(f *testing.F) {
	f.Add(unhex(f, bodyHex))
	f.Add(unhex(f, sourcesHex))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := ParseBody(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		if again := v.Append(nil); !bytes.Equal(again, b) {
			t.Fatalf("%+v\nparsed from %x\nencodes as  %x", v, b, again)
		}
	})
}
