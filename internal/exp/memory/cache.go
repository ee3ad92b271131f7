package memory

import (
	"unsafe"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Registrar gives memory an STag for the time of one transfer. A pin-down cache of the stack, of the same
// shape, plugs in here in place of pinCache.
type Registrar interface {
	// Get returns the registration of all of buf.
	Get(buf []byte) (iwarp.MR, error)
	// Put says that the transfer is over. What the Registrar keeps beyond that is its own affair.
	Put(iwarp.MR) error
	Close() error
}

// device registers memory: the software device, or a model of an adapter above it.
type device struct {
	pd   iwarp.PD
	lock func([]byte) error // what an adapter's driver would do to the pages; nil: nothing
	free func([]byte) error
}

func (d *device) register(buf []byte) (iwarp.MR, error) {
	if d.lock != nil {
		if err := d.lock(buf); err != nil {
			return nil, err
		}
	}
	return d.pd.RegMR(buf, iwarp.LocalWrite|iwarp.RemoteRead, nil)
}

func (d *device) drop(mr iwarp.MR, buf []byte) error {
	if err := mr.Dereg(); err != nil {
		return err
	}
	if d.free == nil {
		return nil
	}
	return d.free(buf)
}

// once registers for each transfer anew.
type once struct {
	*device
	buf []byte
}

func (o *once) Get(buf []byte) (iwarp.MR, error) {
	o.buf = buf
	return o.register(buf)
}

func (o *once) Put(mr iwarp.MR) error { return o.drop(mr, o.buf) }
func (o *once) Close() error          { return nil }

// pinCache keeps the registrations of the buffers that were used last.
type pinCache struct {
	*device
	most    int
	entries []pinned // the one used last at the end
}

type pinned struct {
	buf []byte
	mr  iwarp.MR
}

func (c *pinCache) Get(buf []byte) (iwarp.MR, error) {
	for i, p := range c.entries {
		if unsafe.SliceData(p.buf) == unsafe.SliceData(buf) && len(p.buf) == len(buf) {
			c.entries = append(append(c.entries[:i], c.entries[i+1:]...), p)
			return p.mr, nil
		}
	}
	if len(c.entries) == c.most {
		p := c.entries[0]
		c.entries = append(c.entries[:0], c.entries[1:]...)
		if err := c.drop(p.mr, p.buf); err != nil {
			return nil, err
		}
	}
	mr, err := c.register(buf)
	if err == nil {
		c.entries = append(c.entries, pinned{buf, mr})
	}
	return mr, err
}

func (c *pinCache) Put(iwarp.MR) error { return nil }

func (c *pinCache) Close() (err error) {
	for _, p := range c.entries {
		if e := c.drop(p.mr, p.buf); err == nil {
			err = e
		}
	}
	c.entries = nil
	return err
}
