package iwarptest

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
)

// Conversation is a captured connection as a list of frames.
type Conversation struct {
	CRC    bool // agreed in start-up
	Frames []Frame
}

// Frame is one frame of a conversation.
type Frame struct {
	FromInitiator bool
	Kind          string // "req", "rep" or "fpdu"
	Bytes         []byte
	Note          string // what another decoder reported about it
}

// ReadFrames reads a .frames file of testdata/captures.
func ReadFrames(path string) ([]Conversation, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []Conversation
	s := bufio.NewScanner(bytes.NewReader(b))
	s.Buffer(nil, 1<<20)
	for n := 1; s.Scan(); n++ {
		line := s.Text()
		if strings.HasPrefix(line, "# conn ") {
			all = append(all, Conversation{CRC: strings.Contains(line, "crc on")})
			continue
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("%s:%d: frame outside a connection", path, n)
		}
		c := &all[len(all)-1]
		if note, ok := strings.CutPrefix(line, "#"); ok {
			if k := len(c.Frames); k > 0 {
				c.Frames[k-1].Note = strings.TrimSpace(note)
			}
			continue
		}
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != ">" && f[0] != "<" {
			return nil, fmt.Errorf("%s:%d: not a frame", path, n)
		}
		octets, err := hex.DecodeString(f[2])
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		c.Frames = append(c.Frames, Frame{FromInitiator: f[0] == ">", Kind: f[1], Bytes: octets})
	}
	return all, s.Err()
}

// Stream returns what one side sent, frame after frame.
func (c *Conversation) Stream(initiator bool) []byte {
	var b []byte
	for _, f := range c.Frames {
		if f.FromInitiator == initiator {
			b = append(b, f.Bytes...)
		}
	}
	return b
}

// Conversation cuts a recorded connection into frames: those of the initiator, then those of
// the responder. It goes by lengths alone, and does not support markers.
func (s *PcapStream) Conversation() (Conversation, error) {
	var c Conversation
	for _, initiator := range []bool{true, false} {
		b, kind := s.Bytes(initiator), map[bool]string{true: "req", false: "rep"}[initiator]
		for len(b) > 0 {
			n := 0
			switch {
			case kind == "fpdu" && len(b) >= 2:
				n = (2+int(b[0])<<8+int(b[1])+3)&^3 + 4
			case kind != "fpdu" && len(b) >= 20:
				n = 20 + int(b[18])<<8 + int(b[19])
				c.CRC = c.CRC || b[16]&0x40 != 0
			}
			if n == 0 || n > len(b) {
				return c, fmt.Errorf("%d octets after %d frames are no whole frame", len(b), len(c.Frames))
			}
			c.Frames = append(c.Frames, Frame{FromInitiator: initiator, Kind: kind, Bytes: b[:n]})
			b, kind = b[n:], "fpdu"
		}
	}
	return c, nil
}

// Opcode returns the opcode of an FPDU (RFC 5040 §4.3), and whether it is the last of its
// message.
func (f *Frame) Opcode() (op uint8, last bool) {
	return f.Bytes[3] & 0xf, f.Bytes[2]&0x40 != 0
}
