package iwarp_test

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

// TestEmptyMessagesNameAnSTag covers INT-13: an RTR, a Write of nothing and a Read of
// nothing name an STag that is not 0, whatever the program says, as STag 0 upsets
// some RNICs.
func TestEmptyMessagesNameAnSTag(t *testing.T) {
	for _, form := range []iwarp.RTRSet{iwarp.RTRWrite, iwarp.RTRRead} {
		synctest.Test(t, func(t *testing.T) {
			n := iwarptest.NewNetwork()
			var out, in bytes.Buffer
			cfg := n.Config()
			cfg.Dial = iwarptest.Tap(n.Dial, &out, &in)
			a := iwarptest.NewEnd(t, iwarptest.Open(t, cfg), iwarp.QPInitAttr{})
			b := iwarptest.NewEnd(t, iwarptest.Open(t, n.Config()), iwarp.QPInitAttr{})
			iwarptest.Connect(t, a, b, "127.0.0.1:0", &iwarp.ConnParam{RTR: form, ORD: 1}, &iwarp.ConnParam{IRD: 1})
			a.Post(t, &iwarp.SendWR{ID: 1, Op: iwarp.OpWrite})
			a.WaitOK(t, 1)
			a.Post(t, &iwarp.SendWR{ID: 2, Op: iwarp.OpRead})
			a.WaitOK(t, 2)
			synctest.Wait()
			r := mpa.NewReader(true)
			got, err := ulpdus(r, out.Bytes()[24:])
			if err != nil || len(got) != 3 {
				t.Fatalf("%d FPDUs, %v; want the RTR, a Write and a Read Request", len(got), err)
			}
			for i, u := range got {
				stags := u[2:6] // of a Write
				if rdmap.Opcode(u[1]&0xf) == rdmap.OpReadRequest {
					req := rdmap.ParseReadRequest(u[18:])
					if req.Size != 0 || req.SinkSTag == 0 || req.SrcSTag == 0 {
						t.Errorf("FPDU %d: %+v", i, req)
					}
					continue
				}
				if bytes.Equal(stags, make([]byte, 4)) {
					t.Errorf("FPDU %d names STag 0: %x", i, u)
				}
			}
		})
	}
}

// ulpdus are the ULPDUs in a stream.
func ulpdus(r *mpa.Reader, b []byte) (all [][]byte, err error) {
	for len(b) > 0 {
		n := copy(r.Want(), b)
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
