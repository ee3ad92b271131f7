package parcel

import (
	"crypto/sha256"
	"hash"
	"io"
)

// checked reads a file that must have the content of an entry.
type checked struct {
	f io.ReadCloser
	e *Entry
	h hash.Hash
	n uint64
}

func (c *checked) Close() error { return c.f.Close() }

// Read implements io.Reader. It returns io.EOF only behind the right content.
func (c *checked) Read(b []byte) (int, error) {
	n, err := c.f.Read(b)
	c.h.Write(b[:n])
	c.n += uint64(n)
	var sum [sha256.Size]byte
	switch {
	case c.n > c.e.Len:
		err = changed(c.e.Name, true)
	case err == io.EOF && (c.n != c.e.Len || [sha256.Size]byte(c.h.Sum(sum[:0])) != c.e.Sum):
		err = changed(c.e.Name, true)
	}
	return n, err
}
