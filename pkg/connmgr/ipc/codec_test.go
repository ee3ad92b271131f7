package ipc

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/reason"
)

type message interface {
	Append(b []byte) []byte
	Parse(p []byte) error
}

// messages has one of each kind, with every field set.
var messages = map[Kind]message{
	KindLease: &Lease{Version: Version, Hosts: "a b", Mode: ModeRemote, Fallback: FallbackForbidden, Compiler: "/usr/bin/gcc", Source: "a b.c",
		Output: "o/a.o", Cwd: "/src", IOTimeoutMS: 5000, BackoffMS: NoBackoff, List: []string{"-M"}, Preprocess: []string{"-E", "x"},
		Language: "c++", NeedTree: true, Machine: []string{"-march=native"}, Unlisted: []string{"-mnew"}, Path: "/bin", Libraries: "/l", Build: "b", Cache: CacheRefresh, Base: "/b", Plugins: []string{"/p/a.so"}, PluginDir: "/p", Link: "/w/prog"},
	KindLeased: &Leased{Job: 1 << 40, SourceMax: 32 << 20, Family: "gcc", Major: 12, Direct: []string{"/cc1", "-E"},
		Tree: true, Fast: true, Include: []string{"/usr/include"}, Native: []string{"-march=x"}, NativeOrder: true},
	KindGoLocal: &GoLocal{Reason: "host-lost", Trouble: true, Code: reason.ExitConnect, Detail: "build7 lost", Host: "build7", NoFallback: true, Tell: TellReads},
	KindSubmit:  &Submit{BodyOff: 64, BodyLen: 100, TextOff: 128, TextLen: 1 << 33, PreprocessUS: 4500, Tree: true, Module: "a:p", ModuleFile: "gcm.cache/a-p.gcm", Imports: []string{"b", "./x.h"}},
	KindResult: &Result{Host: "h:1", Exit: 1, Signal: 9, Stdout: Segment{1, 2}, Stderr: Segment{3, 4},
		Files:    []File{{Index: 1, Segment: Segment{64, 1000}}, {Index: 2, Segment: Segment{1064, 7}}},
		CreditUS: 1, WriteUS: 2, QueueUS: 3, CompileUS: 4, ReturnUS: 5, BytesOut: 6, BytesIn: 7, Attempts: 2, Cached: "redis", Moved: true},
	KindLocal: &Local{Version: Version, Reason: "link", Turn: TurnLocal, Compiler: "cc", Source: "s", Output: "o", Build: "b", Closed: true},
	KindFinish: &Finish{Where: WhereLocal, Reason: "link", Exit: 1, TotalUS: 9, PreprocessUS: 8, CPUUS: 7,
		Closed: true},
	KindControl: &Control{Version: Version, Args: []string{"status", "--json", ""}, Hosts: "a"},
	KindWhole: &Whole{Version: Version, Terminal: true, SelfDev: 1, SelfIno: 2, View: View{3, 4, 5, 6, 7, 8},
		Words: "rdistcc\x00cc\x00", Environ: "A=\x00"},
	KindRan: &Ran{Words: []byte("w"), Reads: []byte("a.o: a.c"), CPUUS: 1, WallUS: 2},
	KindPlace: &Place{Files: []Placed{{How: PlacedRenamed, Name: "d/a.o", Dir: "d/.", Temp: "d/a-1.o", Segment: Segment{64, 1000}}, {Name: "a.d", Dir: "."}},
		Report: "remote:h:1\n"},
	KindReply: &Reply{Code: 3, Data: []byte("{}")},
}

// TestReplaceOfLaterVersions: a manager can be replaced by a later version.
func TestReplaceOfLaterVersions(t *testing.T) {
	want := Replace{Version: 200, Force: true}
	frame := want.Append(nil)
	k, fields, _, _, err := Next(frame)
	var got Replace
	if err != nil || k != KindReplace || got.Parse(append(fields, "more"...)) != nil || got != want {
		t.Errorf("kind %d, %+v, %v", k, got, err)
	}
	if err := got.Parse(fields[:1]); err != ErrMalformed {
		t.Errorf("half of it: %v", err)
	}
}

func blank(m message) message {
	return reflect.New(reflect.TypeOf(m).Elem()).Interface().(message)
}

func TestRoundTrip(t *testing.T) {
	for kind, m := range messages {
		frame := m.Append([]byte("before"))[len("before"):]
		k, fields, n, _, err := Next(frame)
		if err != nil || k != kind || n != len(frame) {
			t.Errorf("%T: Next = kind %d, %d of %d bytes, %v", m, k, n, len(frame), err)
			continue
		}
		got := blank(m)
		if err := got.Parse(fields); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%T: got %+v, %v\nwant %+v", m, got, err, m)
		}
	}
}

