package iwarp_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

// In fuzzed streams these stand for STags, which are random at each run.
var fuzzSTags = [5]uint32{0xa1a1a1a1, 0xa2a2a2a2, 0xa3a3a3a3, 0xa4a4a4a4, 0xa5a5a5a5}

// FuzzStream: whatever octets follow start-up, on a connection with everything
// turned on, a QP does not panic, writes nothing outside of a window, sends nothing
// that was not offered, keeps its own requests' promises, and ends in bounded time
// once its peer has.
func FuzzStream(f *testing.F) {
	v, err := iwarptest.ReadVectors(filepath.Join("testdata", "vectors", "vectors.json"))
	if err != nil {
		f.Fatal(err)
	}
	window := func(b []byte) []byte { // the fixture's STag becomes the window's
		return bytes.ReplaceAll(b, []byte{0x1a, 0x2b, 0x3c, 0x00}, binary.BigEndian.AppendUint32(nil, fuzzSTags[0]))
	}
	for _, r := range v.Reactions {
		f.Add(window(r.Hex), uint8(2))
	}
	for _, x := range v.Vectors {
		if x.Kind == "fpdu" && len(x.Markers) == 0 {
			f.Add(window(x.Hex), uint8(3))
		}
	}
	var all []byte
	for i, s := range fuzzSTags {
		all = append(all, readFrame(uint32(i+1), iwarp.STag(s), 1<<20, 64)...)
		all = append(all, writeFrame(iwarp.STag(s), 1<<20, 8)...)
	}
	f.Add(all, uint8(0))
	f.Add(append(sendFrame(1, 0, false, 32), sendFrame(1, 32, true, 32)...), uint8(9))
	f.Fuzz(func(t *testing.T, b []byte, mode uint8) {
		synctest.Test(t, func(t *testing.T) { fuzzStream(t, b, mode) })
	})
}

func fuzzStream(t *testing.T, b []byte, mode uint8) {
	n := iwarptest.NewNetwork()
	dev := iwarptest.Open(t, n.Config())
	e := iwarptest.NewEnd(t, dev, iwarp.QPInitAttr{})
	mine := bytes.Repeat([]byte{secretByte}, windowSize+2*guardSize)
	fill(mine[guardSize:guardSize+windowSize], windowByte)
	other := bytes.Repeat([]byte{secretByte}, 4*windowSize)
	bound := &iwarp.MROptions{QP: e.QP, Base: 1 << 20}
	atomic := iwarp.Access(0)
	if dev.Attr().Atomics {
		atomic = iwarp.RemoteAtomic
	}
	regions := []iwarp.MR{
		e.Reg(t, mine[guardSize:guardSize+windowSize], iwarp.LocalWrite|iwarp.RemoteWrite|iwarp.RemoteRead|atomic, bound),
		e.Reg(t, other[:windowSize], iwarp.LocalWrite, bound),
		e.Reg(t, other[windowSize:2*windowSize], 0, bound),
	}
	second := iwarptest.NewEnd(t, dev, iwarp.QPInitAttr{})
	regions = append(regions,
		second.Reg(t, other[2*windowSize:3*windowSize], iwarp.LocalWrite|iwarp.RemoteWrite|iwarp.RemoteRead|atomic, nil),
		e.Reg(t, other[3*windowSize:], iwarp.LocalWrite|atomic, bound))
	for i, s := range fuzzSTags {
		b = bytes.ReplaceAll(b, binary.BigEndian.AppendUint32(nil, s), binary.BigEndian.AppendUint32(nil, uint32(regions[i].STag())))
	}
	receives := int(mode % 8)
	for i := range receives {
		e.Recv(t, uint64(100+i), 48)
	}
	wishes := &iwarp.ConnParam{ORD: 2, IRD: 2, CRC: iwarp.CRCOffIfAgreed, Extensions: true}
	l, err := dev.Listen(t.Context(), "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := n.Dial(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	req := mpa.Frame{Rev: mpa.Rev2, Enhanced: &mpa.Enhanced{IRD: 2, ORD: 2}}
	put(t, c, frame(t, req))
	r, err := l.Accept(t.Context())
	if err == nil {
		err = r.Accept(t.Context(), e.QP, wishes)
	}
	if err != nil {
		t.Fatal(err)
	}
	posted := receives
	if mode&8 != 0 { // work of our own, for which answers may come
		sink := e.Reg(t, make([]byte, 64), iwarp.LocalWrite|iwarp.RemoteWrite, nil)
		for i, wr := range []iwarp.SendWR{
			{Op: iwarp.OpRead, STag: 1, SGL: []iwarp.SGE{{Length: 16, LKey: sink.STag()}}},
			{Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("behind it")},
			{Op: iwarp.OpRead, STag: 1},
		} {
			wr.ID = uint64(i)
			if e.QP.PostSend(&wr) == nil {
				posted++
			}
		}
	}
	said := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(c)
		said <- b
	}()
	_, _ = c.Write(b) // the stream may have ended amid it
	_ = c.(interface{ CloseWrite() error }).CloseWrite()
	start := time.Now()
	answer := <-said
	<-e.QP.Done()
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("the QP took %v to end", d)
	}
	_ = c.Close()
	check(t, "before the window", mine[:guardSize])
	check(t, "behind the window", mine[guardSize+windowSize:])
	check(t, "without the right to write", other)
	// A Terminate quotes the peer's own octets.
	if secret := bytes.Repeat([]byte{secretByte}, 8); bytes.Contains(answer, secret) && !bytes.Contains(b, secret[:2]) {
		t.Error("memory that was not offered was sent")
	}
	wc := make([]iwarp.WC, 64)
	if got := e.CQ.Poll(wc); got != posted {
		t.Errorf("%d requests were posted, %d completed", posted, got)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	for _, q := range []*iwarptest.End{e, second} {
		if err := q.QP.Destroy(); err != nil {
			t.Error(err)
		}
	}
}

func check(t *testing.T, name string, b []byte) {
	t.Helper()
	if i := bytes.IndexFunc(b, func(r rune) bool { return r != secretByte }); i >= 0 {
		t.Errorf("memory %s was changed at %d", name, i)
	}
}
