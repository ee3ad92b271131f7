package iwarptest

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

// The known-answer scenarios, put into packets of our making, are what they say
// they are; so a test that calls a capture clean can be believed. And a damaged
// FPDU is seen.
func TestTsharkScenarios(t *testing.T) {
	v, err := ReadVectors("../../../../pkg/iwarp/testdata/vectors/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	write := func(t *testing.T, s *Scenario, damage bool) (path string, fpdus int) {
		path = filepath.Join(t.TempDir(), "x.pcap")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		w := NewPcapWriter(f)
		c := w.Conn(netip.MustParseAddrPort("10.0.0.1:40000"), netip.MustParseAddrPort("10.0.0.2:7632"))
		for _, p := range s.Packets {
			x := v.Find(p.Vector)
			b := append([]byte(nil), x.Hex...)
			if x.Kind == "fpdu" {
				fpdus++
				if damage && fpdus == 3 {
					b[len(b)-1] ^= 1
				}
			}
			c.Data(p.Dir == "O", b)
		}
		c.CloseWrite(true)
		c.CloseWrite(false)
		if err := w.Err(); err != nil {
			t.Fatal(err)
		}
		return path, fpdus
	}
	for i := range v.Scenarios {
		s := &v.Scenarios[i]
		if s.Name != "s1_rev1_crc" && s.Name != "s2_rev2_p2p" && s.Name != "s6_term_read_protection" {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			path, n := write(t, s, false)
			r := Tshark(t, path)
			r.Clean(t, n)
			if r.Requests != 1 || r.Replies != 1 {
				t.Errorf("%d Requests and %d Replies", r.Requests, r.Replies)
			}
		})
	}
	t.Run("damaged", func(t *testing.T) {
		path, _ := write(t, &v.Scenarios[0], true)
		if r := Tshark(t, path); r.BadCRCs != 1 {
			t.Errorf("a wrong CRC is not seen: %+v", r)
		}
	})
}
