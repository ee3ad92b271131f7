package netlab

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
)

// filter decides which packets between two hosts are dropped.
type filter struct {
	on atomic.Bool // false: nothing was ever cut; avoids taking the lock

	mu    sync.Mutex
	cut   map[pair]bool // guarded by mu
	flows map[flow]bool // TCP connections by their client's end: whether silenced; guarded by mu
	opens map[pair]int  // requests for connections; guarded by mu
}

// pair is a direction between two hosts, by index.
type pair struct{ from, to int }

// flow is one TCP connection, from the side that opened it.
type flow struct {
	pair
	fromPort, toPort uint16
}

// maxFlows bounds the connections that are remembered.
const maxFlows = 1 << 16

func (f *filter) init() {
	f.cut, f.flows, f.opens = make(map[pair]bool), make(map[flow]bool), make(map[pair]int)
}

// Cut drops everything that from sends to to, and nothing else; Mend ends that.
func (l *Lab) Cut(from, to *Host) { l.filter.setCut(pair{from.index, to.index}, true) }

// Mend undoes Cut.
func (l *Lab) Mend(from, to *Host) { l.filter.setCut(pair{from.index, to.index}, false) }

func (f *filter) setCut(p pair, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut[p] = on
	f.on.Store(true)
}

// HalfOpen silences all existing TCP connections between two hosts, in both directions and for good: each
// end believes that it is connected. New ones work. It returns how many there were.
func (l *Lab) HalfOpen(a, b *Host) int {
	f := &l.filter
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for k := range f.flows {
		if k.pair == (pair{a.index, b.index}) || k.pair == (pair{b.index, a.index}) {
			f.flows[k] = true
			n++
		}
	}
	f.on.Store(true)
	return n
}

// Opens returns how many requests for TCP connections one host has sent to another, including lost and repeated ones.
func (l *Lab) Opens(from, to *Host) int {
	l.filter.mu.Lock()
	defer l.filter.mu.Unlock()
	return l.filter.opens[pair{from.index, to.index}]
}

// drops decides about one IPv4 packet, and records the connections that it opens.
func (f *filter) drops(from, to int, b []byte) bool {
	header := int(b[0]&15) * 4
	tcp := b[9] == 6 && len(b) >= header+20 && binary.BigEndian.Uint16(b[6:])&0x1fff == 0
	var opens bool
	var k flow
	if tcp {
		t := b[header:]
		k = flow{pair{from, to}, binary.BigEndian.Uint16(t), binary.BigEndian.Uint16(t[2:])}
		const syn, ack = 2, 16
		opens = t[13]&(syn|ack) == syn
	}
	if !opens && !f.on.Load() {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if opens {
		if len(f.flows) >= maxFlows {
			clear(f.flows)
		}
		f.opens[k.pair]++
		f.flows[k] = false // even with the ports of a silenced one
	}
	back := flow{pair{to, from}, k.toPort, k.fromPort}
	return f.cut[pair{from, to}] || tcp && (f.flows[k] || f.flows[back])
}
