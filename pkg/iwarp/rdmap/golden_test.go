package rdmap_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp/ddp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

func vectors(t testing.TB) *iwarptest.Vectors {
	t.Helper()
	v, err := iwarptest.ReadVectors("../testdata/vectors/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Every segment's header is decoded and encoded octet for octet, and every message
// that we send is produced octet for octet by a Sender at that point of a stream.
func TestGoldenSegments(t *testing.T) {
	sent, cut := 0, 0
	for _, v := range vectors(t).Vectors {
		if v.Kind != "fpdu" {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			header := goldenHeader(t, v.ULPDU)
			op := rdmap.Opcode(v.Opcode)
			got := segment(t, op, v.ULPDU, header, v.Name == "term-mpa-ird")
			if got == nil {
				cut++
				return
			}
			sent++
			if !bytes.Equal(got, v.ULPDU) {
				t.Errorf("sent:\n got %x\nwant %x", got, v.ULPDU)
			}
		})
	}
	if sent != 38 || cut != 5 {
		t.Errorf("%d segments sent, %d of longer messages; want 38 and 5 of 43", sent, cut)
	}
}

// goldenHeader decodes and encodes a segment's header and returns its length.
func goldenHeader(t *testing.T, u []byte) int {
	t.Helper()
	got := make([]byte, ddp.UntaggedSize)
	if ddp.IsTagged(u) {
		h := ddp.ParseTagged(u)
		h.Put(got)
		got = got[:ddp.TaggedSize]
	} else {
		h := ddp.ParseUntagged(u)
		h.Put(got)
	}
	if !bytes.Equal(got, u[:len(got)]) {
		t.Errorf("header encoded again:\n got %x\nwant %x", got, u[:len(got)])
	}
	if ddp.VersionOf(u) != ddp.Version {
		t.Errorf("version %d", ddp.VersionOf(u))
	}
	return len(got)
}

// segment has a Sender make the segment u. It is nil for a segment of a longer
// message: ours are cut elsewhere, at multiples of 8 octets. setup is set for what
// an initiator says that gives up in start-up.
func segment(t *testing.T, op rdmap.Opcode, u []byte, header int, setup bool) []byte {
	t.Helper()
	b := mpa.NewBatch()
	b.Reset(true)
	s := rdmap.NewSender(mpa.MaxULPDU)
	m := rdmap.Message{Op: op, Payload: [][]byte{u[header:]}}
	if head := rdmapHeader(op, u[header:]); head != nil {
		m.Payload, m.Head = nil, head
	}
	if ddp.IsTagged(u) {
		h := ddp.ParseTagged(u)
		if !h.Last || h.TO == 0x1028 { // of write-seg2of2
			return nil
		}
		m.STag, m.TO = h.STag, h.TO
	} else {
		h := ddp.ParseUntagged(u)
		if !h.Last || h.MO != 0 {
			return nil
		}
		if op == rdmap.OpTerminate {
			term, err := rdmap.ParseTerminate(u[header:], setup)
			if err != nil || term.PeerLayout {
				t.Fatalf("got %+v, %v", term, err)
			}
			s.Terminate(b, &term)
			return onlyULPDU(t, b)
		}
		m.STag = ddp.STag(h.ULPWord)
		for i := uint32(1); i < h.MSN; i++ { // bring the queue to this message
			s.Start(rdmap.Message{Op: op})
			s.Cut(b)
		}
		b.Reset(true)
	}
	s.Start(m)
	if !s.Cut(b) {
		t.Fatal("the message does not fit one batch")
	}
	return onlyULPDU(t, b)
}

// rdmapHeader decodes the header of a message that has no payload, and encodes it
// again. It is nil for other messages.
func rdmapHeader(op rdmap.Opcode, b []byte) []byte {
	got := make([]byte, len(b))
	switch op {
	case rdmap.OpReadRequest:
		h := rdmap.ParseReadRequest(b)
		h.Put(got)
	case rdmap.OpAtomicRequest:
		h := rdmap.ParseAtomicRequest(b)
		h.Put(got)
	case rdmap.OpAtomicResponse:
		h := rdmap.ParseAtomicResponse(b)
		h.Put(got)
	case rdmap.OpImmediate, rdmap.OpImmediateSE:
		copy(got, b)
	default:
		return nil
	}
	return got
}

// onlyULPDU is the ULPDU of a batch that has one FPDU.
func onlyULPDU(t *testing.T, b *mpa.Batch) []byte {
	t.Helper()
	p := bytes.Join(b.Bufs(), nil)
	n := int(binary.BigEndian.Uint16(p))
	if mpa.FPDUSize(n) != len(p) {
		t.Fatalf("not one FPDU: %x", p)
	}
	return p[2 : 2+n]
}

// The scenarios are received without an error.
func TestGoldenScenarios(t *testing.T) {
	v := vectors(t)
	checked := 0
	for _, s := range v.Scenarios {
		for _, dir := range []string{"O", "I"} {
			crc := false
			for _, p := range s.Packets {
				x := v.Find(p.Vector)
				crc = crc || x.Kind == "mpa" && x.Flags&0x40 != 0
			}
			var stream []byte
			var sends, writes, requests, atomics, imms uint64
			terminate := false
			var outstanding []rdmap.Expected
			for _, p := range s.Packets {
				x := v.Find(p.Vector)
				if x == nil {
					t.Fatalf("%s: no vector %s", s.Name, p.Vector)
				}
				if x.Kind == "fpdu" && p.Dir != dir && rdmap.Opcode(x.Opcode) == rdmap.OpAtomicRequest {
					req := rdmap.ParseAtomicRequest(x.ULPDU[ddp.UntaggedSize:])
					outstanding = append(outstanding, rdmap.Expected{Op: rdmap.OpAtomicResponse, ID: req.ID, Size: 8})
				}
				if x.Kind == "fpdu" && p.Dir != dir && rdmap.Opcode(x.Opcode) == rdmap.OpReadRequest {
					req := rdmap.ParseReadRequest(x.ULPDU[ddp.UntaggedSize:])
					if s.Name == "s1_rev1_crc" && req.Size > 0 {
						req.Size = 48 + 7 // what the Response of this scenario has
					}
					outstanding = append(outstanding, rdmap.Expected{Op: rdmap.OpReadResponse, STag: req.SinkSTag, TO: req.SinkTO, Size: req.Size})
				}
				if x.Kind != "fpdu" || p.Dir != dir {
					continue
				}
				stream = append(stream, x.Hex...)
				if last := x.ULPDU[0]&0x40 != 0; last && x.Opcode == 0 && x.Name != "rtr-write-zero" { // which is none of the peer's
					writes++
				} else if x.Opcode == byte(rdmap.OpReadRequest) {
					requests++
				} else if x.Opcode == byte(rdmap.OpAtomicRequest) {
					atomics++
				} else if x.Opcode == byte(rdmap.OpImmediate) || x.Opcode == byte(rdmap.OpImmediateSE) {
					imms++
				} else if op := rdmap.Opcode(x.Opcode); last && op >= rdmap.OpSend && op < rdmap.OpTerminate {
					sends++
				}
				terminate = x.Opcode == 7
			}
			if len(stream) == 0 {
				continue
			}
			checked++
			c := &consumer{room: 1 << 20, receives: -1, open: true, ird: 8, reads: outstanding}
			r := rdmap.NewReceiver(c, crc, dir == "O")
			r.Extensions = true
			if s.Name == "s5_rev1_markers" {
				r.ExpectMarkers()
			}
			err := feed(r, stream)
			var peer *rdmap.PeerTerminate
			if errors.As(err, &peer) != terminate || err != nil && !terminate {
				t.Errorf("%s %s: got %v", s.Name, dir, err)
			}
			if r.Sends != sends || r.Writes != writes || r.Reads != requests {
				t.Errorf("%s %s: %d Sends, %d Writes and %d Read Requests delivered, want %d, %d and %d", s.Name, dir,
					r.Sends, r.Writes, r.Reads, sends, writes, requests)
			}
			if r.Atomics != atomics || r.Imms != imms {
				t.Errorf("%s %s: %d atomics, %d Immediates delivered, want %d and %d", s.Name, dir, r.Atomics, r.Imms, atomics, imms)
			}
			if s.Name == "s1_rev1_crc" && dir == "I" && len(c.reads) != 1 { // the second atomic
				t.Errorf("%s: %d requests are not answered", s.Name, len(c.reads))
			}
		}
	}
	if checked < 10 {
		t.Errorf("only %d directions checked", checked)
	}
}

// Input that breaks a rule gets the Terminate that the rule wants, with the header
// at fault, and nothing is placed.
func TestGoldenReactions(t *testing.T) {
	all := vectors(t)
	seen := 0
	for _, x := range all.Reactions {
		t.Run(x.Name, func(t *testing.T) {
			c := fixture(all)
			before := maps.Collect(c.snapshot())
			r := rdmap.NewReceiver(c, true, false)
			r.Extensions = x.Needs == "RFC 7306"
			if x.Stream == "markers on" {
				r.ExpectMarkers()
			}
			err := feed(r, x.Hex)
			term, answered := r.Answer(err)
			got := bytes.Clone(term.Append(nil))
			seen++
			switch {
			case x.Expect.Action == "accept":
				if err != nil {
					t.Errorf("got %v, want it to be accepted", err)
				}
			case x.Expect.Action == "read-response":
				if err != nil || len(c.requests) != 1 || c.requests[0].Size != 0 || c.requests[0].SinkSTag != ddp.STag(x.Expect.STag) || c.requests[0].SinkTO != uint64(x.Expect.TO) {
					t.Errorf("held %+v, %v; want the Read to be answered", c.requests, err)
				}
			case x.Expect.Action == "terminate":
				e := x.Expect
				if !answered {
					t.Fatalf("got %v, want a Terminate", err)
				}
				want := []byte{e.Layer<<4 | e.EType, e.ECode, e.M<<7 | e.D<<6 | e.R<<5, 0}
				if !bytes.Equal(got[:4], want) {
					t.Fatalf("Terminate %x, want %x", got[:4], want)
				}
				if e.D == 1 {
					last := lastULPDU(x.Hex)
					n := ddp.UntaggedSize
					if ddp.IsTagged(last) {
						n = ddp.TaggedSize
					}
					want = binary.BigEndian.AppendUint16(want, uint16(len(last)))
					want = append(want, last[:n]...)
				}
				if e.R == 1 {
					want = append(want, lastULPDU(x.Hex)[ddp.UntaggedSize:]...)
				}
				if !bytes.Equal(got, want) {
					t.Errorf("Terminate with headers:\n got %x\nwant %x", got, want)
				}
			default:
				t.Errorf("unknown expectation %q", x.Expect.Action)
			}
			for stag, mem := range c.snapshot() {
				if !bytes.Equal(mem, before[stag]) {
					t.Errorf("region %08x was written", stag)
				}
			}
			if r.Filled(0) != err && err != nil {
				t.Error("the stream goes on after its error")
			}
		})
	}
	if seen != 39 {
		t.Errorf("%d reactions checked, want 39", seen)
	}
}

func triple(t *rdmap.Terminate) string {
	const hex = "0123456789abcdef"
	return string([]byte{hex[t.Layer], '/', hex[t.Type], '/', hex[t.Code>>4], hex[t.Code&15]})
}

// lastULPDU is the ULPDU of the last FPDU of a stream.
func lastULPDU(b []byte) []byte {
	for {
		n := int(binary.BigEndian.Uint16(b))
		if size := mpa.FPDUSize(n); size < len(b) {
			b = b[size:]
			continue
		}
		return b[2 : 2+n]
	}
}

func feed(r *rdmap.Receiver, b []byte) error {
	return feedPieces(r, b, func() int { return len(b) })
}

func feedPieces(r *rdmap.Receiver, b []byte, size func() int) error {
	for len(b) > 0 {
		want := r.Want()
		n := copy(want[:min(len(want), max(1, size()))], b)
		b = b[n:]
		if err := r.Filled(n); err != nil {
			return err
		}
	}
	return nil
}

// region is registered memory of a consumer.
type region struct {
	base        uint64
	buf         []byte // inside guard, with canaries around
	guard       []byte
	foreign     bool // of another protection domain
	write, read bool // remote rights
	atomic      bool
	anything    bool // one of them, or another
	invalid     bool
}

// consumer owns the memory of a Receiver under test.
type consumer struct {
	regions  map[ddp.STag]*region
	open     bool   // every STag is known and every place is right: nothing is written
	receives int    // posted; -1 = always another
	room     uint64 // of each
	recv     []byte

	ird      int
	requests []rdmap.ReadRequest // held
	reads    []rdmap.Expected    // ours that are outstanding
	sink     []byte              // of the response in progress

	events []string
}

const canary = 0xc5

// fixture is the receiver that the reaction vectors are meant for.
func fixture(v *iwarptest.Vectors) *consumer {
	c := &consumer{regions: make(map[ddp.STag]*region), receives: len(v.Fixture.Receives), ird: v.Fixture.IRD}
	c.room = uint64(v.Fixture.Receives[0].Length)
	for _, m := range v.Fixture.Memory {
		c.add(ddp.STag(m.STag), uint64(m.BaseTO), m.Length, m.PD != "QP", slices.Contains(m.Remote, "write"), len(m.Remote) > 0)
		c.regions[ddp.STag(m.STag)].read = slices.Contains(m.Remote, "read")
		c.regions[ddp.STag(m.STag)].atomic = slices.Contains(m.Remote, "atomic")
	}
	return c
}

func (c *consumer) add(stag ddp.STag, base uint64, n int, foreign, write, anything bool) {
	guard := bytes.Repeat([]byte{canary}, n+128)
	c.regions[stag] = &region{base: base, guard: guard, buf: guard[64 : 64+n : 64+n], foreign: foreign, write: write, anything: anything}
}

// snapshot yields copies of all memory, canaries included.
func (c *consumer) snapshot() func(func(ddp.STag, []byte) bool) {
	return func(yield func(ddp.STag, []byte) bool) {
		for stag, r := range c.regions {
			if !yield(stag, bytes.Clone(r.guard)) {
				return
			}
		}
	}
}

func (c *consumer) Place(stag ddp.STag, to uint64, p []byte) rdmap.Fault {
	if c.open {
		return rdmap.FaultNone
	}
	r := c.regions[stag]
	if f := r.check(func(r *region) bool { return r.write }, to, uint64(len(p))); f != rdmap.FaultNone {
		return f
	}
	copy(r.buf[to-r.base:], p)
	c.note("place", uint64(stag), to, p)
	return rdmap.FaultNone
}

func (r *region) check(right func(*region) bool, to, n uint64) rdmap.Fault {
	switch {
	case r == nil || r.invalid:
		return rdmap.FaultSTag
	case r.foreign:
		return rdmap.FaultStream
	case !right(r):
		return rdmap.FaultAccess
	case to+n < to:
		return rdmap.FaultWrap
	case to < r.base || to+n > r.base+uint64(len(r.buf)):
		return rdmap.FaultBounds
	}
	return rdmap.FaultNone
}

func (c *consumer) NextReceive() (uint64, bool) {
	if c.receives == 0 {
		return 0, false
	}
	if c.receives > 0 {
		c.receives--
	}
	c.recv = make([]byte, c.room)
	return c.room, true
}

func (c *consumer) PlaceReceive(mo uint32, p []byte) rdmap.Fault {
	copy(c.recv[mo:uint64(mo)+uint64(len(p))], p) // out of range is a panic: the Receiver must not
	return rdmap.FaultNone
}

func (c *consumer) Invalidate(stag ddp.STag) rdmap.Fault {
	if c.open {
		return rdmap.FaultNone
	}
	r := c.regions[stag]
	switch {
	case r == nil:
		return rdmap.FaultSTag
	case r.foreign:
		return rdmap.FaultStream
	case !r.anything:
		return rdmap.FaultAccess
	}
	r.invalid = true
	c.note("invalidate", uint64(stag), 0, nil)
	return rdmap.FaultNone
}

func (c *consumer) Deliver(d rdmap.Delivery) {
	c.note("deliver", uint64(d.Op)<<32|uint64(d.Len), uint64(d.InvSTag), c.recv[:d.Len])
}

func (c *consumer) RequestRoom() bool { return len(c.requests) < c.ird }

func (c *consumer) ReadRequest(req rdmap.ReadRequest, seg []byte) rdmap.Fault {
	if req.Size > 0 && !c.open {
		if f := c.regions[req.SrcSTag].check(func(r *region) bool { return r.read }, req.SrcTO, uint64(req.Size)); f != rdmap.FaultNone {
			return f
		}
	}
	c.requests = append(c.requests, req)
	c.note("request", uint64(req.SrcSTag), req.SrcTO, seg)
	return rdmap.FaultNone
}

func (c *consumer) AtomicRequest(req rdmap.AtomicRequest) rdmap.Fault {
	r := c.regions[req.STag]
	if !c.open {
		if f := r.check(func(r *region) bool { return r.atomic }, req.TO, 8); f != rdmap.FaultNone {
			return f
		}
		word := r.buf[req.TO-r.base:]
		binary.NativeEndian.PutUint64(word, req.Apply(binary.NativeEndian.Uint64(word)))
	}
	c.requests = append(c.requests, rdmap.ReadRequest{})
	c.note("atomic", uint64(req.STag), req.TO, nil)
	return rdmap.FaultNone
}

func (c *consumer) NextResponse() (rdmap.Expected, bool) {
	if len(c.reads) == 0 {
		return rdmap.Expected{}, false
	}
	c.sink = make([]byte, c.reads[0].Size)
	return c.reads[0], true
}

func (c *consumer) PlaceResponse(off uint64, p []byte) rdmap.Fault {
	copy(c.sink[off:off+uint64(len(p))], p) // out of range is a panic: the Receiver must not
	return rdmap.FaultNone
}

func (c *consumer) DeliverResponse() {
	c.note("response", uint64(c.reads[0].STag), c.reads[0].TO, c.sink)
	c.reads = c.reads[1:]
}

func (c *consumer) FailResponse(f rdmap.ResponseFault) { c.note("refuse response", uint64(f), 0, nil) }

func (c *consumer) FailReceive(f rdmap.ReceiveFault) { c.note("fail", uint64(f), 0, nil) }

// count says how many events are called what.
func (c *consumer) count(what string) (n int) {
	for _, e := range c.events {
		if strings.HasPrefix(e, what) {
			n++
		}
	}
	return n
}

// note keeps what happened, for comparing two runs.
func (c *consumer) note(what string, a, b uint64, p []byte) {
	e := []byte(what)
	e = binary.BigEndian.AppendUint64(e, a)
	e = binary.BigEndian.AppendUint64(e, b)
	c.events = append(c.events, string(append(e, p...)))
}
