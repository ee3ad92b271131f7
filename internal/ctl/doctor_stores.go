package ctl

import (
	"fmt"
	"strings"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/tiers"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// stores checks whose results are taken from the stores that others use, if there are any.
func (d *doctor) stores(f *findings) {
	names := tiers.Shared(d.cfg)
	if !d.cfg.Cache.Use || len(names) == 0 {
		return
	}
	const check = "stores"
	what := strings.Join(names, ", ")
	whom := d.cfg.Trust()
	switch {
	case whom.Anyone && len(d.cfg.Cache.Trust) > 0:
		f.ok(check, "%s: unsigned, as cache.trust says: whoever can write there can give this machine wrong objects", what)
		return
	case whom.Anyone:
		f.warn(check, what+": unsigned: whoever can write there can give this machine wrong objects", "set auth.tls or cache.trust (docs/cache.md, Who has put a result there)")
		return
	case d.id == nil:
		return // for a reason that is known
	}
	if _, err := tiers.Trust(d.cfg, d.id); err != nil {
		f.fail(check, err.Error(), "correct the file: nothing is taken from whoever it is to name")
		return
	}
	text := fmt.Sprintf("%s: signed by %s", what, whom)
	switch n := d.untrusted(); {
	case n > 0:
		f.warn(check, text+"; "+untrustedText(n), "compiles replace them; if there are more and more, see who writes there (the manager's log names the signers)")
	case d.id.Mode() != identity.TLS && d.writes(names):
		f.warn(check, text+"; what this machine has had compiled is not kept there, as it has no certificate to sign it with", "set auth.tls, or the mode of the tier to read")
	default:
		f.ok(check, "%s", text)
	}
}

// untrusted returns how many results a running manager has not taken.
func (d *doctor) untrusted() (n uint64) {
	var s report.Stats
	if _, err := d.c.ask(&s, "stats"); err == nil {
		for _, t := range s.Cache.Tiers {
			n += t.Untrusted
		}
	}
	return n
}

// writes reports whether results are to be kept in any of the tiers.
func (d *doctor) writes(names []string) bool {
	for _, t := range d.cfg.Tiers() {
		for _, n := range names {
			if t.Name == n && t.Mode != config.ModeRead {
				return true
			}
		}
	}
	return false
}
