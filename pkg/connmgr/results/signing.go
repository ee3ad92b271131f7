package results

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// Signing is how results in stores that others use prove who has put them there. Whoever can write to such a store, but has no key
// that counts, can then make misses, and no hits.
//
// A result is verified when it is read from such a store. The copy in this machine's own tier is not verified again; it only has
// to be from somebody who still counts.
type Signing struct {
	// Sign returns this side's signature for the sum of an entry (identity.Identity.SignKept); nil: it has no key.
	Sign func(sum [32]byte) ([]byte, error)
	// Verify returns who has made a signature for the sum of an entry, or why it does not count (identity.Trust.Verify). made is
	// when the entry says that it was made. nil: results need no signature.
	Verify func(sum [32]byte, made time.Time, signature []byte) (who string, err error)
	// Accepts returns why what Verify has accepted before does not count any more (identity.Trust.Accepts). It is set with Verify.
	Accepts func(made time.Time, signature []byte) error
}

// errUntrusted is wrapped by errors about an entry that nobody has signed whose signature counts.
var errUntrusted = errors.New("a result is not trusted")

var errUnsigned = errors.New("it is not signed")

// proven returns why an entry of the tier is not trusted. It has come whole.
func (t *tier) proven(e *resultcache.Entry) error { return t.trusts(e.Signed, e.Made) }

// trusts is proven for an entry that was made then, and signed like that.
func (t *tier) trusts(s *resultcache.Signed, made time.Time) (err error) {
	switch {
	case t.signing.Verify == nil:
	case s == nil && t.Shared:
		err = errUnsigned
	case t.Shared:
		_, err = t.signing.Verify(s.Sum, made, s.Signature)
	case s != nil: // a copy of what was verified
		err = t.signing.Accepts(made, s.Signature)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errUntrusted, err)
	}
	return nil
}

// origin is where an entry comes from that is to be kept.
type origin uint8

const (
	own      origin = iota // this machine has had it compiled, or was given it by a host that it trusts
	verified               // from a store that others use: it was verified if it has to be
	held                   // from this machine's own tier
)

// gives returns the origin of what is found in the tier.
func (t *tier) gives() origin {
	switch {
	case t.Store == nil:
		return own
	case t.Shared:
		return verified
	}
	return held
}

// sealed returns an entry for the tier. This side signs for what it has had compiled itself, and for nothing else.
func (t *tier) sealed(key resultcache.Key, entry []byte, from origin) ([]byte, error) {
	sign := t.signing.Sign
	switch {
	case !t.Shared || from == verified:
		return entry, nil
	case from == own && sign != nil:
		b, err := resultcache.Sign(entry, key, sign)
		if err != nil {
			return nil, fmt.Errorf("%w: results cannot be signed: %w", resultcache.ErrReadOnly, err)
		}
		return b, nil
	case t.signing.Verify == nil:
		return entry, nil
	}
	s, made, err := resultcache.Proof(entry, key)
	if err == nil {
		err = t.trusts(s, made)
	}
	return entry, err
}

// tellMute logs that results of this machine are kept in no store that others use, as nobody who asks for signatures would take them.
func (c *Cache) tellMute(s *Signing) {
	if s.Sign != nil || s.Verify == nil {
		return
	}
	for _, t := range c.tiers {
		if t.Shared && t.Write {
			c.log.Warn("what this machine has had compiled is not kept in the tier: without a certificate (auth.tls) it cannot be signed", "tier", t.Name)
		}
	}
}

// Unsigned returns the tiers that others use and from which results are taken that nobody has to have signed.
func (c *Cache) Unsigned() (names []string) {
	for _, t := range c.tiers {
		if t.Shared && t.Read && t.signing.Verify == nil {
			names = append(names, t.Name)
		}
	}
	return names
}

// untrustedEvery is how far apart the lines are that the log has about results of a tier that are not trusted.
const untrustedEvery = 10 * time.Minute

// untrusted records that a result is not trusted. It stays in a store that others use, who may trust others, until the compile
// replaces it; from this machine's own tier it is removed.
func (c *Cache) untrusted(t *tier, l *Look, key resultcache.Key, err error) {
	c.count(t.Name, Untrusted)
	if l.Untrusted != nil {
		l.Untrusted(t.Name)
	}
	level := slog.LevelDebug
	if t.warns(time.Now()) {
		level = slog.LevelWarn
	}
	c.log.Log(c.ctx, level, "a kept result is not used", "tier", t.Name, "key", key, "err", err)
	if !t.Shared {
		c.drop(t, key)
		return
	}
	c.fine(t)
	t.delivers()
}

// warns reports whether the log is to have a line about a result that is not trusted.
func (t *tier) warns(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.warned.IsZero() && now.Sub(t.warned) < untrustedEvery {
		return false
	}
	t.warned = now
	return true
}
