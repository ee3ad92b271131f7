package mpa_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

const vectorsFile = "../testdata/vectors/vectors.json"

func vectors(t testing.TB) *iwarptest.Vectors {
	t.Helper()
	v, err := iwarptest.ReadVectors(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// CRC-32C of "123456789", and RFC 5044's own examples: figure 5 is a vector below,
// figure 6 is written out.
func TestCRC(t *testing.T) {
	if got := mpa.CRC(0, []byte("123456789")); got != 0xe3069283 {
		t.Errorf("check value: got %08x, want e3069283", got)
	}
	// RFC 5044 figure 6: a marker after the DDP header points back 20 octets.
	fig6 := []byte{
		0x00, 0x2a, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0,
		0x00, 0x00, 0x00, 0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	}
	if got := binary.LittleEndian.AppendUint32(nil, mpa.CRC(0, fig6)); !bytes.Equal(got, []byte{0x84, 0x92, 0x58, 0x98}) {
		t.Errorf("figure 6: got %x, want 84925898", got)
	}
	if a, b := mpa.CRC(mpa.CRC(0, fig6[:7]), fig6[7:]), mpa.CRC(0, fig6); a != b {
		t.Errorf("in two parts: got %08x, want %08x", a, b)
	}
}

// Every start-up frame is decoded and encoded octet for octet.
func TestGoldenStartup(t *testing.T) {
	checked := 0
	for _, v := range vectors(t).Vectors {
		if v.Kind != "mpa" {
			continue
		}
		checked++
		t.Run(v.Name, func(t *testing.T) {
			reply := strings.Contains(v.Name, "-rep-")
			f, n, err := mpa.ParseFrame(v.Hex, reply)
			if err != nil || n != v.Length {
				t.Fatalf("got length %d and %v, want %d", n, err, v.Length)
			}
			if f.Reply != reply || f.Rev != v.Rev {
				t.Errorf("got reply %v, revision %d; want %v, %d", f.Reply, f.Rev, reply, v.Rev)
			}
			flags := byte(0)
			for bit, set := range map[byte]bool{0x80: f.Markers, 0x40: f.CRC, 0x20: f.Reject, 0x10: f.Enhanced != nil} {
				if set {
					flags |= bit
				}
			}
			if flags != v.Flags {
				t.Errorf("flags: got %02x, want %02x", flags, v.Flags)
			}
			pd := len(f.Private)
			if f.Enhanced != nil {
				pd += mpa.EnhancedSize
			}
			if pd != v.PDLength {
				t.Errorf("PD_Length: got %d, want %d", pd, v.PDLength)
			}
			got, err := f.Append(nil)
			if err != nil || !bytes.Equal(got, v.Hex) {
				t.Errorf("encoded again:\n got %x, %v\nwant %x", got, err, v.Hex)
			}
			for cut := range v.Length { // octet by octet it is never wrong, and never whole
				if _, n, err := mpa.ParseFrame(v.Hex[:cut], reply); n != 0 || err != nil {
					t.Fatalf("of %d octets: got length %d and %v", cut, n, err)
				}
			}
		})
	}
	if checked != 12 {
		t.Errorf("%d start-up frames checked, want 12", checked)
	}
}

// The numbers of an enhanced frame.
func TestGoldenEnhanced(t *testing.T) {
	for name, want := range map[string]mpa.Enhanced{
		"mpa-req-rev2-p2p":       {PeerToPeer: true, RTR: mpa.RTRWrite | mpa.RTRRead, IRD: 16, ORD: 8},
		"mpa-rep-rev2-p2p":       {PeerToPeer: true, RTR: mpa.RTRWrite, IRD: 8, ORD: 16},
		"mpa-req-rev2-cs-nocrc":  {IRD: 32, ORD: 1},
		"mpa-rep-rev2-cs-nocrc":  {IRD: 1, ORD: 32},
		"mpa-req-rev2-noautoneg": {PeerToPeer: true, RTR: mpa.RTRSend | mpa.RTRWrite | mpa.RTRRead, IRD: mpa.DepthAny, ORD: mpa.DepthAny},
		"mpa-rep-rev2-reject":    {PeerToPeer: true, RTR: mpa.RTRRead, ORD: 64},
	} {
		v := vectors(t).Find(name)
		if v == nil {
			t.Fatalf("no vector %s", name)
		}
		f, _, err := mpa.ParseFrame(v.Hex, strings.Contains(name, "-rep-"))
		if err != nil || f.Enhanced == nil {
			t.Errorf("%s: got %+v, %v", name, f, err)
		} else if *f.Enhanced != want {
			t.Errorf("%s: got %+v, want %+v", name, *f.Enhanced, want)
		}
	}
}

// Every FPDU is decoded and encoded octet for octet.
func TestGoldenFPDU(t *testing.T) {
	all := vectors(t)
	checked, markers := 0, 0
	for _, v := range all.Vectors {
		if v.Kind != "fpdu" {
			continue
		}
		if len(v.Markers) > 0 {
			markers++ // TestGoldenMarkers: they have a place in a stream
			continue
		}
		checked++
		t.Run(v.Name, func(t *testing.T) {
			crc := v.CRC32C != nil
			r := mpa.NewReader(crc)
			got, err := feed(r, v.Hex)
			if err != nil || len(got) != 1 || !bytes.Equal(got[0], v.ULPDU) {
				t.Fatalf("decoded: got %x, %v\nwant %x", got, err, v.ULPDU)
			}
			if r.Partial() {
				t.Error("octets are left over")
			}
			if got := mpa.FPDUSize(v.ULPDULength); got != v.Length {
				t.Errorf("size: got %d, want %d", got, v.Length)
			}
			if got := mpa.PadSize(v.ULPDULength); got != v.Pad {
				t.Errorf("pad: got %d, want %d", got, v.Pad)
			}
			b := mpa.NewBatch()
			b.Reset(crc)
			b.Add(v.ULPDU[:14], v.ULPDU[14:])
			if got := bytes.Join(b.Bufs(), nil); !bytes.Equal(got, v.Hex) {
				t.Errorf("encoded:\n got %x\nwant %x", got, v.Hex)
			}
			if !crc {
				return
			}
			for i := range v.Hex { // each octet counts
				bad := bytes.Clone(v.Hex)
				bad[i] ^= 0x10
				if i < mpa.LengthSize {
					continue // another length: another frame, or none yet
				}
				var e *mpa.Error
				if got, err := feed(mpa.NewReader(true), bad); !errors.As(err, &e) || e.Code != mpa.CodeCRC || len(got) > 0 {
					t.Fatalf("octet %d changed: got %x, %v", i, got, err)
				}
			}
		})
	}
	if checked+markers != 43 || markers != 7 {
		t.Errorf("%d FPDUs checked and %d with markers, of 43", checked, markers)
	}
}

// Start-up frames that break a rule are refused, as far as the frame alone shows
// it. The rest is up to the connection and tested with it.
func TestGoldenStartupReactions(t *testing.T) {
	connection := map[string]string{
		"extra-octets":           "octets behind the Request",
		"reply-rev1-to-enhanced": "an unenhanced Reply to an enhanced Request",
		"reply-no-common-rtr":    "negotiation",
		"reply-ord-too-big":      "negotiation",
	}
	for _, r := range vectors(t).MPAReactions {
		t.Run(r.Name, func(t *testing.T) {
			f, n, err := mpa.ParseFrame(r.Hex, strings.HasPrefix(r.Role, "initiator"))
			if why, ok := connection[r.Name]; ok {
				if err != nil || n == 0 {
					t.Errorf("got length %d and %v: the frame itself is well formed, at fault is %s", n, err, why)
				}
				return
			}
			switch r.Expect.Action {
			case "close":
				var e *mpa.Error
				if !errors.As(err, &e) || e.Code != mpa.CodeStartup || n != 0 {
					t.Errorf("got length %d and %v, want an error with code %d", n, err, mpa.CodeStartup)
				}
			case "accept":
				if err != nil || n != len(r.Hex) || f.Reject {
					t.Errorf("got length %d, %v, %+v", n, err, f)
				}
			case "accept-unenhanced":
				if err != nil || n != len(r.Hex) || f.Enhanced != nil || len(f.Private) != 4 {
					t.Errorf("got length %d, %v, %+v", n, err, f)
				}
			default:
				t.Errorf("unknown expectation %q", r.Expect.Action)
			}
		})
	}
}

// feed gives a Reader the octets in pieces as large as it takes them and collects
// the ULPDUs.
func feed(r *mpa.Reader, b []byte) (all [][]byte, err error) {
	return feedPieces(r, b, func() int { return len(b) })
}

// feedPieces is feed in pieces of at most size() octets.
func feedPieces(r *mpa.Reader, b []byte, size func() int) (all [][]byte, err error) {
	for len(b) > 0 {
		want := r.Want()
		n := copy(want[:min(len(want), max(1, size()))], b)
		b = b[n:]
		r.Filled(n)
		for {
			u, err := r.Next()
			if err != nil {
				return all, err
			}
			if u == nil {
				break
			}
			all = append(all, bytes.Clone(u))
		}
	}
	return all, nil
}

// RFC 5044 §4.5, with its limits.
func TestMULPDU(t *testing.T) {
	for emss, want := range map[int]int{1460: 1454, 1448: 1442, 8948: 8942, 65483: 64768, 1 << 20: 64768, 100: 128, 0: 128, 1447: 1438} {
		if got := mpa.MULPDU(emss, false); got != want {
			t.Errorf("EMSS %d: got %d, want %d", emss, got, want)
		}
	}
	for emss, want := range map[int]int{1460: 1442, 1448: 1430, 8948: 8870, 65483: 64768, 1 << 20: 64768, 140: 130, 100: 128, 512: 502, 513: 498} {
		if got := mpa.MULPDU(emss, true); got != want {
			t.Errorf("EMSS %d with markers: got %d, want %d", emss, got, want)
		}
	}
}
