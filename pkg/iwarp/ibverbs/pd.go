//go:build ibverbs && cgo && linux

package ibverbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// pd is a protection domain, and the bounce buffers of its QPs.
type pd struct {
	dev *device
	c   *C.struct_ibv_pd

	mu     sync.Mutex // guards what follows
	users  int        // QPs and regions
	gone   bool
	free   []bounce
	chunks []bounceChunk
}

func (d *device) AllocPD() (iwarp.PD, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, iwarp.ErrClosed
	}
	c, err := C.ibv_alloc_pd(d.ctx)
	if c == nil {
		return nil, fmt.Errorf("ibverbs: protection domain on %s: %w", d.name, why(err))
	}
	p := &pd{dev: d, c: c}
	d.pds[p] = struct{}{}
	return p, nil
}

// use counts n more users.
func (p *pd) use(n int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > 0 && p.gone {
		return iwarp.ErrClosed
	}
	p.users += n
	return nil
}

func (p *pd) AllocMR(int) (iwarp.MR, error) {
	return nil, fmt.Errorf("%w: fast registration", iwarp.ErrUnsupported)
}

func (p *pd) AllocMW() (iwarp.MW, error) {
	return nil, fmt.Errorf("%w: memory windows", iwarp.ErrUnsupported)
}

func (p *pd) CreateSRQ(iwarp.SRQInitAttr) (iwarp.SRQ, error) {
	return nil, fmt.Errorf("%w: shared receive queues", iwarp.ErrUnsupported)
}

func (p *pd) Dealloc() error {
	p.mu.Lock()
	if p.gone {
		p.mu.Unlock()
		return nil
	}
	if p.users > 0 {
		p.mu.Unlock()
		return fmt.Errorf("%w: %d QPs and regions are left in the protection domain", iwarp.ErrInvalid, p.users)
	}
	p.gone = true
	for _, ch := range p.chunks {
		C.ibv_dereg_mr(ch.mr)
		C.free(ch.mem)
	}
	p.chunks, p.free = nil, nil
	p.mu.Unlock()
	p.dev.mu.Lock()
	delete(p.dev.pds, p)
	p.dev.mu.Unlock()
	if rc := C.ibv_dealloc_pd(p.c); rc != 0 {
		return sysErr("ibv_dealloc_pd", rc)
	}
	return nil
}

// bounce is a registered buffer of maxInline bytes, for Inline data that the device itself does not
// take.
type bounce struct {
	mem  unsafe.Pointer // nil = none
	lkey C.uint32_t
}

func (b bounce) bytes() []byte { return unsafe.Slice((*byte)(b.mem), maxInline) }

type bounceChunk struct {
	mem unsafe.Pointer
	mr  *C.struct_ibv_mr
}

const bounceChunkLen = 16 // buffers made at a time

// getBounce returns a buffer. There are never more of them than places in QPs' send queues.
func (p *pd) getBounce() (bounce, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 {
		mem := C.malloc(bounceChunkLen * maxInline) // C memory: never moved, never scanned
		mr, err := C.shim_reg_mr(p.c, C.uintptr_t(uintptr(mem)), bounceChunkLen*maxInline, 0)
		if mr == nil {
			C.free(mem)
			return bounce{}, fmt.Errorf("ibverbs: register buffers for Inline data on %s: %w", p.dev.name, why(err))
		}
		p.chunks = append(p.chunks, bounceChunk{mem, mr})
		for i := range bounceChunkLen {
			p.free = append(p.free, bounce{unsafe.Add(mem, i*maxInline), mr.lkey})
		}
	}
	b := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	return b, nil
}

func (p *pd) putBounce(b bounce) {
	if b.mem == nil {
		return
	}
	p.mu.Lock()
	p.free = append(p.free, b)
	p.mu.Unlock()
}
