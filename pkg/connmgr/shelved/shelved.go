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

	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// Look is a look for one result on the hosts of one list. It implements results.Farm, for one goroutine.
type Look struct {
	up   []farm.Shelf
	most int

	from *farm.Shelf // the host whose result was read last
	at   link.Shelved
}

// New returns a Look on those hosts of a list that are connected now, for a result of at most most bytes. down
// reports that none of them has been connected yet, so that another look is worth while once one is.
func New(f *farm.Farm, list []scheduler.Host, most int) (l *Look, down bool) {
	l = &Look{most: most}
	l.up, down = f.Shelves(time.Now(), list)
	return l, down
}

// How long a look may take: so many round trips, the time for the result's bytes, and this for delays at both ends.
const (
	slack = 100 * time.Millisecond
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

// Drop implements results.Farm.
func (l *Look) Drop(key resultcache.Key, _ string, damaged bool) {
	if damaged {
		l.from.Spoilt(l.at)
	} else {
		l.from.Forget(key)
	}
}
