package lend

import "time"

// A slot takes memory as soon as its client writes there, which it may do long before its
// job, or without one: a client with many connections can fill a slot of each. A slow
// network does the same for a while, so nothing is wrong with that as long as there is
// memory. Where what lies in such slots is more than what the machine has left, the
// tenant with most of it loses the connection that has most; its manager, if it is one, has
// those jobs done elsewhere.

// reclaimAge is how old a credit must be for its slot to count: others are being used.
const reclaimAge = time.Second

// Lies reports whether what is in the credit's slot counts as lying there without a job.
func (k *Credit) Lies(now time.Time) bool { return now.Sub(k.given) >= reclaimAge }

// Filled is how many bytes lie in a connection's slots without a job.
type Filled struct {
	Conn  *Conn
	Bytes int64
}

// MayReclaim reports whether slots of that many bytes, all of them together, could be more than
// the memory that is left: only then they have to be looked at.
func (l *Ledger) MayReclaim(slot int64) bool {
	lent := int64(0)
	for _, cl := range l.clients {
		for _, c := range cl.conns {
			lent += int64(len(c.credits))
		}
	}
	free := int64(l.memory.free)
	return free > 0 && lent*slot > free
}

// Reclaim returns the connection that is to be ended, and how many bytes are its tenant's and all
// tenants' together. It returns nil where there is memory for what lies in slots.
func (l *Ledger) Reclaim(list []Filled) (worst *Conn, of, sum int64) {
	type hoard struct {
		bytes, most int64
		conn        *Conn // that has most
	}
	var first *hoard
	tenants := make(map[*Tenant]*hoard)
	for _, f := range list {
		if f.Bytes == 0 || f.Conn.ended {
			continue
		}
		h := tenants[f.Conn.tenant]
		if h == nil {
			h = &hoard{}
			tenants[f.Conn.tenant] = h
		}
		sum, h.bytes = sum+f.Bytes, h.bytes+f.Bytes
		if f.Bytes > h.most {
			h.most, h.conn = f.Bytes, f.Conn
		}
		if first == nil || h.bytes > first.bytes {
			first = h
		}
	}
	if first == nil || sum <= int64(l.memory.free) {
		return nil, 0, sum
	}
	return first.conn, first.bytes, sum
}
