package resultcache

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
)

func room(n int) ([]byte, error) { return make([]byte, n), nil }

// sample returns an entry whose outputs have n bytes and more.
func sample(n int) *Entry {
	return &Entry{
		Key:    Key{1, 2, 3},
		Origin: Origin{Made: time.Unix(1700000000, 5), Host: "build7:7632", Builder: "desk", Source: "a b.c", Compiler: "gcc 12.2.0", Base: "/home/a", CPU: 1500 * time.Microsecond, Wall: 2 * time.Millisecond},
		Exit:   0, Stdout: []byte{}, Stderr: []byte("a.c:1: warning\n"),
		Files: []File{{Index: 0, Data: bytes.Repeat([]byte("object "), n/7+1)}, {Index: 3, Data: []byte{}}, {Index: 7, Data: []byte("a.o: a.c\n")}},
	}
}

func TestRoundTrip(t *testing.T) {
	for _, n := range []int{0, 100, packFrom, 1 << 20} {
		e := sample(n)
		b, err := e.Append([]byte("before"))
		if err != nil {
			t.Fatal(err)
		}
		b = b[len("before"):]
		got, err := Decode(b, e.Key, room)
		if err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("%d bytes: %v, %+v\nwant %+v", n, err, got, e)
		}
		if key, origin, err := Describe(b); err != nil || key != e.Key || origin != e.Origin {
			t.Errorf("Describe: %v, %v, %+v", err, key, origin)
		}
		if n == 1<<20 && len(b) > n/10 {
			t.Errorf("%d bytes of repeated text are kept in %d", n, len(b))
		}
	}
}

// TestRaw: a result in one piece, as a host has it, is kept in the same way.
func TestRaw(t *testing.T) {
	for _, n := range []int{10, 5000} {
		e := sample(n)
		r := Raw{Key: e.Key, Origin: e.Origin, Exit: e.Exit, Stdout: uint32(len(e.Stdout)), Stderr: uint32(len(e.Stderr))}
		r.Outputs = append(append(r.Outputs, e.Stdout...), e.Stderr...)
		for _, f := range e.Files {
			r.Files = append(r.Files, RawFile{f.Index, uint32(len(f.Data))})
			r.Outputs = append(r.Outputs, f.Data...)
		}
		front, err := r.AppendFront([]byte("before"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(append(front[len("before"):], r.Outputs...), e.Key, room)
		if err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("%d bytes: %v, %+v\nwant %+v", n, err, got, e)
		}
	}
}

// TestMadeBy: an entry gets another host and nothing else.
func TestMadeBy(t *testing.T) {
	for _, n := range []int{10, 5000} {
		e := sample(n)
		b, err := e.Append(nil)
		if err == nil {
			b, err = MadeBy(b, e.Key, "another:1")
		}
		if err != nil {
			t.Fatal(err)
		}
		want := *e
		want.Host = "another:1"
		if got, err := Decode(b, e.Key, room); err != nil || !reflect.DeepEqual(got, &want) {
			t.Errorf("%v: %+v", err, got)
		}
		if _, err := MadeBy(b, Key{9}, "x"); !errors.Is(err, ErrDamaged) {
			t.Errorf("for another key: %v", err)
		}
	}
}

// BenchmarkRaw is what the sum and the head of a result of 10 KB cost.
func BenchmarkRaw(b *testing.B) {
	r := Raw{Outputs: make([]byte, 10<<10), Files: make([]RawFile, 2)}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf, _ = r.AppendFront(buf[:0])
	}
}

