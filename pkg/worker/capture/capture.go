// Package capture takes what commands write to their standard output and error, and keeps the
// first part of it: a flood costs no memory, and is cut with a line that says so.
//
// There are two ways. A file in memory costs least, but a command that fills it
// learns that from its writes. Pipes that are emptied whatever a command writes give it no say
// in how it ends, and are for those that are not trusted.
package capture

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdistcc/rdistcc/internal/shm"
)

// Capture holds a command's standard output and error, which are 0 and 1 in its methods.
type Capture struct {
	to [2]outlet
}

// outlet is where one of them goes: fd is given to the command.
type outlet interface {
	fd() int
	// written is what went there, or what is kept of it with a line behind it that says so (cut).
	// It is valid until rewind or close.
	written() (b []byte, cut bool, err error)
	rewind() error // as if nothing was written
	close()
}

// InMemory makes a Capture of two buffers of pool, of which kept bytes each are kept: they
// have to be longer than that. ctx bounds the wait for the buffers.
func InMemory(ctx context.Context, pool *shm.Pool, kept int64) (*Capture, error) {
	c := &Capture{}
	for i := range c.to {
		var err error
		if c.to[i], err = newFile(ctx, pool, kept); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// Close ends it, and what Written gave.
func (c *Capture) Close() {
	for _, o := range c.to {
		if o != nil {
			o.close()
		}
	}
}

// FD is the descriptor that a command is to have for output i. It stays ours.
func (c *Capture) FD(i int) int { return c.to[i].fd() }

// Rewind makes as if nothing was written.
func (c *Capture) Rewind() error { return errors.Join(c.to[0].rewind(), c.to[1].rewind()) }

// Written is what went to output i: all, or the first part with Note behind it. It is
// valid until Rewind or Close.
func (c *Capture) Written(i int) ([]byte, error) {
	b, _, err := c.to[i].written()
	return b, err
}

// Cut says whether there was more than is kept.
func (c *Capture) Cut() bool {
	for _, o := range c.to {
		if _, cut, err := o.written(); err == nil && cut {
			return true
		}
	}
	return false
}

// Note stands behind the kept bytes of a flood.
func Note(kept int64) string {
	return fmt.Sprintf("\nrdistccd: the compiler wrote more than %d KiB here; the rest is cut\n", kept>>10)
}
