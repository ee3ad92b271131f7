package rdmap

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/iwarp/ddp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

var update = flag.Bool("update", false, "rewrite the transcripts' expected halves")

// TestTranscripts feeds each testdata/*.txt to an engine: what a peer sends and
// what our side posts above the line, what comes of it below. Each is run whole
// and one byte at a time, with the same result.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			in, want, ok := strings.Cut(string(text), "----\n")
			if !ok {
				t.Fatalf("%s has no line ----", file)
			}
			got := play(t, in, 1<<20)
			if *update {
				if err := os.WriteFile(file, []byte(in+"----\n"+got), 0o666); err != nil {
					t.Fatal(err)
				}
				want = got
			}
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if got := play(t, in, 1); got != want {
				t.Errorf("one byte at a time: got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// play runs the commands of a transcript and returns what happened.
func play(t *testing.T, in string, chunk int) string {
	p := &player{regions: map[ddp.STag]*region{}}
	p.sender = NewSender(1454)
	for _, line := range strings.Split(in, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		a := args{t: t, line: line, m: map[string]string{}}
		for _, w := range words[1:] {
			k, v, _ := strings.Cut(w, "=")
			a.m[k] = v
		}
		switch words[0] {
		case "setup":
			p.setup = true
		case "region":
			p.regions[ddp.STag(a.num("stag"))] = &region{base: a.num("base"), buf: make([]byte, a.num("len")), fault: a.fault()}
		case "ird":
			p.ird = int(a.num("n"))
		case "answered": // the response to the oldest Read has been sent
			p.held--
		case "read": // one of ours is outstanding
			p.reads = append(p.reads, Expected{Op: OpReadResponse, STag: ddp.STag(a.num("stag")), TO: a.num("to"), Size: uint32(a.num("size"))})
			p.sinkGone = a.has("gone")
		case "extensions":
			p.engine().Extensions = true
		case "atomic": // one of ours is outstanding
			p.reads = append(p.reads, Expected{Op: OpAtomicResponse, ID: uint32(a.num("id")), Size: 8})
			p.sinkGone = a.has("gone")
		case "post-recv":
			p.receives = append(p.receives, a.num("len"))
		case "mulpdu":
			p.sender = NewSender(int(a.num("n")))
		case "msn":
			p.engine().msn[QNSend] = uint32(a.num("next"))
			p.sender.msn[QNSend] = uint32(a.num("next"))
		case "rx":
			p.rx(fpdu(a, words[1]), chunk)
		case "tx":
			p.tx(a)
		case "boundary":
			p.say("boundary %v", p.engine().Boundary())
		default:
			t.Fatalf("unknown command %q", line)
		}
	}
	return p.out.String()
}

type region struct {
	base  uint64
	buf   []byte
	fault Fault // for every use
}

// player is the engine's consumer and the transcript's log.
type player struct {
	out      strings.Builder
	setup    bool
	r        *Receiver
	sender   *Sender
	dead     bool
	regions  map[ddp.STag]*region
	receives []uint64
	ird      int
	held     int // the peer's Reads
	reads    []Expected
	sinkGone bool
}

func (p *player) say(format string, a ...any) { fmt.Fprintf(&p.out, format+"\n", a...) }

func (p *player) engine() *Receiver {
	if p.r == nil {
		p.r = NewReceiver(p, true, p.setup)
	}
	return p.r
}

func (p *player) rx(b []byte, chunk int) {
	r := p.engine()
	for len(b) > 0 && !p.dead {
		n := min(chunk, len(b))
		n = copy(r.Want(), b[:n])
		b = b[n:]
		err := r.Filled(n)
		if err == nil {
			continue
		}
		p.dead = true
		var pt *PeerTerminate
		term, answer := r.Answer(err)
		switch {
		case answer:
			hdrct := ""
			for _, on := range []bool{term.DDP != nil, term.DDP != nil, term.ReadRequest != nil} {
				hdrct += map[bool]string{false: "0", true: "1"}[on]
			}
			p.say("tx terminate %s hdrct=%s", term.String(), hdrct)
		case errors.As(err, &pt):
			p.say("peer terminate %s headers=%d,%d swapped=%v", pt.String(), len(pt.DDP), len(pt.ReadRequest), pt.PeerLayout)
		default:
			p.say("lost: %v", err)
		}
		if err2 := r.Filled(0); err2 != err {
			p.say("a second error: %v", err2)
		}
	}
}

// tx cuts a message and shows its segments as the peer parses them.
func (p *player) tx(a args) {
	m := Message{Op: a.op(), STag: ddp.STag(a.num("stag")), TO: a.num("to")}
	for _, n := range strings.Split(a.m["len"], "+") {
		k, err := strconv.ParseUint(n, 0, 64)
		if err != nil {
			a.t.Fatalf("%s: %v", a.line, err)
		}
		m.Payload = append(m.Payload, make([]byte, k))
	}
	b := mpa.NewBatch()
	b.Reset(true)
	p.sender.Start(m)
	if !p.sender.Cut(b) {
		a.t.Fatalf("%s: does not fit a batch", a.line)
	}
	rd := mpa.NewReader(true)
	for _, buf := range b.Bufs() {
		for len(buf) > 0 {
			n := copy(rd.Want(), buf)
			rd.Filled(n)
			buf = buf[n:]
			for {
				seg, err := rd.Next()
				if err != nil {
					a.t.Fatal(err)
				}
				if seg == nil {
					break
				}
				if ddp.IsTagged(seg) {
					h := ddp.ParseTagged(seg)
					p.say("tx tagged stag=%#x to=%d len=%d last=%v", h.STag, h.TO, len(seg)-ddp.TaggedSize, h.Last)
				} else {
					h := ddp.ParseUntagged(seg)
					p.say("tx untagged qn=%d msn=%#x mo=%d inv=%#x len=%d last=%v", h.QN, h.MSN, h.MO, h.ULPWord, len(seg)-ddp.UntaggedSize, h.Last)
				}
			}
		}
	}
}

func (p *player) check(stag ddp.STag, to, n uint64) Fault {
	m := p.regions[stag]
	switch {
	case m == nil:
		return FaultSTag
	case m.fault != FaultNone:
		return m.fault
	case to+n < to:
		return FaultWrap
	case to < m.base || to+n > m.base+uint64(len(m.buf)):
		return FaultBounds
	}
	return FaultNone
}

func (p *player) Place(stag ddp.STag, to uint64, b []byte) Fault {
	f := p.check(stag, to, uint64(len(b)))
	if f == FaultNone {
		p.say("place stag=%#x to=%d len=%d", stag, to, len(b))
	}
	return f
}

func (p *player) RequestRoom() bool { return p.held < p.ird }

func (p *player) ReadRequest(r ReadRequest, seg []byte) Fault {
	if r.Size > 0 {
		if f := p.check(r.SrcSTag, r.SrcTO, uint64(r.Size)); f != FaultNone {
			return f
		}
	}
	p.held++
	p.say("hold read sink=%#x:%#x size=%d source=%#x:%d", r.SinkSTag, r.SinkTO, r.Size, r.SrcSTag, r.SrcTO)
	return FaultNone
}

func (p *player) AtomicRequest(r AtomicRequest) Fault {
	f := p.check(r.STag, r.TO, 8)
	if f == FaultNone {
		p.held++
		word := p.regions[r.STag].buf[r.TO-p.regions[r.STag].base:]
		old := binary.NativeEndian.Uint64(word)
		binary.NativeEndian.PutUint64(word, r.Apply(old))
		p.say("hold atomic id=%d: %#x becomes %#x", r.ID, old, r.Apply(old))
	}
	return f
}

func (p *player) NextResponse() (Expected, bool) {
	if len(p.reads) == 0 {
		return Expected{}, false
	}
	return p.reads[0], true
}

func (p *player) PlaceResponse(off uint64, b []byte) Fault {
	if p.sinkGone {
		return FaultLocal
	}
	if p.reads[0].Op == OpAtomicResponse {
		p.say("place old value %#x", binary.NativeEndian.Uint64(b))
		return FaultNone
	}
	p.say("place response off=%d len=%d", off, len(b))
	return FaultNone
}

func (p *player) DeliverResponse() {
	if p.reads[0].Op == OpAtomicResponse {
		p.say("atomic %d is done", p.reads[0].ID)
	} else {
		p.say("read of %d is done", p.reads[0].Size)
	}
	p.reads = p.reads[1:]
}

func (p *player) FailResponse(f ResponseFault) {
	p.say("request fails: %s", [...]string{"bad response", "local"}[f])
}

func (p *player) NextReceive() (uint64, bool) {
	if len(p.receives) == 0 {
		return 0, false
	}
	n := p.receives[0]
	p.receives = p.receives[1:]
	return n, true
}

func (p *player) PlaceReceive(mo uint32, b []byte) Fault {
	p.say("place receive mo=%d len=%d", mo, len(b))
	return FaultNone
}

func (p *player) Invalidate(stag ddp.STag) Fault {
	m := p.regions[stag]
	if m == nil {
		return FaultSTag
	}
	if m.fault == FaultNone {
		delete(p.regions, stag)
		p.say("invalidate stag=%#x", stag)
	}
	return m.fault
}

func (p *player) Deliver(d Delivery) {
	if d.Op == OpImmediate || d.Op == OpImmediateSE {
		p.say("deliver immediate %x after write=%v len=%d solicited=%v", d.Imm, d.AfterWrite, d.Len, d.Op.Solicited())
		return
	}
	p.say("deliver op=%d len=%d inv=%#x solicited=%v", d.Op, d.Len, d.InvSTag, d.Op.Solicited())
}

func (p *player) FailReceive(f ReceiveFault) {
	p.say("receive fails: %s", [...]string{"too long", "local", "invalidate"}[f])
}

// args are the key=value words of a command.
type args struct {
	t    *testing.T
	line string
	m    map[string]string
}

func (a args) num(k string) uint64 {
	v, ok := a.m[k]
	if !ok {
		return 0
	}
	n, err := strconv.ParseUint(v, 0, 64)
	if err != nil {
		a.t.Fatalf("%s: %v", a.line, err)
	}
	return n
}

func (a args) has(k string) bool { _, ok := a.m[k]; return ok }

func (a args) op() Opcode {
	ops := map[string]Opcode{"write": OpWrite, "read-request": OpReadRequest, "read-response": OpReadResponse, "send": OpSend,
		"send-inv": OpSendInv, "send-se": OpSendSE, "send-se-inv": OpSendSEInv, "terminate": OpTerminate, "immediate": OpImmediate,
		"immediate-se": OpImmediateSE, "atomic-request": OpAtomicRequest, "atomic-response": OpAtomicResponse}
	if op, ok := ops[a.m["op"]]; ok {
		return op
	}
	return Opcode(a.num("op"))
}

func (a args) fault() Fault {
	return map[string]Fault{"": FaultNone, "stream": FaultStream, "access": FaultAccess}[a.m["fault"]]
}

// fpdu builds what the peer sends: "tagged", "untagged", "terminate" with its
// payload in hex, or "segment" with all of it in hex.
func fpdu(a args, kind string) []byte {
	var head []byte
	var payload []byte
	ctrl := uint8(ctrlVersion) | uint8(a.op())
	if a.has("rv") {
		ctrl = uint8(a.num("rv"))<<6 | uint8(a.op())
	}
	hex := func() []byte {
		var b []byte
		for s := a.m["hex"]; len(s) >= 2; s = s[2:] {
			n, err := strconv.ParseUint(s[:2], 16, 8)
			if err != nil {
				a.t.Fatal(err)
			}
			b = append(b, byte(n))
		}
		return b
	}
	switch kind {
	case "tagged":
		h := ddp.Tagged{Last: a.has("last"), ULP: ctrl, STag: ddp.STag(a.num("stag")), TO: a.num("to")}
		head = make([]byte, ddp.TaggedSize)
		h.Put(head)
		payload = make([]byte, a.num("len"))
	case "untagged", "terminate":
		h := ddp.Untagged{Last: a.has("last"), ULP: ctrl, ULPWord: uint32(a.num("inv")), QN: uint32(a.num("qn")), MSN: uint32(a.num("msn")), MO: uint32(a.num("mo"))}
		payload = make([]byte, a.num("len"))
		if kind == "terminate" {
			payload = hex()
			h.ULP = ctrlVersion | uint8(OpTerminate)
			h.Last = !a.has("more")
			if !a.has("qn") {
				h.QN = QNTerminate
			}
			if !a.has("msn") {
				h.MSN = 1
			}
		}
		if a.op() == OpReadRequest && !a.has("len") {
			payload = make([]byte, ReadRequestSize)
			r := ReadRequest{SinkSTag: ddp.STag(a.num("sink")), SinkTO: a.num("sink-to"), Size: uint32(a.num("size")),
				SrcSTag: ddp.STag(a.num("src")), SrcTO: a.num("src-to")}
			r.Put(payload)
		}
		if a.op() == OpAtomicRequest && !a.has("len") {
			payload = make([]byte, AtomicRequestSize)
			r := AtomicRequest{Op: AtomicOp(a.num("aop")), ID: uint32(a.num("id")), STag: ddp.STag(a.num("stag")), TO: a.num("to"),
				Data: a.num("data"), Mask: a.num("mask"), Compare: a.num("compare"), CompareMask: a.num("cmask")}
			r.Put(payload)
			if a.has("reserved") {
				payload[0], payload[3] = 0xff, payload[3]|0xf0
			}
		}
		if a.op() == OpAtomicResponse && !a.has("len") {
			payload = make([]byte, AtomicResponseSize)
			r := AtomicResponse{ID: uint32(a.num("id")), Old: a.num("old")}
			r.Put(payload)
		}
		if op := a.op(); !a.has("qn") && kind == "untagged" {
			h.QN = op.queue()
		}
		head = make([]byte, ddp.UntaggedSize)
		h.Put(head)
	case "segment":
		head = hex()
	default:
		a.t.Fatalf("unknown segment %q", a.line)
	}
	if a.has("dv") {
		head[0] = head[0]&^3 | uint8(a.num("dv"))
	}
	b := mpa.NewBatch()
	b.Reset(true)
	b.Add(head, payload)
	var out []byte
	for _, p := range b.Bufs() {
		out = append(out, p...)
	}
	if a.has("bad-crc") {
		out[len(out)-1] ^= 1
	}
	return out
}
