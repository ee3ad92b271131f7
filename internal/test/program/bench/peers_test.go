package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
)

// TestPeerSamples takes a short sample of each side that is installed: all that was sent has arrived, and took time of both programs.
func TestPeerSamples(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs")
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{ctx: t.Context(), tmp: t.TempDir(), bin: farmtest.Programs(t), gcc: gcc, acct: &accounting{}}
	sides, err := b.peerSides()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sides {
		for _, c := range []peerCase{{"write", 64 << 10, 2, true}, {"send", 64, 1, false}, {"read", 64, 1, true}} {
			x, err := s.sample(c, 0.05)
			if err == errNotThere && s.name == ucx {
				continue
			}
			if err != nil {
				t.Errorf("%s, %v: %v", s.name, c, err)
			} else if x.bytes <= 0 || x.seconds <= 0 || x.cpu <= 0 || x.value(c) <= 0 {
				t.Errorf("%s, %v: %+v", s.name, c, x)
			}
		}
	}
	t.Logf("%d of 4 sides", len(sides))
}

// TestPeerTable: medians, ratios to the better peer that are medians of the rounds', and a mark where a side has no such test.
func TestPeerTable(t *testing.T) {
	at := func(gbps ...float64) (s []peerSample) {
		for _, v := range gbps {
			s = append(s, peerSample{bytes: v * 1e9, seconds: 1, cpu: 1e9})
		}
		return s
	}
	table := &peerTable{sides: []*peerSide{{name: oursPlain}, {name: oursCRC}, {name: libfabric}, {name: ucx}}}
	table.add(peerCase{"write", 4 << 10, 8, true}, map[string][]peerSample{oursPlain: at(2, 4, 9), oursCRC: at(1, 1, 1), libfabric: at(1, 4, 3)})
	var out strings.Builder
	table.print(&out)
	if want := "| write 4 KiB, 8, asleep: GB/s | 4 | 1 | 3 | - | 2.00 | 0.33 |\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("%q, want it to end with %q", out.String(), want)
	}
}

// TestUCXLine: the last line of ucx_perftest -f.
func TestUCXLine(t *testing.T) {
	s, err := parseUCX("+---+\n                        1000      6.780   212.221   704.702        0.29       0.09        4712        1419\n", 64)
	if err != nil || s.p50 != 13.56 || s.bytes != 64000 || s.seconds < 0.704 || s.seconds > 0.705 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := parseUCX("connection refused", 64); err == nil {
		t.Error("another line is taken for figures")
	}
}
