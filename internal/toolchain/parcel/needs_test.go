package parcel

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"runtime"
	"testing"
)

func TestVersions(t *testing.T) {
	for text, want := range map[string]Version{"6.1.0-13-amd64": {6, 1, 0}, "5.10": {5, 10, 0}, "6.12.3": {6, 12, 3}, "6.1+": {6, 1, 0}, "4.19.0.1": {4, 19, 0}, "x": {}, "": {}, "99999999999.1": {}} {
		if got := ParseVersion(text); got != want {
			t.Errorf("%q is %v", text, got)
		}
	}
	if !(Version{5, 10, 9}).Less(Version{6, 1, 0}) || (Version{6, 1, 0}).Less(Version{6, 1, 0}) || (Version{6, 2, 0}).Less(Version{6, 1, 9}) {
		t.Error("their order")
	}
}

// TestMissing: a toolchain is kept from a host only if it is certain that it cannot run there.
func TestMissing(t *testing.T) {
	n := Needs{Machine: "x86_64", Kernel: Version{3, 2, 0}}
	for _, x := range []struct {
		host About
		want string
	}{
		{About{Machine: "x86_64", Kernel: "6.1.0-13-amd64"}, ""},
		{About{}, ""}, // a daemon that does not say
		{About{Machine: "aarch64", Kernel: "6.1.0"}, "is for x86_64, and the host is aarch64"},
		{About{Machine: "x86_64", Kernel: "2.6.32-754.el6"}, "needs Linux 3.2.0, and the host has 2.6.32-754.el6"},
	} {
		if got := n.Missing(&x.host); got != x.want {
			t.Errorf("%+v: %q", x.host, got)
		}
	}
	if got := (&Needs{}).Missing(&About{Machine: "aarch64", Kernel: "2.4.0"}); got != "" {
		t.Errorf("a script: %q", got)
	}
}

// TestNeedsOfPrograms: what programs of this machine need, and what a header for another one says.
func TestNeedsOfPrograms(t *testing.T) {
	f, err := os.Open("/bin/sh")
	must(t, err)
	defer f.Close()
	n, ok := needsOf(f)
	if want := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]; !ok || n.Machine != want {
		t.Errorf("sh: %+v, %v", n, ok)
	}
	name := t.TempDir() + "/cc"
	b, err := os.ReadFile("/bin/sh")
	must(t, err)
	binary.LittleEndian.PutUint16(b[18:], uint16(elf.EM_AARCH64))
	must(t, os.WriteFile(name, b, 0o755))
	g, err := os.Open(name)
	must(t, err)
	defer g.Close()
	if n, ok := needsOf(g); !ok || n.Machine != "aarch64" {
		t.Errorf("changed: %+v, %v", n, ok)
	}
	text, err := os.Open("needs_test.go")
	must(t, err)
	defer text.Close()
	if n, ok := needsOf(text); ok {
		t.Errorf("a text: %+v", n)
	}
}

// TestABITag: the note is found among others, and broken notes are not read.
func TestABITag(t *testing.T) {
	o := binary.LittleEndian
	note := func(name string, kind uint32, words ...uint32) (b []byte) {
		b = o.AppendUint32(o.AppendUint32(o.AppendUint32(nil, uint32(len(name))), uint32(4*len(words))), kind)
		b = append(b, name...)
		for len(b)%4 != 0 {
			b = append(b, 0)
		}
		for _, w := range words {
			b = o.AppendUint32(b, w)
		}
		return b
	}
	tag := note("GNU\x00", 1, 0, 4, 19, 2)
	for what, x := range map[string]struct {
		notes []byte
		want  Version
	}{
		"alone":           {tag, Version{4, 19, 2}},
		"behind":          {append(note("GNU\x00", 3, 1, 2, 3, 4, 5), tag...), Version{4, 19, 2}},
		"of another":      {note("Go\x00\x00", 1, 0, 4, 19, 2), Version{}},
		"another system":  {note("GNU\x00", 1, 1, 4, 19, 2), Version{}},
		"too short":       {note("GNU\x00", 1, 0, 4, 19), Version{}},
		"cut off":         {tag[:len(tag)-1], Version{}},
		"an endless name": {append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0}, tag...), Version{}},
		"none":            {nil, Version{}},
	} {
		if got := abiTag(x.notes, o); got != x.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}
