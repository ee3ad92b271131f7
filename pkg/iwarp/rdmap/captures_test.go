package rdmap_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp/ddp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

// The kernel's siw, decoded: every frame of every capture has the length, the CRC
// and the message sequence numbers that our codecs expect, and says to us what it
// said to another decoder.
func TestCaptures(t *testing.T) {
	files, err := filepath.Glob("../testdata/captures/*.frames")
	if err != nil || len(files) != 40 {
		t.Fatalf("got %d captures, want 40 (%v)", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".frames"), func(t *testing.T) {
			convs, err := iwarptest.ReadFrames(file)
			if err != nil {
				t.Fatal(err)
			}
			if len(convs) == 0 {
				t.Fatal("no connection")
			}
			for _, c := range convs {
				for _, initiator := range []bool{true, false} {
					checkSide(t, filepath.Base(file), &c, initiator)
				}
			}
		})
	}
}

// The jumbo capture has FPDUs of 32768 octets and is there as packets only.
func TestCaptureJumbo(t *testing.T) {
	b, err := os.ReadFile("../testdata/captures/v2-crc-jumbo.pcap")
	if err != nil {
		t.Fatal(err)
	}
	streams, err := iwarptest.ReadPcap(b)
	if err != nil || len(streams) != 1 {
		t.Fatalf("got %d connections, %v", len(streams), err)
	}
	longest := 0
	for _, initiator := range []bool{true, false} {
		stream := streams[0].Bytes(initiator)
		f, n, err := mpa.ParseFrame(stream, !initiator)
		if err != nil || n == 0 || !f.CRC {
			t.Fatalf("start-up: %+v, %d, %v", f, n, err)
		}
		rd := mpa.NewReader(true)
		for stream = stream[n:]; len(stream) > 0; {
			k := copy(rd.Want(), stream)
			stream = stream[k:]
			rd.Filled(k)
			for {
				u, err := rd.Next()
				if err != nil {
					t.Fatal(err)
				}
				if u == nil {
					break
				}
				longest = max(longest, mpa.FPDUSize(len(u)))
			}
		}
		if rd.Partial() {
			t.Error("octets are left over")
		}
	}
	if longest != 32768 {
		t.Errorf("longest FPDU: %d octets, want 32768", longest)
	}
}

// checkSide decodes what one side of a conversation sent.
func checkSide(t *testing.T, file string, c *iwarptest.Conversation, initiator bool) {
	t.Helper()
	rd := mpa.NewReader(c.CRC)
	msn := map[uint32]uint32{0: 1, 1: 1, 2: 1}
	for i, f := range c.Frames {
		if f.FromInitiator != initiator {
			continue
		}
		if f.Kind != "fpdu" {
			if got := startupNote(t, f, initiator); got != f.Note {
				t.Errorf("frame %d: got %q, want %q", i, got, f.Note)
			}
			continue
		}
		got, err := one(rd, f.Bytes)
		broken := strings.Contains(f.Note, "BAD-CRC")
		if broken {
			var e *mpa.Error
			if !errors.As(err, &e) || e.Code != mpa.CodeCRC {
				t.Errorf("frame %d has a wrong CRC: got %v", i, err)
			}
			return
		}
		if err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
		// The maker of a bad frame on purpose is not siw; its numbers prove nothing.
		handMade := strings.HasPrefix(file, "peer-") && initiator
		if want, _, _ := strings.Cut(f.Note, " crc-field"); note(got) != want {
			t.Errorf("frame %d: got %q, want %q", i, note(got), want)
		}
		if ddp.IsTagged(got) {
			continue
		}
		h := ddp.ParseUntagged(got)
		if h.MSN != msn[h.QN] && !handMade {
			t.Errorf("frame %d: MSN %d on queue %d, want %d", i, h.MSN, h.QN, msn[h.QN])
		}
		if h.Last {
			msn[h.QN] = h.MSN + 1
		}
		if rdmap.Opcode(got[1]&0xf) == rdmap.OpTerminate && !handMade {
			checkTerminate(t, file, got[ddp.UntaggedSize:])
		}
	}
}

// one feeds a single FPDU.
func one(rd *mpa.Reader, b []byte) ([]byte, error) {
	for len(b) > 0 {
		n := copy(rd.Want(), b)
		b = b[n:]
		rd.Filled(n)
	}
	u, err := rd.Next()
	if err == nil && u == nil {
		err = errors.New("not a whole FPDU")
	}
	return bytes.Clone(u), err
}

