// Package capture takes what commands write to their standard output and error, and keeps the first part of
// it. So a flood of output does not cost memory; it is cut, with a line that says so.
//
// There are two kinds. A file in memory costs least, but if a command fills it, its writes fail. Pipes are
// emptied whatever a command writes, so that output does not change how the command ends; they are for
// untrusted commands.
package capture

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdistcc/rdistcc/internal/shm"
)

// Capture holds a command's standard output and error, which its methods call output 0 and 1.
type Capture struct {
	to [2]outlet
}

// outlet takes one output of a command.
type outlet interface {
	// fd returns the descriptor for the command.
	fd() int
	// written returns what was written. If there was more than is kept (cut), it returns what is kept,
	// followed by Note. It is valid until rewind or close.
	written() (b []byte, cut bool, err error)
	// rewind makes the outlet as if nothing had been written.
	rewind() error
	close()
}

// InMemory returns a Capture that uses two buffers of pool and keeps the first kept bytes of each output. The
// buffers must be longer than kept. ctx bounds the wait for them. Close gives them back.
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

// Close ends the Capture. What Written returned is no longer valid.
func (c *Capture) Close() {
	for _, o := range c.to {
		if o != nil {
			o.close()
		}
	}
}

// FD returns the descriptor that a command gets for output i. The Capture keeps owning it.
func (c *Capture) FD(i int) int { return c.to[i].fd() }

// Rewind makes the Capture as if nothing had been written.
func (c *Capture) Rewind() error { return errors.Join(c.to[0].rewind(), c.to[1].rewind()) }

// Written returns what was written to output i: all of it, or the first part followed by Note. It is valid
// until Rewind or Close.
func (c *Capture) Written(i int) ([]byte, error) {
	b, _, err := c.to[i].written()
	return b, err
}

// Cut reports whether a command wrote more than is kept.
func (c *Capture) Cut() bool {
	for _, o := range c.to {
		if _, cut, err := o.written(); err == nil && cut {
			return true
		}
	}
	return false
}

// Note returns the line that follows the kept bytes of a longer output.
func Note(kept int64) string {
	return fmt.Sprintf("\nrdistccd: the compiler wrote more than %d KiB here; the rest is cut\n", kept>>10)
}
