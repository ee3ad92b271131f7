package memory

import (
	"fmt"

	"github.com/rdistcc/rdistcc/lab/regcache"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// rights are those of data that a peer fetches.
const rights = iwarp.LocalWrite | iwarp.RemoteRead

// transfer gives buf an STag for the time of one transfer. What stays registered beyond that is its own affair.
type transfer func(buf []byte) error

// once registers for each transfer anew.
func once(pd iwarp.PD) transfer {
	return func(buf []byte) error {
		mr, err := pd.RegMR(buf, rights, nil)
		if err != nil {
			return err
		}
		return mr.Dereg()
	}
}

// newCache returns a pin-down cache that keeps the registrations of the buffers that were used last. Their memory has
// to stay mapped until the cache is closed; then it needs no regcache.Mapping.
func newCache(pd iwarp.PD) (*regcache.Cache, error) {
	return regcache.New(pd, regcache.Options{MaxEntries: kept, MaxBytes: (kept + 1) * largest})
}

// through registers by way of a cache.
func through(c *regcache.Cache) transfer {
	return func(buf []byte) error {
		ref, err := c.Get(buf, rights)
		if err != nil {
			return err
		}
		return ref.Put()
	}
}

// pinningPD is a model of an adapter's protection domain: what it registers it also pins.
type pinningPD struct {
	iwarp.PD
	lock, free func([]byte) error
}

func (p *pinningPD) RegMR(buf []byte, a iwarp.Access, o *iwarp.MROptions) (iwarp.MR, error) {
	if err := p.lock(buf); err != nil {
		return nil, fmt.Errorf("pin %d bytes: %w", len(buf), err)
	}
	mr, err := p.PD.RegMR(buf, a, o)
	if err != nil {
		_ = p.free(buf) // err says more
		return nil, err
	}
	return &pinnedMR{mr, p, buf}, nil
}

// pinnedMR is a region whose pages are pinned. It cannot be named in a request, for which the device wants its own
// MR; its STag can.
type pinnedMR struct {
	iwarp.MR
	pd  *pinningPD
	buf []byte
}

func (m *pinnedMR) Dereg() error {
	if err := m.MR.Dereg(); err != nil {
		return err
	}
	return m.pd.free(m.buf)
}
