package run

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/unit"
)

// TestPairsGiveUp: an assembler that does not read to the end is soon run after cc1, and later tried at the
// same time again, because the reason may have been one client.
func TestPairsGiveUp(t *testing.T) {
	var p pairs
	bad, good := unit.ToolchainID{1}, unit.ToolchainID{2}
	var ran []string
	for i := range 2 * (mostApart + inTurn) {
		if p.allowed(bad) {
			ran = append(ran, fmt.Sprint(i))
			p.ended(bad, true)
		}
		if !p.allowed(good) {
			t.Fatal("another compiler is given up as well")
		}
		p.ended(good, false)
	}
	if got, want := strings.Join(ran, " "), "0 1 2 67 132"; got != want {
		t.Errorf("tried in compiles %s, want %s", got, want)
	}
	for range inTurn + 1 {
		if p.allowed(bad) {
			p.ended(bad, false)
			break
		}
	}
	for range mostApart {
		if !p.allowed(bad) {
			t.Error("an assembler that has read all is still given up")
		}
		p.ended(bad, true)
	}
}

// TestProgramsOfSentToolchains: a step's program is one that the toolchain shows, in the order of SearchPath, whatever lies in
// this host's directories or where the toolchain's links lead.
func TestProgramsOfSentToolchains(t *testing.T) {
	files := []string{"/bin/as", "/opt/bin/ld", "/usr/bin/as"}
	for name, want := range map[string]string{"as": "/usr/bin/as", "ld": "ld", "sh": "sh", "": ""} {
		if got := lookAmong(files, name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
