package report

import (
	"cmp"
	"slices"

	"github.com/rdistcc/rdistcc/internal/reason"
)

// maxRecent is how many commands a Book remembers, maxShown how many of them Status shows, and maxConsidered
// how many of the hosts considered for each are remembered.
const (
	maxRecent     = 2048
	maxShown      = 256
	maxConsidered = 16
)

// Book remembers the last commands and counts all commands. The zero value is an empty book. It has no lock:
// its owner guards it. What its methods return shares no memory with it, except the slices in a JobRecord,
// which must not be changed.
type Book struct {
	ring   [maxRecent]JobRecord
	n      uint64 // commands ever added
	counts map[jobKey]*JobCount
	sums   sums
}

type jobKey struct {
	place  string
	reason string // the label of the reason, or the tier of the cache
	host   string
}

// Add records a command that has ended. The book keeps a copy of r, with at most maxConsidered hosts.
func (b *Book) Add(r *JobRecord) {
	b.sums.add(r)
	if len(r.Considered) > maxConsidered {
		r.Considered = slices.Clone(r.Considered[:maxConsidered])
	}
	b.ring[b.n%maxRecent] = *r
	b.n++
	k := jobKey{place: r.Place()}
	switch k.place {
	case PlaceLocal:
		k.reason = reason.Label(r.Reason)
	case PlaceCached:
		k.reason = r.Cached
	default:
		k.host = r.Host
	}
	if b.counts == nil {
		b.counts = make(map[jobKey]*JobCount)
	}
	c := b.counts[k]
	if c == nil {
		c = &JobCount{Place: k.place, Reason: k.reason, Host: k.host}
		b.counts[k] = c
	}
	if r.Exit == 0 && r.Finished {
		c.OK++
	} else {
		c.Failed++
	}
}

// Noted returns how many commands were ever added to the book.
func (b *Book) Noted() uint64 { return b.n }

// Counts returns the numbers of all commands by where they ran and why, remote ones first.
func (b *Book) Counts() (list []JobCount) {
	for _, c := range b.counts {
		list = append(list, *c)
	}
	slices.SortFunc(list, func(x, y JobCount) int {
		return cmp.Or(cmp.Compare(y.Place, x.Place), cmp.Compare(x.Host, y.Host), cmp.Compare(x.Reason, y.Reason))
	})
	return list
}

// Recent returns the records of the last maxShown commands, the newest first.
func (b *Book) Recent() (list []JobRecord) {
	for i := range min(b.n, maxShown) {
		list = append(list, b.ring[(b.n-1-i)%maxRecent])
	}
	return list
}

// EachEnded calls see for each command that was added to the book after the first from ones, in the order in which
// they ended, and returns what continues where it ends. A command that is no longer remembered is left out. The
// record is the book's: see must not keep the pointer.
func (b *Book) EachEnded(from uint64, see func(*JobRecord)) (next uint64) {
	if from > b.n { // of another book
		from = 0
	}
	for from = max(from, b.n-min(b.n, maxRecent)); from < b.n; from++ {
		see(&b.ring[from%maxRecent])
	}
	return b.n
}
