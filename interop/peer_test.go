package interop

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Sizes of both ends of siw-peer's protocol.
const (
	peerBuf   = 1 << 20
	peerRecv  = 64 << 10
	peerRecvs = 16
	peerReads = 16
	// siw may miss what reaches it within some milliseconds of its Reply: more of them in a guest without
	// KVM that shares its cores (35 ms were, with 20 others).
	settleTime = 250 * time.Millisecond
	// What arrives before siw's own Send has returned to the program: at a Read Request siw,
	// with itself as well, closes about one in a thousand connections; for a broken rule it
	// sends no Terminate.
	returnPause = 20 * time.Millisecond
	// peerTime is how long any step of the guest's may take: it is slow, and may stand still for some time.
	peerTime = time.Minute
)

// peerInfo is the private data of both ends.
type peerInfo struct {
	Addr             uint64
	RKey, Len, RKey2 uint32
	Zero             uint32
}

// peer is our end of a conversation with siw-peer, of which it is the counterpart
// in both roles.
type peer struct {
	dev      iwarp.Device
	pd       iwarp.PD
	scq, rcq iwarp.CQ
	qp       iwarp.QP

	buf, send, recv         []byte
	mr, inv, sendMR, recvMR iwarp.MR
	far                     peerInfo
	info                    *iwarp.ConnInfo

	invalidated bool // the peer has invalidated inv
	recvLen     int  // of each receive
}

// newPeer makes an end that is not connected yet. Everything is given back at the
// test's end.
func newPeer(t *testing.T, dev iwarp.Device) *peer { return newPeerRecvs(t, dev, peerRecvs, peerRecv) }

// newPeerRecvs is newPeer with so many receives of so many bytes.
func newPeerRecvs(t *testing.T, dev iwarp.Device, recvs, recvLen int) *peer {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	p := &peer{dev: dev, buf: make([]byte, peerBuf), send: make([]byte, peerRecv), recv: make([]byte, peerRecvs*peerRecv), recvLen: recvLen}
	var err error
	p.pd, err = dev.AllocPD()
	must(err)
	p.scq, err = dev.CreateCQ(64)
	must(err)
	p.rcq, err = dev.CreateCQ(64)
	must(err)
	p.qp, err = p.pd.CreateQP(iwarp.QPInitAttr{SendCQ: p.scq, RecvCQ: p.rcq, MaxSend: 32, MaxRecv: peerRecvs})
	must(err)
	pattern(p.buf, 1)
	remote := iwarp.LocalWrite | iwarp.RemoteRead | iwarp.RemoteWrite
	// A base of no meaning: TOs are numbers.
	p.mr, err = p.pd.RegMR(p.buf, remote, &iwarp.MROptions{Base: 0x1_0000_0000 + rand.Uint64N(1<<40)})
	must(err)
	p.inv, err = p.pd.RegMR(p.buf[:64], remote, &iwarp.MROptions{QP: p.qp})
	must(err)
	p.sendMR, err = p.pd.RegMR(p.send, 0, nil)
	must(err)
	p.recvMR, err = p.pd.RegMR(p.recv, iwarp.LocalWrite, nil)
	must(err)
	for i := range recvs {
		must(p.postRecv(uint64(i)))
	}
	t.Cleanup(func() {
		must(p.qp.Destroy())
		for _, mr := range []iwarp.MR{p.mr, p.inv, p.sendMR, p.recvMR} {
			must(mr.Dereg())
		}
		must(p.scq.Close())
		must(p.rcq.Close())
		must(p.pd.Dealloc())
	})
	return p
}

func (p *peer) postRecv(id uint64) error {
	return p.qp.PostRecv(&iwarp.RecvWR{ID: id, SGL: []iwarp.SGE{{Addr: id * peerRecv, Length: uint32(p.recvLen), LKey: p.recvMR.STag()}}})
}

// private is what we tell the peer at start-up.
func (p *peer) private() []byte {
	b, err := binary.Append(nil, binary.BigEndian, &peerInfo{
		Addr: p.mr.Base(), RKey: uint32(p.mr.STag()), Len: peerBuf, RKey2: uint32(p.inv.STag())})
	if err != nil {
		panic(err)
	}
	return b
}

