package crsh

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// Client asks over one connection, which it owns. One goroutine at a time may use it. After an error that is neither
// ErrMissing nor a Refusal, the connection can only be closed.
type Client struct {
	conn net.Conn
	in   *bufio.Reader
	can  []byte // capabilities
}

// ErrVersion is wrapped by what NewClient says of a server that speaks another version, or cannot keep values.
var ErrVersion = errors.New("it speaks another protocol than version 1 of ccache's storage helpers")

// NewClient reads the greeting of a server. It closes the connection if that fails.
func NewClient(ctx context.Context, conn net.Conn) (*Client, error) {
	c := &Client{conn: conn, in: bufio.NewReaderSize(conn, 4096)}
	err := c.during(ctx, func() error {
		version, err := readByte(c.in)
		if err != nil {
			return err
		}
		if version != Version {
			return fmt.Errorf("%w: it says version %d", ErrVersion, version)
		}
		if c.can, err = readSmall(c.in); err == nil && !slices.Contains(c.can, capValues) {
			err = fmt.Errorf("%w: it keeps no values", ErrVersion)
		}
		return err
	})
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// Close closes the connection.
func (c *Client) Close() error { return c.conn.Close() }

// during calls do, and ends what it waits for when ctx ends.
func (c *Client) during(ctx context.Context, do func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_ = c.conn.SetDeadline(time.Time{})
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = c.conn.SetDeadline(time.Unix(1, 0))
		close(over)
	})
	err := do()
	if !stop() {
		<-over // or it would strike the next request
	}
	if err != nil && ctx.Err() != nil && IsBroken(err) {
		return ctx.Err()
	}
	return err
}

// IsBroken reports whether a Client can only be closed after err.
func IsBroken(err error) bool {
	var r Refusal
	return err != nil && !errors.Is(err, ErrMissing) && !errors.As(err, &r)
}

// verdict reads how an answer begins: whether the request was carried out.
func (c *Client) verdict() (done bool, err error) {
	b, err := readByte(c.in)
	if err != nil {
		return false, err
	}
	switch b {
	case ansOK:
		return true, nil
	case ansNoop:
		return false, nil
	case ansErr:
		m, err := readSmall(c.in)
		if err != nil {
			return false, err
		}
		return false, Refusal(brief(string(m)))
	}
	return false, fmt.Errorf("an answer that begins with %d is none of the protocol's", b)
}

// Get passes the value of a key to take, with its length; take reads all of it, or returns an error. It returns
// ErrMissing if there is no value.
func (c *Client) Get(ctx context.Context, key []byte, take func(size uint64, value io.Reader) error) error {
	return c.during(ctx, func() error {
		if _, err := c.conn.Write(appendKey(nil, reqGet, key)); err != nil {
			return err
		}
		done, err := c.verdict()
		if err != nil {
			return err
		}
		if !done {
			return ErrMissing
		}
		size, err := readSize(c.in)
		if err == nil && int64(size) < 0 {
			err = fmt.Errorf("a value of %d bytes", size)
		}
		if err != nil {
			return err
		}
		return take(size, io.LimitReader(c.in, int64(size)))
	})
}

// Put has a value of so many bytes kept, and reports whether it was. An error of value's is returned as it is.
func (c *Client) Put(ctx context.Context, key []byte, value io.Reader, size uint64, replace bool) (kept bool, err error) {
	err = c.during(ctx, func() error {
		flags := byte(0)
		if replace {
			flags = overwrite
		}
		head := binary.NativeEndian.AppendUint64(append(appendKey(nil, reqPut, key), flags), size)
		if _, err := c.conn.Write(head); err != nil {
			return err
		}
		n, err := io.Copy(c.conn, io.LimitReader(value, int64(size)))
		if err == nil && uint64(n) != size {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		kept, err = c.verdict()
		return err
	})
	return kept, err
}

// Remove removes a value, and reports whether there was one.
func (c *Client) Remove(ctx context.Context, key []byte) (removed bool, err error) {
	err = c.during(ctx, func() error {
		if _, err := c.conn.Write(appendKey(nil, reqRemove, key)); err != nil {
			return err
		}
		removed, err = c.verdict()
		return err
	})
	return removed, err
}

// Exists reports whether there is a value. A server that cannot be asked that is asked for the value.
func (c *Client) Exists(ctx context.Context, key []byte) (there bool, err error) {
	if !slices.Contains(c.can, capExists) {
		err := c.Get(ctx, key, func(_ uint64, value io.Reader) error {
			_, err := io.Copy(io.Discard, value)
			return err
		})
		if errors.Is(err, ErrMissing) {
			return false, nil
		}
		return err == nil, err
	}
	err = c.during(ctx, func() error {
		if _, err := c.conn.Write(appendKey(nil, reqExists, key)); err != nil {
			return err
		}
		done, err := c.verdict()
		if err != nil || !done {
			return err
		}
		b, err := readByte(c.in)
		there = b != 0
		return err
	})
	return there, err
}

// Info returns what the server says of itself, and what it wants logged. It returns nothing if it cannot be asked.
func (c *Client) Info(ctx context.Context) (identity string, notes []string, err error) {
	if !slices.Contains(c.can, capInfo) {
		return "", nil, nil
	}
	err = c.during(ctx, func() error {
		if _, err := c.conn.Write([]byte{reqInfo}); err != nil {
			return err
		}
		b, err := readSmall(c.in)
		if err != nil {
			return err
		}
		identity = brief(string(b))
		n, err := readByte(c.in)
		if err != nil {
			return err
		}
		for range n {
			if b, err = readSmall(c.in); err != nil {
				return err
			}
			notes = append(notes, brief(string(b)))
		}
		return nil
	})
	return identity, notes, err
}

// Stop asks the program to end.
func (c *Client) Stop(ctx context.Context) error {
	return c.during(ctx, func() error {
		if _, err := c.conn.Write([]byte{reqStop}); err != nil {
			return err
		}
		_, err := c.verdict()
		return err
	})
}