// TestGolden: what older builds have kept can be read, or has another version.
func TestGolden(t *testing.T) {
	e := &Entry{Key: Key{0xab}, Origin: Origin{Made: time.Unix(0, 1), Host: "h"}, Stdout: []byte{}, Stderr: []byte{}, Files: []File{{Index: 1, Data: []byte("xy")}}}
	b, err := e.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(append(append([]byte{}, b[:sumAt]...), b[headAt:]...))
	want := hex.EncodeToString([]byte("rdistcc\x01")) + "ab" + hex.EncodeToString(make([]byte, 31)) + hex.EncodeToString(sum[:]) +
		"38000000" + "0100000000000000" + "01000000" + "68" + "00000000" + "00000000" + "00000000" + "00000000" + "00000000" + "00000000" + "00" + "00" +
		"00000000" + "00000000" + "01000000" + "01" + "02000000" + hex.EncodeToString([]byte("xy"))
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestEveryBit: an entry that differs in any bit, or is cut at any place, is damaged.
func TestEveryBit(t *testing.T) {
	for _, n := range []int{10, 2000} {
		e := sample(n)
		b, err := e.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range b {
			for bit := range 8 {
				b[i] ^= 1 << bit
				if _, err := Decode(b, e.Key, room); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrVersion) {
					t.Fatalf("byte %d, bit %d: %v", i, bit, err)
				}
				b[i] ^= 1 << bit
			}
			if _, err := Decode(b[:i], e.Key, room); !errors.Is(err, ErrDamaged) {
				t.Fatalf("cut after %d bytes: %v", i, err)
			}
		}
		if _, err := Decode(append(b, 0), e.Key, room); !errors.Is(err, ErrDamaged) {
			t.Errorf("a byte too many: %v", err)
		}
	}
}

// TestForged: an entry whose sum is right is still read with care, and it is the answer to its own question only.
func TestForged(t *testing.T) {
	e := sample(2000)
	b, err := e.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Decode(b, Key{9}, room); !errors.Is(err, ErrDamaged) {
		t.Errorf("the result of another compile: %v", err)
	}
	full := errors.New("full")
	if _, err := Decode(b, e.Key, func(int) ([]byte, error) { return nil, full }); !errors.Is(err, full) {
		t.Errorf("no room: %v", err)
	}
	b[keyAt-1] += 2 // beyond that of signed ones
	if _, err := Decode(b, e.Key, room); !errors.Is(err, ErrVersion) {
		t.Errorf("a later version: %v", err)
	}
	b[keyAt-1] -= 2
	for i := headAt; i < len(b); i++ {
		b[i] ^= 0xff
		sum := sumOf(b)
		copy(b[sumAt:], sum[:])
		got, err := Decode(b, e.Key, func(n int) ([]byte, error) {
			if n > 1<<24 {
				return nil, full
			}
			return room(n)
		})
		if err == nil && len(got.Files) > 0 && got.Len() > 1<<24 {
			t.Errorf("byte %d: %d bytes of outputs", i, got.Len())
		}
		b[i] ^= 0xff
	}
}