// param adds what siw-peer expects to a test's own wishes.
func (p *peer) param(c iwarp.ConnParam) *iwarp.ConnParam {
	c.PrivateData = p.private()
	c.ORD, c.IRD = peerReads, peerReads
	c.Settle = settleTime
	return &c
}

// dial connects to a siw-peer server.
func (p *peer) dial(ctx context.Context, addr string, c iwarp.ConnParam) error {
	info, err := p.dev.Dial(ctx, addr, p.qp, p.param(c))
	if err != nil {
		return err
	}
	p.info = info
	return p.learn(info.PrivateData)
}

// accept takes a siw-peer client's connection.
func (p *peer) accept(ctx context.Context, req iwarp.ConnRequest, c iwarp.ConnParam) error {
	if err := p.learn(req.Info().PrivateData); err != nil {
		return err
	}
	return req.Accept(ctx, p.qp, p.param(c))
}

func (p *peer) learn(private []byte) error {
	if err := binary.Read(bytes.NewReader(private), binary.BigEndian, &p.far); err != nil {
		return fmt.Errorf("private data of the peer: %d bytes: %w", len(private), err)
	}
	return nil
}

// pattern fills b with bytes that depend on seed; those of a shorter b are its
// beginning. siw-peer has the same.
func pattern(b []byte, seed uint32) {
	x := 0x9e3779b97f4a7c15 * (uint64(seed) + 1)
	for len(b) > 0 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		var le [8]byte
		binary.LittleEndian.PutUint64(le[:], x)
		b = b[copy(b, le[:]):]
	}
}

// same reports whether b is pattern(seed).
func same(b []byte, seed uint32) bool {
	want := make([]byte, len(b))
	pattern(want, seed)
	return bytes.Equal(b, want)
}

// next waits for one completion of cq.
func (p *peer) next(ctx context.Context, cq iwarp.CQ) (iwarp.WC, error) {
	ctx, cancel := context.WithTimeout(ctx, peerTime)
	defer cancel()
	var wc [1]iwarp.WC
	for cq.Poll(wc[:]) == 0 {
		if err := cq.Wait(ctx); err != nil {
			return wc[0], fmt.Errorf("no completion: %w", err)
		}
	}
	return wc[0], nil
}

// statusError is a completion without success.
type statusError struct {
	what   string
	status iwarp.Status
}

func (e *statusError) Error() string { return e.what + ": " + e.status.String() }

// post does one request and waits for it.
func (p *peer) post(ctx context.Context, what string, wr *iwarp.SendWR) error {
	if err := p.qp.PostSend(wr); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return p.reap(ctx, what)
}

func (p *peer) reap(ctx context.Context, what string) error {
	wc, err := p.next(ctx, p.scq)
	if err == nil && wc.Status != iwarp.StatusSuccess {
		err = &statusError{what, wc.Status}
	}
	return err
}

// local is part of our buffer.
func (p *peer) local(off, n int) []iwarp.SGE {
	return []iwarp.SGE{{Addr: p.mr.Base() + uint64(off), Length: uint32(n), LKey: p.mr.STag()}}
}

// sendBytes Sends the first n bytes of p.send.
func (p *peer) sendBytes(ctx context.Context, n int, op iwarp.Opcode, flags iwarp.SendFlags) error {
	return p.post(ctx, "send", &iwarp.SendWR{Op: op, Flags: flags, InvSTag: iwarp.STag(p.far.RKey2),
		SGL: []iwarp.SGE{{Length: uint32(n), LKey: p.sendMR.STag()}}})
}

func (p *peer) say(ctx context.Context, format string, args ...any) error {
	return p.sendBytes(ctx, copy(p.send, fmt.Sprintf(format, args...)), iwarp.OpSend, 0)
}

// hear waits for a message and returns a copy of it.
func (p *peer) hear(ctx context.Context) ([]byte, error) {
	wc, err := p.next(ctx, p.rcq)
	if err != nil {
		return nil, err
	}
	return p.take(&wc)
}

