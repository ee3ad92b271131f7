package iwarp

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// TestSTagTable holds the table against a map, with few indices so that its runs
// are long and wrap.
func TestSTagTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var sh stagShard
	sh.slots = make([]stagSlot, 16)
	model := make(map[uint32]*mr)
	for step := range 200_000 {
		i := (1 + rng.Uint32N(400)*rng.Uint32N(7)%1500) * stagShards
		_, there := model[i]
		if s := sh.at(i); (s.index == i) != there || s.m != model[i] {
			t.Fatalf("step %d: index %d is %+v, want %v, %p", step, i, *s, there, model[i])
		}
		switch {
		case there && rng.IntN(5) < 3:
			sh.free(i)
			delete(model, i)
		case !there:
			m := &mr{}
			sh.grow()
			*sh.at(i) = stagSlot{i, m}
			model[i] = m
		}
		if sh.n != len(model) {
			t.Fatalf("step %d: %d taken, want %d", step, sh.n, len(model))
		}
	}
}

// covers SEC-25, SEC-08: with 10^5 regions a lookup looks at as few places as with
// ten, and an STag that is guessed is most likely none.
func TestLookupIsFlat(t *testing.T) {
	dev, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	const n = 100_000
	buf := make([]byte, 1)
	mrs := make([]MR, n)
	for i := range mrs {
		if mrs[i], err = pd.RegMR(buf, 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	d := dev.(*soft)
	places, worst := 0, 0
	for i := range d.mrs.shards {
		sh := &d.mrs.shards[i]
		mask := uint32(len(sh.slots) - 1)
		for k, s := range sh.slots {
			if s.index == 0 {
				continue
			}
			far := 1 + int((uint32(k)-s.index/stagShards)&mask)
			places += far
			worst = max(worst, far)
		}
	}
	if mean := float64(places) / n; mean > 3 || worst > 200 {
		t.Errorf("a lookup looks at %.1f places on average, at %d at worst", mean, worst)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	hits := 0
	for range 1_000_000 {
		if d.mrs.lookup(STag(rng.Uint32())) != nil {
			hits++
		}
	}
	if hits > 100 { // 10^6 * 10^5 / 2^32 = 23
		t.Errorf("%d of 10^6 guessed STags name something", hits)
	}
	for _, m := range mrs {
		if d.mrs.lookup(m.STag()) != m {
			t.Fatal("a region was not found")
		}
		if d.mrs.lookup(m.STag()^1) != nil {
			t.Fatal("a wrong key names a region")
		}
		if err := m.Dereg(); err != nil {
			t.Fatal(err)
		}
	}
	if d.mrs.lookup(0) != nil || d.mrs.lookup(0xff) != nil {
		t.Error("index 0 names something")
	}
}

// covers VRB-21: a key is none of the last 128 of its index, and not to be told
// from them.
func TestKeysRest(t *testing.T) {
	var e entropy
	k := keyring{stag: 0xabcdef00}
	last := make(map[STag]int)
	steps := make(map[STag]int)
	before := STag(0)
	for i := range 10_000 {
		s := k.next(&e)
		if s>>8 != 0xabcdef {
			t.Fatalf("STag %#x has another index", s)
		}
		if was, ok := last[s]; ok && i-was <= 128 {
			t.Fatalf("STag %#x came again after %d", s, i-was)
		}
		last[s] = i
		steps[(s-before)&0xff]++
		before = s
	}
	for d, n := range steps {
		if n > 400 { // 10^4 / 255 = 39 each
			t.Errorf("step %d came %d times", d, n)
		}
	}
}

// covers SEC-22: the library gives peers no memory of its own. What they reach is the
// slice that its owner has registered, and nothing beside it.
func TestRegionsAreTheirOwnersMemory(t *testing.T) {
	e := newEnd(t)
	buf := make([]byte, 64)
	same := func(what string, m *mr, want []byte) {
		t.Helper()
		if m == nil || unsafe.SliceData(m.buf) != unsafe.SliceData(want) || len(m.buf) != len(want) {
			t.Errorf("%s: not its owner's memory", what)
		}
	}
	r, err := e.pd.RegMR(buf[8:24], LocalWrite, nil)
	if err != nil {
		t.Fatal(err)
	}
	q := e.qp.(*qp)
	same("RegMR", q.dev.mrs.lookup(r.STag()), buf[8:24])
	f, err := e.pd.AllocMR(64)
	if err != nil {
		t.Fatal(err)
	}
	m, err := q.prepareReg(&FastReg{MR: f, Buf: buf[3:20]})
	if err != nil || !m.of.(*fastMR).register(m) {
		t.Fatal(err)
	}
	same("OpFastReg", q.dev.mrs.lookup(f.STag()), buf[3:20])
	w, err := e.pd.AllocMW()
	if err != nil {
		t.Fatal(err)
	}
	b := &BindMW{MW: w, MR: r, Addr: 4, Len: 5, Access: RemoteRead}
	if m, err = q.prepareBind(b); err != nil || !w.(*mw).bind(m, b) {
		t.Fatal(err)
	}
	same("OpBindMW", q.dev.mrs.lookup(w.STag()), buf[12:17])
}

// TestSRQReceiveInProgress: when a peer dies inside a message, the receive that the message had taken is
// flushed by its QP; later ones stay on the SRQ.
func TestSRQReceiveInProgress(t *testing.T) {
	e := newEnd(t)
	d := e.dev.(*soft)
	sq, err := e.pd.CreateSRQ(SRQInitAttr{MaxRecv: 4})
	if err != nil {
		t.Fatal(err)
	}
	cq, err := e.dev.CreateCQ(16)
	if err != nil {
		t.Fatal(err)
	}
	qpair, err := e.pd.CreateQP(QPInitAttr{SendCQ: cq, RecvCQ: cq, MaxSend: 4, MaxRecv: 4, SRQ: sq})
	if err != nil {
		t.Fatal(err)
	}
	q, s := qpair.(*qp), sq.(*srq)
	for i := range uint64(3) {
		if err := sq.PostRecv(&RecvWR{ID: i}); err != nil {
			t.Fatal(err)
		}
	}
	q.rx.q = q
	if _, ok := q.rx.NextReceive(); !ok {
		t.Fatal("no receive")
	}
	q.Abort()
	var wc [4]WC
	if n := cq.Poll(wc[:]); n != 1 || wc[0].ID != 0 || wc[0].Status != StatusWRFlushErr {
		t.Errorf("%d completions, %+v; want receive 0 flushed", n, wc[0])
	}
	if left := s.tail - s.head; left != 2 || s.held != 2 || q.rqHeld.Load() != 0 {
		t.Errorf("%d receives left, %d places taken, %d held by the QP; want 2, 2, 0", left, s.held, q.rqHeld.Load())
	}
	// Arming with fewer left than the limit tells at once.
	for len(d.events) > 0 {
		<-d.events
	}
	if err := sq.Arm(3); err != nil {
		t.Fatal(err)
	}
	if e := <-d.events; e.Kind != EventSRQLimit || e.SRQ != sq {
		t.Errorf("event %+v", e)
	}
}

// TestNotifyEndsLoans: a program that waited, and now wants tokens, gets them although no waiter reads the
// connection.
func TestNotifyEndsLoans(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a, b := newEnd(t), newEnd(t)
	l, err := b.dev.Listen(ctx, "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan error, 1)
	go func() {
		r, err := l.Accept(ctx)
		if err == nil {
			err = r.Accept(ctx, b.qp, nil)
		}
		accepted <- err
	}()
	if _, err := a.dev.Dial(ctx, l.Addr().String(), a.qp, nil); err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	mem := b.recv(t, 0, 8)
	send := func() {
		if err := a.qp.PostSend(&SendWR{Op: OpSend, Flags: Inline | Unsignaled, Data: []byte("hi")}); err != nil {
			t.Error(err)
		}
	}
	c := b.cq.(*cq)
	lent := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.loan.from != nil
	}
	for i := 0; i < 1000 && !lent(); i++ {
		go send()
		b.wait(t, ctx)
		b.recv(t, 0, 8)
	}
	if err := b.cq.ReqNotify(false); err != nil {
		t.Fatal(err)
	}
	if lent() {
		t.Error("the connection is still lent")
	}
	send()
	<-b.cq.Events()
	if !bytes.Equal(mem[:2], []byte("hi")) {
		t.Errorf("got %q", mem)
	}
}
