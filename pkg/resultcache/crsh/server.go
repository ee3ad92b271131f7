package crsh

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"
)

// Values is what a Server serves. Its methods may be called concurrently. Their errors go to the client, cut to one
// line of MaxMessage bytes.
type Values interface {
	// Get passes a value to take, with its length, or returns ErrMissing. It returns the error of take.
	Get(ctx context.Context, key []byte, take func(size uint64, value io.Reader) error) error
	// Put keeps a value of so many bytes, and reports whether it was kept. It need not read all of it. If replace is
	// not set, a value that is there may stay.
	Put(ctx context.Context, key []byte, value io.Reader, size uint64, replace bool) (kept bool, err error)
	// Remove removes a value, and reports whether there was one.
	Remove(ctx context.Context, key []byte) (bool, error)
	// Exists reports whether there is a value.
	Exists(ctx context.Context, key []byte) (bool, error)
}

// Server serves connections. Its fields do not change while it does.
type Server struct {
	Values   Values
	Identity string        // name and version of the program
	Notes    []string      // what a client should log
	Stop     func()        // called when a client asks the program to end; nil: that is refused
	Patience time.Duration // how long a client may take for the next bytes within a request, and to read an answer; 0: for ever
}

// maxNotes bounds Server.Notes, and is what a byte counts.
const maxNotes = 255

// Serve serves a connection until its client has gone, breaks the protocol, or ctx ends. It closes the connection.
func (s *Server) Serve(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // the deferred close follows
	defer conn.Close()
	c := &served{Server: s, patient: patient{Conn: conn, patience: s.Patience}}
	c.in = bufio.NewReaderSize(&c.patient, 4096)
	if _, err := c.Write([]byte{Version, 3, capValues, capInfo, capExists}); err != nil {
		return
	}
	for {
		c.within = false
		if _, err := c.in.Peek(1); err != nil {
			return
		}
		c.within = true
		if c.request(ctx) != nil {
			return
		}
	}
}

// served is one connection of a Server.
type served struct {
	*Server
	patient
	in *bufio.Reader
}

// errProtocol ends a connection whose client sends what is no request.
var errProtocol = errors.New("not a request of version 1 of the storage helpers' protocol")

// request serves one request. An error ends the connection.
func (c *served) request(ctx context.Context) error {
	kind, err := c.in.ReadByte()
	if err != nil {
		return err
	}
	var key []byte
	switch kind {
	case reqStop:
		if c.Stop == nil {
			return c.answer(false, Refusal("this helper does not end by a client's request"))
		}
		err := c.answer(true, nil)
		c.Stop()
		return err
	case reqInfo:
		return c.info()
	case reqGet, reqPut, reqRemove, reqExists:
		if key, err = readSmall(c.in); err != nil {
			return err
		}
	default:
		return errors.Join(errProtocol, c.answer(false, errProtocol))
	}
	switch kind {
	case reqGet:
		return c.get(ctx, key)
	case reqPut:
		return c.put(ctx, key)
	case reqRemove:
		return c.answer(c.Values.Remove(ctx, key))
	}
	is, err := c.Values.Exists(ctx, key)
	if err != nil {
		return c.answer(false, err)
	}
	there := byte(0)
	if is {
		there = 1
	}
	_, err = c.Write([]byte{ansOK, there})
	return err
}

func (c *served) info() error {
	b := appendMessage(nil, c.Identity)
	notes := c.Notes[:min(len(c.Notes), maxNotes)]
	b = append(b, byte(len(notes)))
	for _, n := range notes {
		b = appendMessage(b, n)
	}
	_, err := c.Write(b)
	return err
}

func (c *served) get(ctx context.Context, key []byte) error {
	begun := false
	err := c.Values.Get(ctx, key, func(size uint64, value io.Reader) error {
		begun = true
		if _, err := c.Write(binary.NativeEndian.AppendUint64([]byte{ansOK}, size)); err != nil {
			return err
		}
		n, err := io.Copy(&c.patient, io.LimitReader(value, int64(size)))
		if err == nil && uint64(n) != size {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
	switch {
	case begun: // the length is told: only the end of the connection says that something is wrong
		return err
	case errors.Is(err, ErrMissing):
		err = nil
	}
	return c.answer(false, err)
}

func (c *served) put(ctx context.Context, key []byte) error {
	flags, err := c.in.ReadByte()
	if err != nil {
		return err
	}
	size, err := readSize(c.in)
	if err != nil {
		return err
	}
	if int64(size) < 0 {
		return errors.Join(errProtocol, c.answer(false, errProtocol))
	}
	value := &io.LimitedReader{R: c.in, N: int64(size)}
	kept, err := c.Values.Put(ctx, key, value, size, flags&overwrite != 0)
	if _, err := io.Copy(io.Discard, value); err != nil {
		return err
	}
	if value.N > 0 {
		return io.ErrUnexpectedEOF
	}
	return c.answer(kept, err)
}

// answer answers with OK, with noop if done is not set, or with an error.
func (c *served) answer(done bool, err error) error {
	b := []byte{ansOK}
	switch {
	case err != nil:
		b = appendMessage([]byte{ansErr}, err.Error())
	case !done:
		b[0] = ansNoop
	}
	_, err = c.Write(b)
	return err
}

// patient is a connection whose reads and writes end after a time without progress.
type patient struct {
	net.Conn
	patience time.Duration // 0: for ever
	within   bool          // a request: before one, a client may take as long as its compile does
}

func (p *patient) Read(b []byte) (int, error) {
	if p.patience > 0 {
		var until time.Time
		if p.within {
			until = time.Now().Add(p.patience)
		}
		_ = p.SetReadDeadline(until)
	}
	return p.Conn.Read(b)
}

func (p *patient) Write(b []byte) (int, error) {
	if p.patience > 0 {
		_ = p.SetWriteDeadline(time.Now().Add(p.patience))
	}
	return p.Conn.Write(b)
}
