package capture

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFullDisk: a disk that fills up ends the capture with one line, and Close tells of it; what was to be sent is sent.
func TestFullDisk(t *testing.T) {
	var said []string
	f, err := Create(filepath.Join(t.TempDir(), "c.pcapng"), Options{Log: func(s string) { said = append(said, s) }})
	if err != nil {
		t.Fatal(err)
	}
	_ = f.f.Close()
	if f.f, err = os.OpenFile("/dev/full", os.O_WRONLY, 0); err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	defer far.Close()
	c := f.wrap(near, true)
	go func() { _, _ = c.Write([]byte("anything")) }()
	b := make([]byte, 16)
	if n, err := far.Read(b); err != nil || string(b[:n]) != "anything" {
		t.Errorf("%q, %v arrived", b[:n], err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if len(said) != 1 || !strings.HasSuffix(said[0], "no space left on device") {
		t.Errorf("said %q", said)
	}
	if err := f.Close(); err == nil {
		t.Error("Close tells nothing")
	}
	if c := f.wrap(near, true); c != near {
		t.Error("a capture that has ended still slows connections down")
	}
}

// TestSplit: the same units, however the stream is chunked.
func TestSplit(t *testing.T) {
	frame := append([]byte("MPA ID Req Frame"), 0x40, 1, 0, 3, 'a', 'b', 'c')
	fpdu := []byte{0, 3, 1, 2, 3, 0, 0, 0, 9, 9, 9, 9}
	all := append(append(append([]byte(nil), frame...), fpdu...), fpdu...)
	for size := 1; size <= len(all); size++ {
		var s stream
		var got []string
		for from := 0; from < len(all); from += size {
			b := all[from:min(from+size, len(all))]
			for len(b) > 0 {
				unit, rest, err := s.next(b)
				if err != nil {
					t.Fatal(err)
				}
				if unit != nil {
					got = append(got, string(unit))
				}
				b = rest
			}
		}
		if len(got) != 3 || got[0] != string(frame) || got[1] != string(fpdu) || got[2] != string(fpdu) {
			t.Fatalf("chunks of %d: %q", size, got)
		}
	}
}
