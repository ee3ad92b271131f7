package iwarptest

import (
	"encoding/hex"
	"flag"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/inproc"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

var (
	programs = flag.Int("programs", 60, "random programs of verbs for each transport")
	seed     = flag.Uint64("seed", 1, "the first of them")
	program  = flag.String("program", "", "run this program, in hexadecimal, and no other")
)

func randomProgram(seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 0))
	p := make([]byte, 200+rng.IntN(2000))
	for i := range p {
		p[i] = byte(rng.Uint32())
	}
	return p
}

func overMemory(t testing.TB) (iwarp.Device, iwarp.Device, string) {
	n := NewNetwork()
	return open(t, n.Config()), open(t, n.Config()), "127.0.0.1:0"
}

func inProcess(testing.TB) (iwarp.Device, iwarp.Device, string) {
	n := inproc.NewNetwork()
	return n.Open(inproc.Defaults()), n.Open(inproc.Defaults()), "b:0"
}

// inBubble runs a program in a bubble, where synctest.Wait tells that all is done.
func inBubble(t *testing.T, tr Transport, program []byte) (err error) {
	synctest.Test(t, func(t *testing.T) { err = RunProgram(t, tr, synctest.Wait, program) })
	return err
}

// shrink makes a failing program shorter, as long as it fails.
func shrink(program []byte, fails func([]byte) bool) []byte {
	enough := time.Now().Add(time.Minute) // one that hangs takes long to fail
	for size := len(program) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(program) && time.Now().Before(enough); {
			shorter := append(append([]byte(nil), program[:at]...), program[at+size:]...)
			if fails(shorter) {
				program = shorter
			} else {
				at += size
			}
		}
	}
	return program
}

func testPrograms(t *testing.T, do func(t *testing.T, program []byte) error) {
	if *program != "" {
		p, err := hex.DecodeString(*program)
		if err == nil {
			err = do(t, p)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	for s := *seed; s < *seed+uint64(*programs); s++ {
		program := randomProgram(s)
		err := do(t, program)
		if err == nil {
			continue
		}
		program = shrink(program, func(p []byte) bool { return do(t, p) != nil })
		t.Fatalf("seed %d: %v; as short as it still fails (nil: it did so only once): %v", s, err, do(t, program))
	}
}

func TestProgramsInProcess(t *testing.T) {
	testPrograms(t, func(t *testing.T, p []byte) error { return inBubble(t, inProcess, p) })
}

func TestProgramsMemory(t *testing.T) {
	testPrograms(t, func(t *testing.T, p []byte) error { return inBubble(t, overMemory, p) })
}

func TestProgramsTCP(t *testing.T) {
	testPrograms(t, func(t *testing.T, p []byte) error {
		return RunProgram(t, func(t testing.TB) (iwarp.Device, iwarp.Device, string) {
			return open(t, iwarp.Config{}), open(t, iwarp.Config{}), "127.0.0.1:0"
		}, nil, p)
	})
}

// TestProgramsOneDevice connects a device with itself.
func TestProgramsOneDevice(t *testing.T) {
	testPrograms(t, func(t *testing.T, p []byte) error {
		return inBubble(t, func(testing.TB) (iwarp.Device, iwarp.Device, string) {
			d := inproc.NewNetwork().Open(inproc.Defaults())
			return d, d, "b:0"
		}, p)
	})
}

// FuzzVerbs looks for programs whose outcome over the software stack, or without a wire, differs from that
// in the model.
func FuzzVerbs(f *testing.F) {
	f.Fuzz(func(t *testing.T, program []byte) {
		for _, tr := range []Transport{inProcess, overMemory} {
			if err := inBubble(t, tr, program); err != nil {
				t.Fatal(err)
			}
		}
	})
}
