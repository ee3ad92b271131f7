package farm

import (
	"context"
	"errors"
	"os"

	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
)

// dial makes one more connection to h.
func (h *Host) dial(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, h.f.o.DialTimeout)
	defer cancel()
	c := &conn{h: h}
	l, err := link.Dial(ctx, &h.f.dialling.Config, c, h.Addr, h.dialAddr(ctx))
	if err == nil {
		h.f.mu.Lock()
		c.metLocked(l)
		h.f.mu.Unlock()
		return c, nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		h.f.mu.Lock()
		defer h.f.mu.Unlock()
		if h.state == Starting || errors.Is(h.lastErr, errSilent) {
			err = errSilent
		}
	}
	return nil, err
}
