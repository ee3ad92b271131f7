package job

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/unit"
)

var (
	sixteen = [16]byte{0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf}
	load    = Load{Jobs: 8, Running: 7, Queued: 3, Free: 1, Draining: true, LoadAvg: 250, MemoryFree: 1 << 33}
	credit  = Credit{ID: 0x0102, Slot: Window{STag: 0xdeadbeef, TO: 64, Len: 1 << 20}}
)

const (
	sixteenHex = "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
	loadHex    = "0800 0700 0300 0100 01 fa000000 0000000002000000"
	creditHex  = "0201000000000000 efbeadde 4000000000000000 0000100000000000"
)

// golden holds each message beside the bytes that docs/protocol.md promises.
var golden = []struct {
	m   Message
	hex string
}{
	{&Hello{Name: "build7", Want: 4, Weight: 3, Bare: true}, "01 06 6275696c6437 0400 0300 01"},
	{&Hello{Name: "build7", Want: 4, Weight: 3, Program: "1.2"}, "01 06 6275696c6437 0400 0300 00 03 312e32"},
	{&Welcome{Boot: sixteen, Jobs: 8, MaxBody: 1 << 25, MaxSource: 1 << 28, Eager: 1 << 14, MaxResult: 1 << 26, Toolchains: 2, Identifying: true,
		Board: Window{STag: 1, TO: 2, Len: 256}, Tree: true, Zstd: true, SlotsKept: true, Sandbox: 0x0203, Clock: 0x0102, Program: "v1", Store: 1 << 30, StoreEpoch: 0x0506,
		Shelf: Window{STag: 3, TO: 4, Len: 1 << 26}, Group: "team", Load: load},
		"02" + sixteenHex + "0800 0000000200000000 0000001000000000 00400000 0000000400000000 0200 01" +
			"01000000 0200000000000000 0001000000000000 01 01 01 0302 0201000000000000 02 7631 0000004000000000 0605000000000000 03000000 0400000000000000 0000000400000000 04 7465616d" + loadHex},
	{&Toolchains{Seq: 1, First: 1, Total: 2, More: true, IDs: []unit.ToolchainID{sixteen}}, "03 01000000 0100 0200 01 01" + sixteenHex},
	{&Toolchains{Seq: 2}, "03 02000000 0000 0000 00 00"},
	{&Grant{Seq: 2, Credits: []Credit{credit}}, "04 02000000 01" + creditHex},
	{&Recall{Seq: 3, Count: 2}, "05 03000000 0200"},
	{&Return{Credit: 9}, "06 0900000000000000"},
	{&Job{ID: 5, Credit: 6, Toolchain: sixteen, BodyLen: 100, TextOff: 128, TextLen: 4096,
		Sink: Window{STag: 7, TO: 8, Len: 9}, Source: Window{STag: 10, TO: 11, Len: 12}, Fetch: 1 << 28, Timeout: 60000, Digest: sixteen,
		Packed: 700, Memory: 1 << 29, Expect: 2500, Zstd: true, Store: true, Key: [32]byte(append(sixteen[:], sixteen[:]...)), Join: true, Base: "/b", Moved: [32]byte(append(sixteen[:], sixteen[:]...))},
		"07 0500000000000000 0600000000000000" + sixteenHex + "64000000 80000000 0010000000000000" +
			"07000000 0800000000000000 0900000000000000 0a000000 0b00000000000000 0c00000000000000" +
			"0000001000000000 60ea0000" + sixteenHex + "bc02000000000000 0000002000000000 c4090000 01 01" + sixteenHex + sixteenHex + "01 02 2f62" + sixteenHex + sixteenHex + "00000000"},
	{&Job{ID: 5, Credit: 6, Toolchain: sixteen, BodyLen: 1, TextOff: 64, Sink: Window{STag: 7, TO: 8, Len: 9}, Carried: []byte("source")},
		"07 0500000000000000 0600000000000000" + sixteenHex + "01000000 40000000 0000000000000000" +
			"07000000 0800000000000000 0900000000000000" + strings.Repeat("00", 20) +
			"0000000000000000 00000000" + strings.Repeat("00", 16) + "0000000000000000 0000000000000000 00000000 00 00" + strings.Repeat("00", 32) + "00 00 06000000 736f75726365"},
	{&Grant{Seq: 2, Credits: []Credit{{ID: 0x0102}}}, "04 02000000 01 0201000000000000" + strings.Repeat("00", 20)},
	{&Result{ID: 5, Status: StatusFailed, Cause: CauseTooBig, Exit: 1, Signal: 9,
		Stdout: Segment{1, 2}, Stderr: Segment{3, 4}, Files: []File{{Index: 1, Exec: true, Segment: Segment{5, 6}}},
		Queue: 10, Wall: 11, CPU: 12, MaxRSS: 13, Window: Window{STag: 14, TO: 15, Len: 16}, Load: load, Next: &credit, Digest: sixteen, Packed: 800, Joined: true, Detail: "big"},
		"08 0500000000000000 02 0a 01 09" +
			"0100000000000000 0200000000000000 0300000000000000 0400000000000000" +
			"01 01 01 0500000000000000 0600000000000000" +
			"0a000000 0b000000 0c000000 0d00000000000000" +
			"0e000000 0f00000000000000 1000000000000000" + loadHex + "01" + creditHex + sixteenHex + "2003000000000000 01 03 626967"},
	{&Cancel{Seq: 4, Jobs: []uint64{5, 6}}, "09 04000000 02 0500000000000000 0600000000000000"},
	{&Heartbeat{Seq: 5}, "0a 05000000"},
	{&Drain{Seq: 6}, "0b 06000000"},
	{&Ack{Of: KindDrain, Seq: 6, Load: load}, "0c 0b 06000000" + loadHex},
	{&Release{ID: 5}, "0d 0500000000000000"},
	{&Demand{Seq: 7, Jobs: 12, Builds: 2}, "0e 07000000 0c00 0200"},
	{&Ack{Of: KindDemand, Seq: 7, Load: load}, "0c 0e 07000000" + loadHex},
	{&Compilers{Seq: 7, Names: []string{"gcc 12.2.0", "clang 16"}}, "10 07000000 02 0a" + hex.EncodeToString([]byte("gcc 12.2.0")) + "08" + hex.EncodeToString([]byte("clang 16"))},
	{&Keep{Seq: 8, Key: [32]byte(append(sixteen[:], sixteen[:]...)), Window: Window{STag: 14, TO: 15, Len: 16}},
		"11 08000000" + sixteenHex + sixteenHex + "0e000000 0f00000000000000 1000000000000000"},
	{&Ack{Of: KindKeep, Seq: 8, Load: load}, "0c 11 08000000" + loadHex},
	{&Proof{MAC: [ProofLen]byte{0: 1, 31: 2}}, "0f 01" + strings.Repeat("00", 30) + "02"},
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGoldenMessages(t *testing.T) {
	for _, g := range golden {
		want := unhex(t, g.hex)
		if got := Append(nil, g.m); !bytes.Equal(got, want) {
			t.Errorf("Append(%T):\n got %x\nwant %x", g.m, got, want)
		}
		got, err := Parse(want)
		if err != nil || !reflect.DeepEqual(got, g.m) {
			t.Errorf("Parse(%T) = %+v, %v; want %+v", g.m, got, err, g.m)
		}
	}
}

// Every shorter and every longer message is refused: no field has a default, but one that a Hello of version 11 does not have.
func TestMessageLengthIsExact(t *testing.T) {
	for _, g := range golden {
		b := unhex(t, g.hex)
		for n := range b {
			if h, is := g.m.(*Hello); is && h.Program != "" && n == len(b)-1-len(h.Program) {
				continue
			}
			if m, err := Parse(b[:n]); !errors.Is(err, ErrMalformed) {
				t.Errorf("%T cut to %d of %d bytes: got %+v, %v", g.m, n, len(b), m, err)
			}
		}
		if _, err := Parse(append(b, 0)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%T and one byte more: error is %v", g.m, err)
		}
	}
}

func TestLargestMessagesFit(t *testing.T) {
	r := &Result{Next: &credit, Files: make([]File, MaxOutputs), Detail: strings.Repeat("x", MaxDetail)}
	for _, m := range []Message{
		r,
		&Toolchains{Total: MaxIDs, IDs: make([]unit.ToolchainID, MaxIDs)},
		&Grant{Credits: make([]Credit, MaxCredits)},
		&Cancel{Jobs: make([]uint64, MaxCancels)},
	} {
		b := Append(nil, m)
		if _, err := Parse(b); err != nil || len(b) > MaxMessage {
			t.Errorf("%T of %d bytes: %v", m, len(b), err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ name, hex, want string }{
		{"empty", "", "length"},
		{"kind 0", "00", "kind"},
		{"kind 18", "12", "kind"},
		{"eager jobs too long", "02" + sixteenHex + "0800" + strings.Repeat("00", 16) + "01001000" + strings.Repeat("00", 200), "past their limit"},
		{"carries less than it says", "07" + strings.Repeat("00", 174) + "02000000 01", "carries"},
		{"name too long", "01 41" + strings.Repeat("61", 65) + "0000", "too long"},
		{"escape in a name", "01 01 1b 0000", "control"},
		{"too many credits", "04 00000000 11" + strings.Repeat(creditHex, 17), "list too long"},
		{"toolchains past total", "03 00000000 0200 0200 00 01" + sixteenHex, "past their total"},
		{"window that wraps", "04 00000000 01 0000000000000000 01000000 ffffffffffffffff 0100000000000000", "wraps"},
		{"ack of an ack", "0c 0c 00000000" + loadHex, "acknowledges"},
		{"nothing to keep", "11 00000000" + sixteenHex + sixteenHex + "0e000000 0f00000000000000 0000000000000000", "keep"},
		{"no window to keep from", "11 00000000" + sixteenHex + sixteenHex + "00000000 0f00000000000000 0100000000000000", "keep"},
		{"too much to keep", "11 00000000" + sixteenHex + sixteenHex + "0e000000 0f00000000000000 0100400000000000", "keep"},
		{"bool of 2", "0c 0b 00000000 0000 0000 0000 0000 02 00000000 0000000000000000", "neither"},
	} {
		_, err := Parse(unhex(t, c.hex))
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v, want one with %q", c.name, err, c.want)
		}
	}
}

func TestGreeting(t *testing.T) {
	g := Greeting{Version: Version, Boot: sixteen}
	want := unhex(t, "52444343 0c00"+sixteenHex)
	if got := g.Append(nil); !bytes.Equal(got, want) || len(got) != GreetingLen {
		t.Errorf("Append = %x, want %x", got, want)
	}
	for _, n := range []int{AskLen, AnswerLen} {
		with := Greeting{Version: Version, Boot: sixteen, Auth: bytes.Repeat([]byte{7}, n)}
		b := with.Append(nil)
		if got, err := ParseGreeting(b); err != nil || !reflect.DeepEqual(got, with) || len(b) != GreetingLen+n {
			t.Errorf("ParseGreeting with %d bytes of a proof = %+v, %v", n, got, err)
		}
		if _, err := ParseGreeting(b[:len(b)-1]); !errors.Is(err, ErrMalformed) {
			t.Errorf("a proof cut short: error is %v", err)
		}
	}
	if got, err := ParseGreeting(want); err != nil || !reflect.DeepEqual(got, g) {
		t.Errorf("ParseGreeting = %+v, %v", got, err)
	}
	if _, err := ParseGreeting(append(want, 0)); err == nil {
		t.Error("a longer greeting of this version is taken")
	}
	for _, s := range []string{"", "GET / HTTP/1.1", "RDCC", "RDCC\x01", "RDCC\x0b\x00short"} {
		if _, err := ParseGreeting([]byte(s)); !errors.Is(err, ErrMalformed) {
			t.Errorf("ParseGreeting(%q): error is %v", s, err)
		}
	}
	// A later version may have another form; its number is all that counts.
	if got, err := ParseGreeting([]byte("RDCC\x0d\x00anything")); err != nil || got.Version != 13 {
		t.Errorf("greeting of version 13 = %+v, %v", got, err)
	}
}

// TestInstead: a manager dials again with an older version that the daemon speaks, and only with one that it speaks itself.
func TestInstead(t *testing.T) {
	for _, c := range []struct {
		j     Rejection
		tried uint16
		ok    bool
	}{
		{Rejection{Version: Oldest, Cause: CauseVersion}, Version, true},
		{Rejection{Version: Oldest, Cause: CauseVersion}, Oldest, false},
		{Rejection{Version: Oldest - 1, Cause: CauseVersion}, Version, false},
		{Rejection{Version: Version + 1, Cause: CauseVersion}, Version, false},
		{Rejection{Version: Oldest, Cause: CauseDenied}, Version, false},
	} {
		if got, ok := c.j.Instead(c.tried); ok != c.ok || ok && got != c.j.Version {
			t.Errorf("%+v after %d: %d, %v", c.j, c.tried, got, ok)
		}
	}
}

func TestRejection(t *testing.T) {
	j := Rejection{Cause: CauseDenied, Detail: "10.0.0.1 is in no --allow network"}
	b := j.Append(nil)
	if want := "RDCC\x0c\x00\x06\x21" + j.Detail; string(b) != want {
		t.Errorf("Append = %q, want %q", b, want)
	}
	j.Version = Version
	if got, err := ParseRejection(b); err != nil || got != j {
		t.Errorf("ParseRejection = %+v, %v", got, err)
	}
	if _, err := ParseRejection(b[:len(b)-1]); !errors.Is(err, ErrMalformed) {
		t.Errorf("cut rejection: error is %v", err)
	}
	long := Rejection{Detail: strings.Repeat("é", 150) + "\nsecond line"}
	if got, err := ParseRejection(long.Append(nil)); err != nil || got.Detail != strings.Repeat("é", 100) {
		t.Errorf("long detail came as %q, %v", got.Detail, err)
	}
}

func TestClip(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain", "plain"}, {"two\nlines", "two"}, {"a\x1b[31mb", "a?[31m"}, {"ééé", "ééé"}, {"xéééé", "xéé"},
	} {
		if got := Clip(c.in, 6); got != c.want {
			t.Errorf("Clip(%q, 6) = %q, want %q", c.in, got, c.want)
		}
	}
}

func TestCauseWords(t *testing.T) {
	seen := map[string]bool{}
	for c := range numCauses {
		w := c.String()
		if w == "" || w == "unknown" || seen[w] {
			t.Errorf("cause %d has the word %q", c, w)
		}
		seen[w] = true
	}
}

func FuzzParse(f *testing.F) {
	for _, g := range golden {
		f.Add(unhex(f, g.hex))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		// The encoding is canonical: what parses is what would be sent.
		if again := Append(nil, m); !bytes.Equal(again, b) {
			t.Fatalf("%+v\nparsed from %x\nencodes as  %x", m, b, again)
		}
	})
}