// startupNote says what the other decoder says of a start-up frame.
func startupNote(t *testing.T, f iwarptest.Frame, initiator bool) string {
	fr, n, err := mpa.ParseFrame(f.Bytes, !initiator)
	if err != nil || n != len(f.Bytes) {
		t.Fatalf("start-up frame: length %d of %d, %v", n, len(f.Bytes), err)
	}
	s := fmt.Sprintf("MPA %s rev %d", map[bool]string{true: "request", false: "reply"}[initiator], fr.Rev)
	pd := len(fr.Private)
	for _, x := range []struct {
		on   bool
		word string
	}{{fr.Markers, " markers"}, {fr.CRC, " crc"}, {fr.Reject, " reject"}, {fr.Enhanced != nil, " enhanced"}} {
		if x.on {
			s += x.word
		}
	}
	if fr.Enhanced != nil {
		pd += mpa.EnhancedSize
	}
	s += fmt.Sprintf(" private data %d", pd)
	if e := fr.Enhanced; e != nil {
		word := func(on bool, w string) string {
			if on {
				return w
			}
			return ""
		}
		s += fmt.Sprintf(" ird %d%s%s ord %d%s%s", e.IRD, word(e.PeerToPeer, " p2p"), word(e.RTR&mpa.RTRSend != 0, " rtr-send"),
			e.ORD, word(e.RTR&mpa.RTRWrite != 0, " rtr-write"), word(e.RTR&mpa.RTRRead != 0, " rtr-read"))
	}
	return s
}

// note says what the other decoder says of a segment.
func note(u []byte) string {
	names := []string{"write", "read-req", "read-resp", "send", "send-inv", "send-se", "send-se-inv", "terminate"}
	op := int(u[1] & 0xf)
	name := fmt.Sprintf("op%d", op)
	if op < len(names) {
		name = names[op]
	}
	last := func(l bool) string {
		if l {
			return " last"
		}
		return ""
	}
	if ddp.IsTagged(u) {
		h := ddp.ParseTagged(u)
		return fmt.Sprintf("%s stag %08x to %x len %d%s", name, uint32(h.STag), h.TO, len(u)-ddp.TaggedSize, last(h.Last))
	}
	h := ddp.ParseUntagged(u)
	p := u[ddp.UntaggedSize:]
	s := fmt.Sprintf("%s qn %d msn %d mo %d len %d%s", name, h.QN, h.MSN, h.MO, len(p), last(h.Last))
	switch op {
	case 4, 6:
		s += fmt.Sprintf(" inv %08x", h.ULPWord)
	case 1:
		s += fmt.Sprintf(" sink %08x:%x size %d source %08x:%x", binary.BigEndian.Uint32(p), binary.BigEndian.Uint64(p[4:]),
			binary.BigEndian.Uint32(p[12:]), binary.BigEndian.Uint32(p[16:]), binary.BigEndian.Uint64(p[20:]))
	case 7:
		s += fmt.Sprintf(" control %x", p[:4])
	}
	return s
}

// siwTerminates is what siw means by its Terminates, whose octets it lays out in
// an order of its own.
var siwTerminates = map[string]string{
	"v2-crc-term-badread.frames":    "0/1/00",
	"v2-nocrc-term-badread.frames":  "0/1/00",
	"v2-crc-term-badwrite.frames":   "1/1/00",
	"v2-nocrc-term-badwrite.frames": "1/1/00",
	"v2-crc-term-oob.frames":        "1/1/01",
	"peer-v2-term-badcrc.frames":    "2/0/02",
	"peer-v2-term-badmsn.frames":    "1/2/03",
	"peer-v2-term-badver.frames":    "1/2/06",
	"peer-v2-term-badop.frames":     "0/2/06",
	"peer-v2-term-toolong.frames":   "1/2/02",
	"peer-v2-term-inv.frames":       "0/2/09",
	"peer-v2-term-badread.frames":   "0/1/00",
	"peer-v2-term-badwrite.frames":  "1/1/00",
}

func checkTerminate(t *testing.T, file string, payload []byte) {
	t.Helper()
	term, err := rdmap.ParseTerminate(payload, false)
	if err != nil {
		t.Errorf("Terminate %x: %v", payload, err)
		return
	}
	want, known := siwTerminates[file]
	if got := triple(&term); !known || got != want {
		t.Errorf("Terminate %x: got %s, want %q", payload, got, want)
	}
}
