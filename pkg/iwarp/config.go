package iwarp

import (
	"context"
	"net"
	"time"
)

// Config of the software device. The zero value is a working one: TCP, every
// limit at its default.
type Config struct {
	// Dial and Listen supply the connections below MPA; nil means TCP. Tests put
	// faults between the two ends here, and a TLS layer belongs here too.
	Dial   func(ctx context.Context, addr string) (net.Conn, error)
	Listen func(ctx context.Context, addr string) (net.Listener, error)

	// Limits of the device. 0 = the default in parentheses.
	MaxQP int // 65536
	MaxCQ int // 65536
	MaxMR int // 1 << 20

	// StallTimeout ends a connection whose peer accepts, or acknowledges, no byte
	// for so long while we have some to send. 0 = 60 s.
	StallTimeout time.Duration
	// LingerTimeout is how long a stream waits for the peer's FIN after its own
	// Terminate or FIN. 0 = 2 s.
	LingerTimeout time.Duration
}
