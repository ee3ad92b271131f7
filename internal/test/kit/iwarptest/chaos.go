package iwarptest

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Chaos simulates a bad network for a connection. The zero value does nothing.
type Chaos struct {
	Seed     uint64        // the same seed gives the same pieces
	MaxPiece int           // writes and reads are split into random pieces of up to this many bytes
	MaxDelay time.Duration // each piece is delayed by a random time up to this
	EndAt    int64         // the connection ends after this many written bytes; 0 = never
	Reset    bool          // it ends with a reset, otherwise with a FIN
}

// Wrap puts chaos on what c writes and reads.
func (x Chaos) Wrap(c net.Conn) net.Conn {
	seed := func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(x.Seed, n)) }
	return &chaosConn{faultConn: faultConn{Conn: c}, x: x, out: seed(1), in: seed(2)}
}

// Dial returns cfg with chaos on every connection that it dials.
func (x Chaos) Dial(cfg iwarp.Config) iwarp.Config {
	dial := cfg.Dial
	cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		return x.Wrap(c), nil
	}
	return cfg
}

type chaosConn struct {
	faultConn // without faults: for CloseWrite and SetLinger
	x         Chaos

	mu      sync.Mutex // one writer at a time; guards what follows
	out     *rand.Rand
	written int64
	ended   bool

	in *rand.Rand // owned by the reader
}

func (c *chaosConn) Read(p []byte) (int, error) {
	if c.x.MaxPiece > 0 && len(p) > 1 {
		p = p[:1+c.in.IntN(min(len(p), c.x.MaxPiece))]
	}
	return c.faultConn.Read(p)
}

func (c *chaosConn) Write(p []byte) (done int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(p) > 0 {
		if c.ended {
			return done, net.ErrClosed
		}
		piece := p
		if c.x.MaxPiece > 0 {
			piece = p[:1+c.out.IntN(min(len(p), c.x.MaxPiece))]
		}
		if c.x.MaxDelay > 0 {
			time.Sleep(time.Duration(c.out.Int64N(int64(c.x.MaxDelay))))
		}
		if c.x.EndAt > 0 && c.written+int64(len(piece)) >= c.x.EndAt {
			piece = piece[:c.x.EndAt-c.written]
			c.ended = true
		}
		n, err := c.faultConn.Write(piece)
		c.written += int64(n)
		done += n
		p = p[n:]
		if err != nil {
			return done, err
		}
		if c.ended && c.x.Reset {
			c.abort()
		} else if c.ended {
			_ = c.CloseWrite() // fails with the connection
		}
	}
	return done, nil
}
