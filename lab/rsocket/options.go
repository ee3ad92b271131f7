package rsocket

import (
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/lab/rsocket/proto"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Options are wishes for connections. The zero value has librdmacm's defaults.
type Options struct {
	RecvBuffer int // bytes, 2 to 512 MiB, an even number; 0 = 128 KiB
	SendBuffer int // bytes; 0 = 128 KiB
	// Credits is how many writes of the peer may wait to be read, 1 to 65535; 0 = 384. Each
	// takes a receive of four bytes.
	Credits int
	// IOMaps is how many maps of the peer this side knows at a time, for WriteAt. More than
	// 128 are rounded up to a multiple of 256; at most 32512.
	IOMaps int
	// KeepAlive is the interval at which an empty RDMA Write shows whether the path to the
	// peer still works. 0 means none. The peer does not answer: an error of TCP shows.
	KeepAlive time.Duration
	// CloseTimeout is how long Close waits for what was written to leave; 0 = 5 s.
	CloseTimeout time.Duration
	// BigEndian makes an initiator speak to a machine of that byte order.
	BigEndian bool
	// Param has the wishes for the connection below: CRC, RTR, Settle for a siw that is
	// dialed, and so on. Its PrivateData is overwritten.
	Param iwarp.ConnParam
	// Listen has the bounds of a listener's start-ups.
	Listen *iwarp.ListenOptions
}

// Defaults, as librdmacm has them.
const (
	defaultBuffer       = 128 << 10
	defaultCredits      = 384
	defaultCloseTimeout = 5 * time.Second
	maxBuffer           = 512 << 20 // a data message has 29 bits for a length, of one half at most
)

// withDefaults returns a copy of o in which everything is set.
func (o *Options) withDefaults() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	for _, d := range []struct {
		v        *int
		def, max int
		name     string
	}{
		{&c.RecvBuffer, defaultBuffer, maxBuffer, "RecvBuffer"},
		{&c.SendBuffer, defaultBuffer, maxBuffer, "SendBuffer"},
		{&c.Credits, defaultCredits, 1<<16 - 1, "Credits"},
	} {
		if *d.v == 0 {
			*d.v = d.def
		}
		if *d.v < 0 || *d.v > d.max {
			return c, fmt.Errorf("%w: rsocket: %s is %d: at most %d", iwarp.ErrInvalid, d.name, *d.v, d.max)
		}
	}
	if c.RecvBuffer%2 != 0 {
		return c, fmt.Errorf("%w: rsocket: RecvBuffer is %d: it has two halves of the same size", iwarp.ErrInvalid, c.RecvBuffer)
	}
	if max := proto.ScaleIOMaps(1 << 16); c.IOMaps < 0 || c.IOMaps > max {
		return c, fmt.Errorf("%w: rsocket: IOMaps is %d: at most %d", iwarp.ErrInvalid, c.IOMaps, max)
	}
	c.IOMaps = proto.ScaleIOMaps(c.IOMaps)
	if c.CloseTimeout <= 0 {
		c.CloseTimeout = defaultCloseTimeout
	}
	return c, nil
}
