package rdmap_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp/ddp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

// TestCaptureReads: what the kernel's siw said in a conversation passes through our
// engines, each Read Request with its Response; and our Sender, given the same
// messages and segment size, says the same octets.
func TestCaptureReads(t *testing.T) {
	files, err := filepath.Glob("../testdata/captures/*.frames")
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	requests, responses, segments := 0, 0, 0
	for _, file := range files {
		convs, err := iwarptest.ReadFrames(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(filepath.Base(file), "peer-") { // one side breaks rules on purpose
			continue
		}
		for _, c := range convs {
			var cons [2]*consumer // of the responder, of the initiator
			var recv [2]*rdmap.Receiver
			var msgs [2][]message
			for i := range recv {
				cons[i] = &consumer{room: 1 << 17, receives: -1, open: true, ird: 128}
				recv[i] = rdmap.NewReceiver(cons[i], c.CRC, i == 0)
			}
			for k, f := range c.Frames {
				if f.Kind != "fpdu" {
					continue
				}
				to := 0
				if !f.FromInitiator {
					to = 1
				}
				held := len(cons[to].requests)
				done := cons[to].count("response")
				err := feed(recv[to], f.Bytes)
				u := f.Bytes[mpa.LengthSize:]
				u = u[:int(f.Bytes[0])<<8|int(f.Bytes[1])]
				op := rdmap.Opcode(u[1] & 0xf)
				if op == rdmap.OpTerminate {
					break
				}
				if err != nil {
					t.Fatalf("%s frame %d: %v", filepath.Base(file), k, err)
				}
				msgs[to] = addSegment(msgs[to], op, u)
				if n := len(cons[to].requests); n > held {
					requests++
					r := cons[to].requests[n-1]
					cons[1-to].reads = append(cons[1-to].reads, rdmap.Expected{Op: rdmap.OpReadResponse, STag: r.SinkSTag, TO: r.SinkTO, Size: r.Size})
				}
				responses += cons[to].count("response") - done
			}
			for i := range msgs {
				segments += sayAgain(t, filepath.Base(file), msgs[i])
			}
		}
	}
	if requests < 20 || responses < 20 || segments < 300 {
		t.Errorf("%d Read Requests, %d answered, %d segments said again", requests, responses, segments)
	}
}

// message is one message of a capture, as its segments.
type message struct {
	op   rdmap.Opcode
	segs [][]byte
	done bool
}

func addSegment(all []message, op rdmap.Opcode, u []byte) []message {
	// Tagged and untagged messages may mix; of each sort one is open.
	for i := len(all) - 1; i >= 0 && i >= len(all)-2; i-- {
		if m := &all[i]; m.op == op && !m.done {
			m.segs, m.done = append(m.segs, u), u[0]&0x40 != 0
			return all
		}
	}
	return append(all, message{op: op, segs: [][]byte{u}, done: u[0]&0x40 != 0})
}

// sayAgain has a Sender say all messages, and returns how many segments were the
// same. Only messages that siw cut into equal segments can be; those must be.
func sayAgain(t *testing.T, file string, all []message) (same int) {
	t.Helper()
	mulpdu := 0
	for _, m := range all {
		for _, u := range m.segs {
			mulpdu = max(mulpdu, len(u))
		}
	}
	s := rdmap.NewSender(max(mulpdu, mpa.MinMULPDU))
	for _, m := range all {
		var payload []byte
		first := m.segs[0]
		msg := rdmap.Message{Op: m.op}
		header := ddp.UntaggedSize
		if ddp.IsTagged(first) {
			header = ddp.TaggedSize
			h := ddp.ParseTagged(first)
			msg.STag, msg.TO = h.STag, h.TO
		} else {
			msg.STag = ddp.STag(ddp.ParseUntagged(first).ULPWord)
		}
		for _, u := range m.segs {
			payload = append(payload, u[header:]...)
		}
		if msg.Head = rdmapHeader(m.op, payload); msg.Head == nil {
			msg.Payload = [][]byte{payload}
		}
		equal := true
		for _, u := range m.segs[:len(m.segs)-1] {
			equal = equal && len(u) == header+ddp.SegmentPayload(mulpdu, header)
		}
		s.Start(msg)
		var got [][]byte
		b := mpa.NewBatch()
		rd := mpa.NewReader(false)
		for done := false; !done; {
			b.Reset(false)
			done = s.Cut(b)
			for stream := bytes.Join(b.Bufs(), nil); len(stream) > 0; {
				n := copy(rd.Want(), stream)
				rd.Filled(n)
				stream = stream[n:]
				for {
					u, err := rd.Next()
					if err != nil {
						t.Fatal(err)
					}
					if u == nil {
						break
					}
					got = append(got, bytes.Clone(u))
				}
			}
		}
		if !equal || !m.done {
			continue
		}
		for i, u := range m.segs {
			if i >= len(got) || !bytes.Equal(got[i], u) {
				t.Fatalf("%s: segment %d of a message of opcode %d:\n got %x\nwant %x", file, i, m.op, head(got, i), head(m.segs, i))
			}
			same++
		}
	}
	return same
}

func head(segs [][]byte, i int) []byte {
	if i >= len(segs) {
		return nil
	}
	return segs[i][:min(len(segs[i]), 64)]
}
