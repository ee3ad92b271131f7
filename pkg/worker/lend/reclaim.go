package lend

import "time"

// A slot takes memory as soon as its client writes to it, which may be long before its job, or without one: a
// client with many connections can fill a slot of each. On a slow network this happens for a while even with
// honest clients, so it is fine as long as there is memory. If such slots hold more than the machine has
// free, the tenant that has most of it loses the connection that has most. If that belongs to a real manager,
// the manager sends those jobs elsewhere.

// reclaimAge is how old a credit must be for its slot to count. Slots of younger credits are in use.
const reclaimAge = time.Second

// Lies reports whether the content of the credit's slot counts as one that has no job.
func (k *Credit) Lies(now time.Time) bool { return now.Sub(k.given) >= reclaimAge }

// Filled says how many bytes are in a connection's slots without a job.
type Filled struct {
	Conn  *Conn
	Bytes int64
}

// MayReclaim reports whether all slots together, of that many bytes each, could hold more than the free
// memory. Only then is it necessary to look at them.
func (l *Ledger) MayReclaim(slot int64) bool {
	lent := int64(0)
	for _, cl := range l.clients {
		for _, c := range cl.conns {
			lent += int64(c.slots())
		}
	}
	free := int64(l.memory.free)
	return free > 0 && lent*slot > free
}

// Reclaim returns the connection that is to be ended, or nil if there is enough memory for what is in slots.
// of and sum are how many bytes in slots belong to its tenant and to all tenants.
func (l *Ledger) Reclaim(list []Filled) (worst *Conn, of, sum int64) {
	type hoard struct {
		bytes, most int64
		conn        *Conn // the one that has most
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
