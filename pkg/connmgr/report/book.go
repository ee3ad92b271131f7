package report

import (
	"cmp"
	"slices"

	"github.com/rdistcc/rdistcc/internal/reason"
)

// maxRecent is how many commands are remembered, of which Status shows the newest, and
// maxConsidered how many hosts of each one's choice.
const (
	maxRecent     = 2048
	maxShown      = 256
	maxConsidered = 16
)

// Book remembers the last commands, and counts all of them since it was begun. The zero
// value is an empty one. It has no lock: its owner guards it, and what its methods give
// shares no memory with it but the slices in a JobRecord, which nobody changes.
type Book struct {
	ring   [maxRecent]JobRecord
	n      uint64 // ever noted
	counts map[jobKey]*JobCount
	sums   sums
}

type jobKey struct {
	local  bool
	reason string // its label
	host   string
}

// Add takes the account of a command that has ended; the book keeps a copy.
func (b *Book) Add(r *JobRecord) {
	b.sums.add(r)
	if len(r.Considered) > maxConsidered {
		r.Considered = slices.Clone(r.Considered[:maxConsidered])
	}
	b.ring[b.n%maxRecent] = *r
	b.n++
	k := jobKey{local: r.Local}
	if r.Local {
		k.reason = reason.Label(r.Reason)
	} else {
		k.host = r.Host
	}
	if b.counts == nil {
		b.counts = make(map[jobKey]*JobCount)
	}
	c := b.counts[k]
	if c == nil {
		c = &JobCount{Place: "remote", Reason: k.reason, Host: k.host}
		if k.local {
			c.Place = "local"
		}
		b.counts[k] = c
	}
	if r.Exit == 0 && r.Finished {
		c.OK++
	} else {
		c.Failed++
	}
}

// Noted returns how many commands the book was ever told of.
func (b *Book) Noted() uint64 { return b.n }

// Counts are all commands by where they ran and why, remote ones first.
func (b *Book) Counts() (list []JobCount) {
	for _, c := range b.counts {
		list = append(list, *c)
	}
	slices.SortFunc(list, func(x, y JobCount) int {
		return cmp.Or(cmp.Compare(y.Place, x.Place), cmp.Compare(x.Host, y.Host), cmp.Compare(x.Reason, y.Reason))
	})
	return list
}

// Recent are the accounts of the newest commands, the newest first.
func (b *Book) Recent() (list []JobRecord) {
	for i := range min(b.n, maxShown) {
		list = append(list, b.ring[(b.n-1-i)%maxRecent])
	}
	return list
}
