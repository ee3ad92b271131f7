package iwarp

import (
	"errors"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

var dev128 = depths{ird: 128, ord: 64}

// TestAnswerDepths covers CM-07, CM-08, CM-12 and CM-13: what a responder answers
// to the depths of a Request, and has in force then.
func TestAnswerDepths(t *testing.T) {
	for _, x := range []struct {
		name     string
		r        mpa.Enhanced
		p        ConnParam
		ird, ord uint16 // of the Reply
		terms    depths // in force
	}{
		{"as wished", mpa.Enhanced{IRD: 8, ORD: 8}, ConnParam{IRD: 8, ORD: 8}, 8, 8, depths{8, 8}},
		{"ORD within the initiator's IRD", mpa.Enhanced{IRD: 3, ORD: 8}, ConnParam{IRD: 8, ORD: 8}, 8, 3, depths{8, 3}},
		{"IRD above the initiator's ORD", mpa.Enhanced{IRD: 3, ORD: 1}, ConnParam{IRD: 8, ORD: 1}, 8, 1, depths{8, 1}},
		{"IRD lowered by its owner", mpa.Enhanced{IRD: 8, ORD: 8}, ConnParam{IRD: 2}, 2, 0, depths{2, 0}},
		{"nothing", mpa.Enhanced{}, ConnParam{IRD: 5, ORD: 5}, 5, 0, depths{5, 0}},
		{"the device's limits", mpa.Enhanced{IRD: 1000, ORD: 1000}, ConnParam{IRD: 1000, ORD: 1000}, 128, 64, depths{128, 64}},
		{"the initiator leaves our IRD alone", mpa.Enhanced{IRD: 4, ORD: DepthAny}, ConnParam{IRD: 7, ORD: 7}, DepthAny, 4, depths{7, 4}},
		{"the initiator leaves our ORD alone", mpa.Enhanced{IRD: DepthAny, ORD: 4}, ConnParam{IRD: 7, ORD: 7}, 7, DepthAny, depths{7, 7}},
		{"as many as it asks for", mpa.Enhanced{IRD: 20, ORD: 9}, ConnParam{IRD: DepthAny, ORD: DepthAny}, 128, 20, depths{128, 20}},
		{"as many as both have", mpa.Enhanced{IRD: 900, ORD: 900}, ConnParam{IRD: DepthAny, ORD: DepthAny}, 128, 64, depths{128, 64}},
		{"nobody says a number", mpa.Enhanced{IRD: DepthAny, ORD: DepthAny}, ConnParam{IRD: DepthAny, ORD: DepthAny}, DepthAny, DepthAny, depths{128, 64}},
		{"RTR by Read", mpa.Enhanced{PeerToPeer: true, RTR: mpa.RTRRead}, ConnParam{}, 1, 0, depths{1, 0}},
		{"RTR by Read, IRD there", mpa.Enhanced{PeerToPeer: true, RTR: mpa.RTRRead}, ConnParam{IRD: 4}, 4, 0, depths{4, 0}},
		{"RTR by Write", mpa.Enhanced{PeerToPeer: true, RTR: mpa.RTRWrite}, ConnParam{}, 0, 0, depths{0, 0}},
	} {
		a, got := answerEnhanced(&x.r, &x.p, dev128)
		if a.IRD != x.ird || a.ORD != x.ord {
			t.Errorf("%s: Reply has IRD %d, ORD %d; want %d, %d", x.name, a.IRD, a.ORD, x.ird, x.ord)
		}
		if (depths{got.ird, got.ord}) != x.terms {
			t.Errorf("%s: in force IRD %d, ORD %d; want %+v", x.name, got.ird, got.ord, x.terms)
		}
		if x.r.IRD != DepthAny && a.ORD > x.r.IRD {
			t.Errorf("%s: ORD %d exceeds the initiator's IRD %d", x.name, a.ORD, x.r.IRD)
		}
	}
}

// TestAnswerRTR covers CM-15 to CM-18 and INT-14.
func TestAnswerRTR(t *testing.T) {
	const w, r, s = mpa.RTRWrite, mpa.RTRRead, mpa.RTRSend
	for _, x := range []struct {
		offered mpa.RTR
		p       RTRSet
		dev     depths
		want    mpa.RTR
	}{
		{w | r | s, 0, dev128, w}, {w | r, 0, dev128, w}, {r | s, 0, dev128, r}, {s, 0, dev128, s},
		{w | r | s, RTRRead, dev128, r}, {w | r | s, RTRSend | RTRRead, dev128, r}, {w | s, RTRSend, dev128, s},
		{r | s, 0, depths{}, s}, {r, 0, depths{}, w}, // no Reads: ours, for the peer to refuse
		{w, RTRRead, dev128, r}, {0, 0, dev128, w}, {r, RTRRead, depths{}, w},
	} {
		a, got := answerEnhanced(&mpa.Enhanced{PeerToPeer: true, RTR: x.offered}, &ConnParam{RTR: x.p}, x.dev)
		if !a.PeerToPeer || a.RTR != x.want || got.rtr != x.want {
			t.Errorf("offered %b, %b taken here: got %b, want %b", x.offered, x.p, a.RTR, x.want)
		}
		if a, _ := answerEnhanced(&mpa.Enhanced{RTR: x.offered}, &ConnParam{RTR: x.p}, x.dev); a.PeerToPeer || a.RTR != 0 {
			t.Errorf("client-server, offered %b: Reply has A %v, RTR %b", x.offered, a.PeerToPeer, a.RTR)
		}
	}
}

// TestSettle covers CM-09, CM-10, CM-12, CM-16, CM-19, CM-21, CM-22 and MPA-07: an
// initiator's reading of the Reply.
func TestSettle(t *testing.T) {
	const w, r, s = mpa.RTRWrite, mpa.RTRRead, mpa.RTRSend
	p2p := func(rtr mpa.RTR, ird, ord uint16) *mpa.Enhanced {
		return &mpa.Enhanced{PeerToPeer: true, RTR: rtr, IRD: ird, ORD: ord}
	}
	cs := func(ird, ord uint16) *mpa.Enhanced { return &mpa.Enhanced{IRD: ird, ORD: ord} }
	for _, x := range []struct {
		name  string
		p     ConnParam
		reply *mpa.Enhanced
		code  uint8 // 0: it is good
		terms depths
		rtr   mpa.RTR
	}{
		{"as wished", ConnParam{IRD: 8, ORD: 8}, p2p(w, 8, 8), 0, depths{8, 8}, w},
		{"ORD lowered", ConnParam{IRD: 8, ORD: 8}, p2p(w, 2, 1), 0, depths{8, 2}, w},
		{"the responder has more", ConnParam{IRD: 1, ORD: 1}, p2p(w, 100, 1), 0, depths{1, 1}, w},
		{"its ORD too big", ConnParam{IRD: 8, ORD: 8}, p2p(w, 8, 9), mpa.CodeIRD, depths{}, 0},
		{"its ORD too big for none", ConnParam{ClientServer: true}, cs(0, 1), mpa.CodeIRD, depths{}, 0},
		{"our IRD left alone", ConnParam{IRD: 5, ORD: 5}, p2p(w, 5, DepthAny), 0, depths{5, 5}, w},
		{"our ORD left alone", ConnParam{IRD: 5, ORD: 5}, p2p(w, DepthAny, 5), 0, depths{5, 5}, w},
		{"no numbers at all", ConnParam{IRD: DepthAny, ORD: DepthAny}, p2p(w, DepthAny, DepthAny), 0, depths{128, 64}, w},
		{"numbers all the same", ConnParam{IRD: DepthAny, ORD: DepthAny}, p2p(w, 30, 20), 0, depths{128, 30}, w},
		{"more than the device has", ConnParam{IRD: DepthAny, ORD: DepthAny}, p2p(w, 30, 129), mpa.CodeIRD, depths{}, 0},
		{"MinORD is there", ConnParam{ORD: 8, MinORD: 4}, p2p(w, 4, 0), 0, depths{0, 4}, w},
		{"MinORD is not", ConnParam{ORD: 8, MinORD: 4}, p2p(w, 3, 0), mpa.CodeEnhanced, depths{}, 0},
		{"several forms", ConnParam{ORD: 1}, p2p(w|r|s, 1, 0), 0, depths{0, 1}, w},
		{"Read", ConnParam{}, p2p(r|s, 1, 0), 0, depths{0, 0}, r},
		{"Send, not offered", ConnParam{}, p2p(s, 1, 0), mpa.CodeRTR, depths{}, 0},
		{"Send", ConnParam{RTR: RTRSend}, p2p(s, 1, 0), 0, depths{0, 0}, s},
		{"Write, not offered", ConnParam{RTR: RTRSend | RTRRead}, p2p(w, 1, 0), mpa.CodeRTR, depths{}, 0},
		{"none", ConnParam{}, p2p(0, 1, 0), mpa.CodeRTR, depths{}, 0},
		{"another model", ConnParam{}, cs(1, 0), mpa.CodeEnhanced, depths{}, 0},
		{"another model back", ConnParam{ClientServer: true}, p2p(w, 1, 0), mpa.CodeEnhanced, depths{}, 0},
		{"client-server with RTR bits", ConnParam{ClientServer: true}, &mpa.Enhanced{RTR: w | s}, 0, depths{0, 0}, 0},
	} {
		request := mpa.Frame{Rev: 2, Enhanced: askEnhanced(&x.p, dev128)}
		reply := mpa.Frame{Reply: true, Rev: 2, CRC: true, Enhanced: x.reply}
		got, err := settle(&request, &reply, &x.p, dev128)
		var me *mpa.Error
		switch {
		case x.code != 0:
			if !errors.As(err, &me) || me.Code != x.code {
				t.Errorf("%s: got %v, want code %d", x.name, err, x.code)
			}
		case err != nil:
			t.Errorf("%s: %v", x.name, err)
		case (depths{got.ird, got.ord}) != x.terms || got.rtr != x.rtr || !got.crc:
			t.Errorf("%s: got %+v, want %+v and RTR %b", x.name, got, x.terms, x.rtr)
		}
	}
}

// TestConnParamCheck: wishes that cannot be are refused before anything is sent.
func TestConnParamCheck(t *testing.T) {
	for _, x := range []struct {
		p    ConnParam
		dev  depths
		want string // "" = good
	}{
		{ConnParam{Rev: 2, ORD: DepthAny, IRD: 1000, RTR: RTRRead, MinORD: 64}, dev128, ""},
		{ConnParam{Rev: 3}, dev128, "revision 3"},
		{ConnParam{Rev: -1}, dev128, "revision -1"},
		{ConnParam{RTR: 8}, dev128, "RTR"},
		{ConnParam{RTR: RTRRead}, depths{}, "no RDMA Read"},
		{ConnParam{ORD: DepthAny + 1}, dev128, "ORD"},
		{ConnParam{ORD: 3, MinORD: 4}, dev128, "MinORD"},
		{ConnParam{ORD: 100, MinORD: 65}, dev128, "MinORD"},
	} {
		if err := x.p.check(x.dev); (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%+v: got %v, want %q", x.p, err, x.want)
		}
	}
}