// TestEveryFieldMatters changes each byte of each frame, and expects another message or an error. It would
// find a field that is not encoded or is read from the wrong place.
func TestEveryFieldMatters(t *testing.T) {
	for _, m := range messages {
		frame := m.Append(nil)
		for i := HeaderLen; i < len(frame); i++ {
			frame[i] ^= 0x01
			got := blank(m)
			if err := got.Parse(frame[HeaderLen:]); err == nil && reflect.DeepEqual(got, m) {
				t.Errorf("%T: byte %d is not read", m, i)
			}
			frame[i] ^= 0x01
		}
	}
}

func TestTruncatedAndLongFrames(t *testing.T) {
	for _, m := range messages {
		fields := m.Append(nil)[HeaderLen:]
		for i := range fields {
			if err := blank(m).Parse(fields[:i]); err == nil {
				t.Errorf("%T: %d of %d bytes were enough", m, i, len(fields))
			}
		}
		if err := blank(m).Parse(append(fields, 0)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%T: a byte too many: %v, want ErrMalformed", m, err)
		}
	}
}

func TestLeaseBytes(t *testing.T) {
	m := Lease{Version: 1, Hosts: "h", Mode: ModeRemote, Fallback: FallbackForbidden, Compiler: "/c", Source: "s", Output: "", Cwd: "/", IOTimeoutMS: 0x01020304, BackoffMS: 5}
	want := "2a000000" + "01" + "01" + "01000000" + "68" + "01" + "02" + "02000000" + "2f63" + "01000000" + "73" + "00000000" + "01000000" + "2f" +
		"04030201" + "05000000" + "00000000" + "00000000" + "00000000" + "00" + "00000000" + "00000000" + "00000000" + "00000000" + "00000000" + "00" + "00000000" + "00000000" + "00000000" + "00000000" + "00"
	want = strings.Replace(want, "2a", hex.EncodeToString([]byte{byte(len(want)/2 - 4)}), 1)
	if got := hex.EncodeToString(m.Append(nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestOtherVersionIsSaid(t *testing.T) {
	for _, m := range []message{&Lease{Version: Version + 1}, &Local{Version: Version + 1}, &Control{Version: Version + 1}} {
		if err := blank(m).Parse(m.Append(nil)[HeaderLen:]); !errors.Is(err, ErrVersion) {
			t.Errorf("%T: %v, want ErrVersion", m, err)
		}
		if err := blank(m).Parse([]byte{Version + 1, 200, 200}); !errors.Is(err, ErrVersion) {
			t.Errorf("%T: fields of another version were read: %v", m, err)
		}
	}
}

func TestNextBounds(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want int
		bad  bool
	}{
		{"", 0, HeaderLen, false},
		{"\x01\x00\x00\x00", 0, HeaderLen, false},
		{"\x01\x00\x00\x00\x07", 5, 5, false},
		{"\x03\x00\x00\x00\x07a", 0, 7, false},
		{"\x00\x00\x00\x00\x07", 0, 0, true},
		{"\x01\x00\x40\x00\x07", 0, 0, true},
		{"\xff\xff\xff\xff\x07", 0, 0, true},
	} {
		_, _, n, want, err := Next([]byte(c.in))
		if n != c.n || want != c.want || (err != nil) != c.bad {
			t.Errorf("Next(%q) = %d, %d, %v; want %d, %d, error %v", c.in, n, want, err, c.n, c.want, c.bad)
		}
	}
}

func TestAppendDoesNotAllocate(t *testing.T) {
	buf := make([]byte, 0, 4096)
	lease := messages[KindLease].(*Lease)
	if n := testing.AllocsPerRun(100, func() { lease.Append(buf) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzParseFrame feeds any bytes to Next and every Parse. None panics, and a message that can be parsed gives
// the same bytes when it is encoded again.
func FuzzParseFrame(f *testing.F) {
	for _, m := range messages {
		f.Add(m.Append(nil))
	}
	f.Add(AppendBare(nil, KindGo))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, fields, n, _, err := Next(b)
		if err != nil || n == 0 {
			return
		}
		proto, ok := messages[k]
		if !ok {
			return
		}
		m := blank(proto)
		if m.Parse(fields) != nil {
			return
		}
		if again := m.Append(nil); !bytes.Equal(again, b[:n]) {
			t.Errorf("%T: %x became %x", m, b[:n], again)
		}
	})
}
