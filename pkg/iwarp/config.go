package iwarp

import (
	"context"
	"fmt"
	"math"
	"net"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

// Config configures the software device. The zero value works: TCP, every limit at its
// default.
type Config struct {
	// Dial and Listen supply the connections below MPA; nil means TCP. This is the place
	// for TLS, and where tests inject faults between the two ends.
	Dial   func(ctx context.Context, addr string) (net.Conn, error)
	Listen func(ctx context.Context, addr string) (net.Listener, error)

	// Limits of the device, as in DeviceAttr. 0 = the default in parentheses. Exceeding one
	// is an ErrLimit that names it.
	MaxPD     int   // 65536
	MaxQP     int   // 65536
	MaxQPWR   int   // 32768: work requests on one SQ or RQ
	MaxSGE    int   // 16: a work request
	MaxInline int   // 4096: bytes of an Inline request
	MaxCQ     int   // 65536
	MaxCQE    int   // 1 << 22: completions that one CQ holds
	MaxMR     int   // 1 << 20; with MaxMW at most 1 << 23
	MaxMRSize int64 // 1 << 40: bytes of one region
	MaxMW     int   // 65536
	MaxSRQ    int   // 65536
	MaxSRQWR  int   // 32768: receives on one SRQ
	// MaxRegistered bounds the bytes of all regions together. Memory registered twice counts
	// twice, and a region of AllocMR counts with its maximum.
	MaxRegistered int64 // no limit
	// Limits of ConnParam.IRD and ORD: how many RDMA Reads of one connection the peer may
	// have outstanding here, and this side there. A held Read costs about 100 bytes.
	MaxIRD, MaxORD int // 128

	// StallTimeout ends a connection whose peer neither accepts nor acknowledges a byte for
	// this long while we have some to send. 0 = 60 s.
	StallTimeout time.Duration
	// LingerTimeout is how long a stream waits for the peer's FIN after its own
	// Terminate or FIN. 0 = 2 s.
	LingerTimeout time.Duration
}

// Upper bounds for the limits of a Config.
const (
	maxQPWR   = 1 << 20
	maxSGE    = 1 << 10
	maxInline = 1 << 20 // bytes: a QP keeps this many for each place of its SQ
	maxCQE    = 1 << 26
	maxMRSize = 1 << 48 // bytes
)

// withDefaults returns c with every unset limit at its default.
func (c Config) withDefaults() (Config, error) {
	for _, l := range []struct {
		name     string
		v        *int
		def, max int
	}{
		{"MaxPD", &c.MaxPD, 1 << 16, math.MaxInt32},
		{"MaxQP", &c.MaxQP, 1 << 16, math.MaxInt32},
		{"MaxQPWR", &c.MaxQPWR, 1 << 15, maxQPWR},
		{"MaxSGE", &c.MaxSGE, 16, maxSGE},
		{"MaxInline", &c.MaxInline, 4 << 10, maxInline},
		{"MaxCQ", &c.MaxCQ, 1 << 16, math.MaxInt32},
		{"MaxCQE", &c.MaxCQE, 1 << 22, maxCQE},
		{"MaxMR", &c.MaxMR, 1 << 20, maxIndices},
		{"MaxMW", &c.MaxMW, 1 << 16, maxIndices},
		{"MaxSRQ", &c.MaxSRQ, 1 << 16, math.MaxInt32},
		{"MaxSRQWR", &c.MaxSRQWR, 1 << 15, maxQPWR},
		{"MaxIRD", &c.MaxIRD, 128, mpa.DepthAny - 1},
		{"MaxORD", &c.MaxORD, 128, mpa.DepthAny - 1},
	} {
		if *l.v < 0 || *l.v > l.max {
			return c, fmt.Errorf("%w: Config.%s is %d: 1 to %d, or 0 for %d", ErrInvalid, l.name, *l.v, l.max, l.def)
		}
		orDefault(l.v, l.def)
	}
	switch {
	case c.MaxMR+c.MaxMW > maxIndices:
		return c, fmt.Errorf("%w: Config.MaxMR and MaxMW are %d together: at most %d, so that STags are sparse", ErrInvalid, c.MaxMR+c.MaxMW, maxIndices)
	case c.MaxMRSize < 0 || c.MaxMRSize > maxMRSize:
		return c, fmt.Errorf("%w: Config.MaxMRSize is %d: 1 to %d", ErrInvalid, c.MaxMRSize, int64(maxMRSize))
	case c.MaxRegistered < 0:
		return c, fmt.Errorf("%w: Config.MaxRegistered is negative", ErrInvalid)
	case c.StallTimeout < 0 || c.LingerTimeout < 0:
		return c, fmt.Errorf("%w: negative time-out in Config", ErrInvalid)
	}
	orDefault(&c.MaxMRSize, 1<<40)
	orDefault(&c.MaxRegistered, math.MaxInt64)
	orDefault(&c.StallTimeout, 60*time.Second)
	orDefault(&c.LingerTimeout, 2*time.Second)
	return c, nil
}
