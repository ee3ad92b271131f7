package connmgr

import (
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
)

// TestMissedHere: of a command that runs here, nothing is said as if a result of it could have been kept.
func TestMissedHere(t *testing.T) {
	const missed, kept = "no result of an equal compile is kept", "only what hosts compile is kept"
	for why, want := range map[string][2]string{ // without private trees, and with them
		reason.NotReproducible + "pragma": {"no private trees", "by rule"},
		reason.Debug:                      {"no private trees", "by rule"},
		reason.Diagnostics:                {"no private trees", "by rule"},
		reason.Doubt + "messages":         {"by rule", "by rule"},
		reason.TooBig:                     {"by rule", "by rule"},
		reason.LocalShare:                 {missed, missed},
		reason.HostLost:                   {missed, missed},
		known.Changed:                     {missed, missed},
	} {
		for i, trees := range []bool{false, true} {
			got := missedHere(missed, why, trees)
			if !strings.Contains(got, want[i]) || !strings.Contains(got, kept) || strings.Contains(got, missed) != (want[i] == missed) {
				t.Errorf("%s, trees %v: %q, want %q", why, trees, got, want[i])
			}
		}
	}
	if got := missedHere("", reason.LocalShare, true); got != "" {
		t.Errorf("a command for which the cache was not asked: %q", got)
	}
}
