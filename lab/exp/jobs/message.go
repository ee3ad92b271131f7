// Package jobs has the experiments about whole jobs: text to a host, what becomes of it back, over each carrier.
// The server is a small compile server whose only variable is the transport.
package jobs

import (
	"encoding/binary"
	"errors"

	"github.com/rdistcc/rdistcc/lab/exp/end"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Carriers of a job.
const (
	byTCP   = "tcp"
	bySend  = "send"  // two-sided: text and result in Sends, into receives
	byWrite = "write" // one-sided: text by Write into a slot of the host's, the result into a sink of the client's
	byPull  = "pull"  // the host reads the text by RDMA Read; the result as with write
)

// Memory of a job, at both sides.
const (
	each  = "each"   // new, and registered for this job; a slot has to be asked for
	asked = "asked"  // from a pool, registered; a slot still has to be asked for
	pool  = "pooled" // from a pool, registered, and the slot is known beforehand: a standing credit
)

// What a host does with a job's text.
const (
	doNothing = iota // the result is empty
	doCached         // the result is one that it has: Index says which
	doC              // compile it by gcc
	doCXX            // compile it by g++
)

// Limits, in bytes.
const (
	maxText   = 2 << 20
	maxResult = 1 << 20
	slotLen   = maxText + maxResult
	chunk     = 64 << 10 // of a Send
)

// Operations of control messages.
const (
	opAsk   = 1 + iota // for a slot
	opGrant            // of one
	opJob
	opDone
)

// message is a control message in either direction.
type message struct {
	Op, What, Index byte
	Len             uint32 // of the text, or of the result
	STag            uint32 // of the text to be pulled, of a granted slot
	TO              uint64
	SinkSTag        uint32 // where the result goes
	SinkTO          uint64
	First           int64 // when the host had the first of the job, in ns of the machine's monotonic clock
}

// messageLen is the length of a control message, in bytes.
const messageLen = 40

func (m *message) bytes() []byte {
	b := make([]byte, 0, messageLen)
	b = append(b, m.Op, m.What, m.Index, 0)
	b = binary.BigEndian.AppendUint32(b, m.Len)
	b = binary.BigEndian.AppendUint32(b, m.STag)
	b = binary.BigEndian.AppendUint64(b, m.TO)
	b = binary.BigEndian.AppendUint32(b, m.SinkSTag)
	b = binary.BigEndian.AppendUint64(b, m.SinkTO)
	return binary.BigEndian.AppendUint64(b, uint64(m.First))
}

func parse(b []byte) (m message, err error) {
	if len(b) != messageLen {
		return m, errors.New("a control message has another length")
	}
	m.Op, m.What, m.Index = b[0], b[1], b[2]
	m.Len = binary.BigEndian.Uint32(b[4:])
	m.STag = binary.BigEndian.Uint32(b[8:])
	m.TO = binary.BigEndian.Uint64(b[12:])
	m.SinkSTag = binary.BigEndian.Uint32(b[20:])
	m.SinkTO = binary.BigEndian.Uint64(b[24:])
	m.First = int64(binary.BigEndian.Uint64(b[32:]))
	if m.Op == opJob && m.Len > maxText || m.Op == opDone && m.Len > maxResult {
		return m, errors.New("a text or result is too long")
	}
	return m, nil
}

// hello says what a connection is for.
type hello struct {
	Carrier, Memory string
}

// pools reports whether the memory of receives is pooled as well: where there is much of it.
func (h *hello) pools() bool { return h.Carrier == bySend && h.Memory != each }

// options returns what an end is made with: as many receives as the longest text has Sends, and some.
func (h *hello) options(slot, receives *end.Memory) end.Options {
	o := end.Options{Recvs: 4, RecvLen: messageLen, Memory: slot, Receives: receives, Conn: iwarp.ConnParam{IRD: 8, ORD: 8}}
	if h.Carrier == bySend {
		o.Recvs, o.RecvLen = maxText/chunk+2, chunk
	}
	return o
}
