// Package shelved looks for results that compile hosts keep in their memory, and reads them there by RDMA Read.
//
// Each link knows what its host has (link.Find), so a look that finds nothing asks nobody. One that finds something
// waits for one host, for a bounded time.
package shelved

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// Look is a look for one result on the hosts of one list. It implements results.Farm, for one goroutine.
type Look struct {
	up   []farm.Shelf
	most int

	// Verify returns the name of the host that has made a signature for the sum of a result
	// (identity.Identity.VerifyResult); nil: nothing that several tenants share is accepted.
	Verify func(sum [32]byte, signature []byte) (host string, err error)

	from *farm.Shelf // the host whose result was read last
	at   link.Shelved
}

// New returns a Look on those hosts of a list that are connected now, for a result of at most most bytes. early
// reports that none of them has been connected yet, or one only just, so that another look is worth while after Await.
func New(f *farm.Farm, list []scheduler.Host, most int) (l *Look, early bool) {
	l = &Look{most: most}
	l.up, early = f.Shelves(time.Now(), list)
	return l, early
}

// How long a look may take: so many round trips, the time for the result's bytes, and this for delays at both ends. On a busy machine
// these are long, and so is a compile.
const (
	slack = 500 * time.Millisecond
	trips = 4
)

// ErrSlow is wrapped by the error about a host that has not answered in time.
var ErrSlow = errors.New("a host does not answer RDMA Reads in time")

// Await waits until it is known what the hosts have, for about as long as that takes.
func (l *Look) Await(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, slack+trips*l.farthest())
	defer cancel()
	for i := range l.up {
		l.up[i].KnowsShelf(ctx)
	}
}

// farthest returns the longest round trip to a host.
func (l *Look) farthest() (d time.Duration) {
	for i := range l.up {
		rtt, _ := l.up[i].Path()
		d = max(d, rtt)
	}
	return d
}

// Get implements results.Farm.
func (l *Look) Get(ctx context.Context, key resultcache.Key, buf []byte) (b []byte, host string, err error) {
	now := time.Now()
	err = resultcache.ErrMiss
	for i := range l.up {
		x := &l.up[i]
		at, ok := x.Find(now, key)
		if !ok || !l.fits(at) {
			continue
		}
		l.from, l.at = x, at
		if buf, err = l.read(ctx, buf); err == nil {
			return buf, x.Addr, nil
		}
		if ctx.Err() != nil || errors.Is(err, ErrSlow) {
			break
		}
	}
	return buf, "", err
}

// fits reports whether a result can be as short as it has to be.
func (l *Look) fits(at link.Shelved) bool {
	return uint64(at.Len) <= uint64(l.most)+uint64(resultcache.HeaderLen)+resultcache.MaxHead
}

// read reads what Get has found.
func (l *Look) read(ctx context.Context, buf []byte) ([]byte, error) {
	rtt, rate := l.from.Path()
	patience := slack + trips*rtt
	if rate > 0 {
		patience += time.Duration(2 * float64(l.at.Len) / rate * float64(time.Second))
	}
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	b, err := l.from.ReadResult(within, l.at, buf)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %s, %v", ErrSlow, l.from.Addr, patience)
	}
	return b, err
}

// Maker implements results.Farm. What only this tenant can have had compiled on a host was made by that host. On
// the shelf of a group, it takes a signature.
func (l *Look) Maker(e *resultcache.Entry) (host string, err error) {
	if l.from.Group() == "" {
		return l.from.Addr, nil
	}
	if l.Verify == nil {
		return "", resultcache.ErrUnproven
	}
	name, err := e.Maker(l.Verify)
	switch {
	case errors.Is(err, identity.ErrExpired):
		return "", err // it was right when the host kept it
	case err != nil:
		return "", fmt.Errorf("%w: %w", resultcache.ErrDamaged, err)
	}
	return l.addrOf(name), nil
}

// addrOf returns the address of the host with that name in its certificate: of the one whose result was read if it
// has that name too, otherwise of another one of the list; the name itself if there is none.
func (l *Look) addrOf(name string) string {
	if l.from.Peer() == name {
		return l.from.Addr
	}
	for i := range l.up {
		if l.up[i].Peer() == name {
			return l.up[i].Addr
		}
	}
	return name
}

// Drop implements results.Farm.
func (l *Look) Drop(key resultcache.Key, _ string, damaged bool) {
	if damaged {
		l.from.Spoilt(l.at)
	} else {
		l.from.Forget(key)
	}
}