// FuzzDecode: no input makes Decode panic, or take more memory than room gives.
func FuzzDecode(f *testing.F) {
	for _, n := range []int{0, 300} {
		b, err := sample(n).Append(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(signed(f, sample(n), sign))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= HeaderLen { // otherwise no input would get past the sum
			sum := sumOf(b)
			if _, s, _ := unsign(b); s != nil {
				sum = signedSum(s.Sum, b[len(b)-signedTail-len(s.Signature):])
			}
			copy(b[sumAt:], sum[:])
		}
		limit := errors.New("limit")
		e, err := Decode(b, Key{1, 2, 3}, func(n int) ([]byte, error) {
			if n > 1<<20 {
				return nil, limit
			}
			return make([]byte, n), nil
		})
		if err == nil {
			if _, err := e.Append(nil); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestKeyDependsOnEverything changes each part of a job, and expects another key, but not for a change that
// makes no difference to a compile.
func TestKeyDependsOnEverything(t *testing.T) {
	base := func() (unit.ToolchainID, *job.Body, [32]byte) {
		return unit.ToolchainID{1}, &job.Body{Argv0: "gcc", Compiler: "/usr/bin/gcc-12", Args: []string{"-c", "a.c"}, Front: 1, Language: "c", Name: "a.c", Cwd: "/w",
			Env: []string{"PWD=/w", "CPATH=/i"}, Outputs: []unit.Output{{Name: "a.o"}, {Kind: unit.OutputDependency, Name: "a.d", Optional: true}}}, [32]byte{7}
	}
	tc, b, in := base()
	key := KeyOf(tc, b, in)
	seen := map[Key]string{key: "nothing"}
	for what, change := range map[string]func(b *job.Body, tc *unit.ToolchainID, in *[32]byte){
		"toolchain": func(_ *job.Body, tc *unit.ToolchainID, _ *[32]byte) { tc[15]++ },
		"inputs":    func(_ *job.Body, _ *unit.ToolchainID, in *[32]byte) { in[31]++ },
		"argv0":     func(b *job.Body, _ *unit.ToolchainID, _ *[32]byte) { b.Argv0 = "cc" },
		"compiler":  func(b *job.Body, _ *unit.ToolchainID, _ *[32]byte) { b.Compiler = "/opt/gcc-12" },
		"word":      func(b *job.Body, _ *unit.ToolchainID, _ *[32]byte) { b.Args[0] = "-C" },
		"words":     func(b *job.Body, _ *unit.ToolchainID, _ *[32]byte) { b.Args = []string{"-c a.c"} },
		"front":     func(b *job.Body, _ *unit.ToolchainID, _ *[32]byte) { b.Front = 0 },
		"language":  func(b *job.Body, _ *unit.ToolchainID, _ *[32]byte) { b.Language = "c++" },
		"name":      func(b *job.Body, _ *unit.ToolchainID, _ *[32]byte) { b.Name = "b.c" },
		"cwd":       func(b *job.Body, _ *unit.ToolchainID, _ *[32]byte) { b.Cwd = "/w/x" },
		"variable":  func(b *job.Body, _ *unit.ToolchainID, _ *[32]byte) { b.Env[1] = "CPATH=/j" },
		"variables": func(b *job.Body, _ *unit.ToolchainID, _ *[32]byte) { b.Env = b.Env[:1] },
		"output":    func(b *job.Body, _ *unit.ToolchainID, _ *[32]byte) { b.Outputs[0].Name = "b.o" },
		"outputs":   func(b *job.Body, _ *unit.ToolchainID, _ *[32]byte) { b.Outputs = b.Outputs[:1] },
		"kind":      func(b *job.Body, _ *unit.ToolchainID, _ *[32]byte) { b.Outputs[1].Kind = unit.OutputSide },
		"optional":  func(b *job.Body, _ *unit.ToolchainID, _ *[32]byte) { b.Outputs[1].Optional = false },
		"two variables of one name": func(b *job.Body, _ *unit.ToolchainID, _ *[32]byte) {
			b.Env = []string{"PWD=/w", "CPATH=/j", "CPATH=/i"}
		},
		"two variables in another order": func(b *job.Body, _ *unit.ToolchainID, _ *[32]byte) {
			b.Env = []string{"PWD=/w", "CPATH=/i", "CPATH=/j"}
		},
	} {
		tc, b, in := base()
		change(b, &tc, &in)
		k := KeyOf(tc, b, in)
		if other, known := seen[k]; known {
			t.Errorf("%s: the key is that of %s", what, other)
		}
		seen[k] = what
	}
	tc, b, in = base()
	b.Env[0], b.Env[1] = b.Env[1], b.Env[0]
	b.Files = []unit.File{{Name: "a.c", MTime: 9}}
	if KeyOf(tc, b, in) != key {
		t.Error("the order of variables, or the time of a file, makes a difference")
	}
}

func TestParseKey(t *testing.T) {
	k := Key{0xab, 31: 0xcd}
	if got, ok := ParseKey(k.String()); !ok || got != k {
		t.Errorf("%s: %s, %v", k, got, ok)
	}
	for _, s := range []string{"", "ab", k.String()[1:], k.String() + "0", k.String()[:62] + "xy"} {
		if _, ok := ParseKey(s); ok {
			t.Errorf("%q is taken for a key", s)
		}
	}
}
