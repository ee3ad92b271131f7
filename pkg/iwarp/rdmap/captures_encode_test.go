package rdmap_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp/ddp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

// siwULPDU is the ULPDU that siw fills at an MTU of 1500: it has time stamps, and no
// rounding within it.
const siwULPDU = 1442

// TestCapturesReencode: what siw sent, reassembled to messages and sent by us over a path like its own,
// gives the same octets: start-up frames, and every FPDU of every message except Terminates, whose layout
// is siw's alone. The pad, which siw does not clear, is zero for both, and the CRCs after it.
func TestCapturesReencode(t *testing.T) {
	files, err := filepath.Glob("../testdata/captures/*.frames")
	if err != nil {
		t.Fatal(err)
	}
	messages := 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".frames")
		t.Run(name, func(t *testing.T) {
			convs, err := iwarptest.ReadFrames(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range convs {
				for _, initiator := range []bool{true, false} {
					if initiator && strings.HasPrefix(name, "peer-") {
						continue // made by hand, in part wrong on purpose
					}
					messages += reencode(t, &c, initiator)
				}
			}
		})
	}
	if messages < 365 {
		t.Errorf("%d messages only", messages)
	}
}

// reencode sends again what one side sent; it returns the number of messages.
func reencode(t *testing.T, c *iwarptest.Conversation, initiator bool) (messages int) {
	t.Helper()
	sender := rdmap.NewSender(siwULPDU)
	sender.SetMULPDU(siwULPDU, true)
	batch := mpa.NewBatch()
	var msg rdmap.Message
	var want []byte // the FPDUs of msg
	for i, f := range c.Frames {
		if f.FromInitiator != initiator {
			continue
		}
		if f.Kind != "fpdu" {
			fr, _, err := mpa.ParseFrame(f.Bytes, !initiator)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := fr.Append(nil); err != nil || !bytes.Equal(got, f.Bytes) {
				t.Errorf("frame %d: got %x, %v, want %x", i, got, err, f.Bytes)
			}
			continue
		}
		seg := f.Bytes[mpa.LengthSize:][:binary.BigEndian.Uint16(f.Bytes)]
		op := rdmap.Opcode(seg[1] & 0xf)
		if op == rdmap.OpTerminate {
			continue
		}
		if len(want) == 0 {
			msg = rdmap.Message{Op: op}
		} else if msg.Op != op {
			t.Fatalf("frame %d: a message amid another one", i)
		}
		last := false
		if ddp.IsTagged(seg) {
			h := ddp.ParseTagged(seg)
			if len(want) == 0 {
				msg.STag, msg.TO = h.STag, h.TO
			}
			msg.Payload = append(msg.Payload, seg[ddp.TaggedSize:])
			last = h.Last
		} else {
			h := ddp.ParseUntagged(seg)
			msg.STag = ddp.STag(h.ULPWord)
			if op == rdmap.OpReadRequest {
				msg.Head = seg[ddp.UntaggedSize:]
			} else {
				msg.Payload = append(msg.Payload, seg[ddp.UntaggedSize:])
			}
			last = h.Last
		}
		want = append(want, cleared(f.Bytes, c.CRC)...)
		if !last {
			continue
		}
		batch.Reset(c.CRC)
		sender.Start(msg)
		for !sender.Cut(batch) {
		}
		if got := bytes.Join(batch.Bufs(), nil); !bytes.Equal(got, want) {
			t.Errorf("message that ends in frame %d:\ngot  %x\nwant %x", i, got, want)
		}
		messages++
		want = want[:0]
	}
	return messages
}

// cleared is an FPDU with zeroes for its pad.
func cleared(fpdu []byte, crc bool) []byte {
	b := bytes.Clone(fpdu)
	end := len(b) - mpa.CRCSize
	clear(b[mpa.LengthSize+int(binary.BigEndian.Uint16(b)) : end])
	if crc {
		binary.LittleEndian.PutUint32(b[end:], crc32.Checksum(b[:end], crc32.MakeTable(crc32.Castagnoli)))
	}
	return b
}