func (p *peer) take(wc *iwarp.WC) ([]byte, error) {
	if wc.Status != iwarp.StatusSuccess {
		return nil, &statusError{"receive", wc.Status}
	}
	if wc.Inv {
		if wc.InvSTag != p.inv.STag() {
			return nil, fmt.Errorf("the peer invalidated %#x, not %#x", wc.InvSTag, p.inv.STag())
		}
		p.invalidated = true
	}
	at := int(wc.ID) * peerRecv
	m := bytes.Clone(p.recv[at : at+int(wc.ByteLen)])
	return m, p.postRecv(wc.ID)
}

// verdict waits for "ok".
func (p *peer) verdict(ctx context.Context, op string) error {
	m, err := p.hear(ctx)
	if err == nil && string(m) != "ok" {
		err = fmt.Errorf("the peer says %q", m)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

// serve is siw-peer's server: it does what the peer asks for, until that closes.
func (p *peer) serve(ctx context.Context) error {
	expect, expectSeed := -1, uint32(0)
	answer := func(ok bool) error { return p.say(ctx, "%s", map[bool]string{true: "ok", false: "bad"}[ok]) }
	for {
		m, err := p.hear(ctx)
		if flushed := new(statusError); errors.As(err, &flushed) && flushed.status == iwarp.StatusWRFlushErr {
			<-p.qp.Done()
			return p.qp.Err()
		}
		if err != nil {
			return err
		}
		if expect >= 0 {
			err = answer(len(m) == expect && same(m, expectSeed))
			expect = -1
			if err != nil {
				return err
			}
			continue
		}
		var cmd byte
		var n int
		var seed uint32
		if k, _ := fmt.Sscanf(string(m), "%c %d %d", &cmd, &n, &seed); k < 2 || n > peerBuf {
			continue
		}
		switch cmd {
		case 'V':
			err = answer(same(p.buf[:n], seed))
		case 'C':
			expect, expectSeed = n, seed
		case 'F':
			pattern(p.buf[:n], seed)
			err = answer(true)
		case 'W':
			// Not out of p.buf: the peer may look at that later.
			src := make([]byte, n+1)
			pattern(src[:n], seed)
			err = p.with(src, func(mr iwarp.MR) error {
				return p.post(ctx, "W", &iwarp.SendWR{Op: iwarp.OpWrite, SGL: []iwarp.SGE{{Length: uint32(n), LKey: mr.STag()}},
					STag: iwarp.STag(p.far.RKey), TO: p.far.Addr})
			})
			if err == nil {
				err = answer(true)
			}
		case 'R':
			letReturn(ctx)
			if err = p.read(ctx, 0, n); err == nil {
				ok := same(p.buf[:n], seed)
				pattern(p.buf, 1)
				err = answer(ok)
			}
		case 'S':
			pattern(p.send[:n], 7)
			err = p.sendBytes(ctx, n, iwarp.OpSend, 0)
		}
		if err != nil {
			return err
		}
	}
}

// letReturn gives siw's Send, which has been received, the time to return.
func letReturn(ctx context.Context) {
	select {
	case <-time.After(returnPause):
	case <-ctx.Done():
	}
}

// with registers b for the length of f.
func (p *peer) with(b []byte, f func(mr iwarp.MR) error) error {
	mr, err := p.pd.RegMR(b, 0, nil)
	if err != nil {
		return err
	}
	return errors.Join(f(mr), mr.Dereg())
}

// read reads n bytes of the peer's buffer into ours.
func (p *peer) read(ctx context.Context, off, n int) error {
	return p.post(ctx, "read", p.readWR(off, n))
}

func (p *peer) readWR(off, n int) *iwarp.SendWR {
	return &iwarp.SendWR{Op: iwarp.OpRead, SGL: p.local(off, n), STag: iwarp.STag(p.far.RKey), TO: p.far.Addr + uint64(off)}
}

// invWR writes to what a Send with Invalidate of ours closes.
func (p *peer) invWR() *iwarp.SendWR {
	wr := p.writeWR(64)
	wr.STag = iwarp.STag(p.far.RKey2)
	return wr
}

func (p *peer) writeWR(n int) *iwarp.SendWR {
	return &iwarp.SendWR{Op: iwarp.OpWrite, SGL: p.local(0, n), STag: iwarp.STag(p.far.RKey), TO: p.far.Addr}
}

// do is one operation of siw-peer's client.
func (p *peer) do(ctx context.Context, op string, n int, seed uint32) error {
	var err error
	ask := func(cmd byte) error {
		if err := p.say(ctx, "%c %d %d", cmd, n, seed); err != nil {
			return err
		}
		return p.verdict(ctx, op)
	}
	check := func(ok bool) error {
		if !ok {
			return fmt.Errorf("%s: wrong data", op)
		}
		return nil
	}
	switch op {
	case "send", "sendse":
		flags := map[string]iwarp.SendFlags{"sendse": iwarp.Solicited}[op]
		clear(p.send)
		return p.sendBytes(ctx, n, iwarp.OpSend, flags)
	case "sendinv", "sendinvse":
		flags := map[string]iwarp.SendFlags{"sendinvse": iwarp.Solicited}[op]
		clear(p.send)
		return p.sendBytes(ctx, n, iwarp.OpSendInv, flags)
	case "write":
		pattern(p.buf[:n], seed)
		if err = p.post(ctx, op, p.writeWR(n)); err == nil {
			err = ask('V')
		}
	case "fread":
		clear(p.buf[:n])
		if err = ask('F'); err == nil {
			letReturn(ctx)
			err = p.read(ctx, 0, n)
		}
		if err == nil {
			err = check(same(p.buf[:n], seed))
		}
	case "swrite":
		clear(p.buf[:n])
		if err = ask('W'); err == nil {
			err = check(same(p.buf[:n], seed))
		}
	case "sread":
		pattern(p.buf[:n], seed)
		err = ask('R')
	case "csend":
		if err = p.say(ctx, "C %d %d", n, seed); err == nil {
			pattern(p.send[:n], seed)
			err = p.sendBytes(ctx, n, iwarp.OpSend, 0)
		}
		if err == nil {
			err = p.verdict(ctx, op)
		}
	case "reply":
		var m []byte
		if err = p.say(ctx, "S %d", n); err == nil {
			m, err = p.hear(ctx)
		}
		if err == nil {
			err = check(len(m) == n && same(m, 7))
		}
	default:
		err = errors.New("no such operation")
	}
	if err != nil {
		return fmt.Errorf("%s of %d bytes, seed %d: %w", op, n, seed, err)
	}
	return nil
}

// reads has k Reads under way at a time.
func (p *peer) reads(ctx context.Context, k, n int) error {
	seed := uint32(n + k)
	if err := p.say(ctx, "F %d %d", k*n, seed); err != nil {
		return err
	}
	if err := p.verdict(ctx, "fill"); err != nil {
		return err
	}
	clear(p.buf[:k*n])
	letReturn(ctx)
	for i := range k {
		if err := p.qp.PostSend(p.readWR(i*n, n)); err != nil {
			return err
		}
	}
	for range k {
		if err := p.reap(ctx, "read"); err != nil {
			return err
		}
	}
	if !same(p.buf[:k*n], seed) {
		return fmt.Errorf("%d Reads of %d bytes: wrong data", k, n)
	}
	return nil
}

// mixed does operations of random kinds and sizes until limit bytes have moved.
func (p *peer) mixed(ctx context.Context, limit int64, seed uint64) (count int, moved int64, err error) {
	r := rand.New(rand.NewPCG(seed, 1))
	for ; moved < limit; count++ {
		op := []string{"write", "fread", "swrite", "sread", "csend", "reply", "write", "fread", "swrite", "sread", "reads"}[r.IntN(11)]
		most := peerBuf
		switch op {
		case "csend", "reply":
			most = peerRecv
		case "reads":
			most = peerBuf / peerReads
		}
		n := min(1<<r.IntN(21), most)
		n = min(n+r.IntN(n), most)
		if r.IntN(8) == 0 {
			n = r.IntN(5)
		}
		if op == "reads" || op == "fread" {
			n = max(n, 1) // siw answers some Reads of nothing with octets of before
		}
		k := 1
		if op == "reads" {
			k = 1 + r.IntN(peerReads)
			err = p.reads(ctx, k, n)
		} else {
			err = p.do(ctx, op, n, uint32(count%251))
		}
		if err != nil {
			return count, moved, fmt.Errorf("operation %d: %w", count, err)
		}
		moved += int64(k * n)
	}
	return count, moved, nil
}

// close ends the conversation in good order.
func (p *peer) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, peerTime)
	defer cancel()
	return p.qp.Disconnect(ctx)
}
