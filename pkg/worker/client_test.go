package worker

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// testClient is a bare implementation of the manager's side.
type testClient struct {
	t      testing.TB
	dev    iwarp.Device
	pd     iwarp.PD
	cq     iwarp.CQ
	qp     iwarp.QP
	recvs  []byte
	recvMR iwarp.MR
	src    []byte // where texts are written from
	srcMR  iwarp.MR
	done   chan struct{}
	info   *iwarp.ConnInfo

	mu       sync.Mutex
	cond     *sync.Cond
	ended    bool
	welcome  *job.Welcome
	listed   bool // the whole list is there
	ids      []unit.ToolchainID
	credits  []job.Credit
	results  map[uint64]*testResult
	acks     map[job.Kind]int
	recalls  []*job.Recall // unanswered
	draining bool
	keep     bool     // do not answer recalls
	silent   bool     // do not acknowledge grants
	grants   []uint32 // numbers of the grants that are not acknowledged
	lastJob  uint64
	reads    int // RDMA Reads of ours that were answered
}

type testResult struct {
	job.Result
	sink   []byte
	mr     iwarp.MR
	source iwarp.MR // of a job that offers its source
}

const testRecvs = 128

// dial connects. hello says whether to send a Hello.
func dial(t testing.TB, addr string, hello *job.Hello) *testClient {
	t.Helper()
	return dialWith(t, addr, hello, &iwarp.ConnParam{ORD: 8, IRD: 8})
}

// dialAs connects as a manager of that boot number.
func dialAs(t testing.TB, addr string, boot byte, hello *job.Hello) *testClient {
	t.Helper()
	g := job.Greeting{Version: job.Version, Boot: [16]byte{boot}}
	return dialWith(t, addr, hello, &iwarp.ConnParam{ORD: 8, IRD: 8, PrivateData: g.Append(nil)})
}

func dialWith(t testing.TB, addr string, hello *job.Hello, p *iwarp.ConnParam) *testClient {
	t.Helper()
	return dialOn(t, iwarp.Config{}, addr, hello, p)
}

func dialOn(t testing.TB, config iwarp.Config, addr string, hello *job.Hello, p *iwarp.ConnParam) *testClient {
	t.Helper()
	dev, err := iwarp.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	c := &testClient{t: t, dev: dev, done: make(chan struct{}), results: make(map[uint64]*testResult), acks: make(map[job.Kind]int)}
	c.cond = sync.NewCond(&c.mu)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c.pd, err = dev.AllocPD()
	must(err)
	c.cq, err = dev.CreateCQ(2 * testRecvs)
	must(err)
	c.qp, err = c.pd.CreateQP(iwarp.QPInitAttr{SendCQ: c.cq, RecvCQ: c.cq, MaxSend: testRecvs, MaxRecv: testRecvs})
	must(err)
	c.recvs = make([]byte, testRecvs*job.MaxMessage)
	c.recvMR, err = c.pd.RegMR(c.recvs, iwarp.LocalWrite, nil)
	must(err)
	c.src = make([]byte, 8<<20)
	c.srcMR, err = c.pd.RegMR(c.src, 0, nil)
	must(err)
	for i := range testRecvs {
		must(c.postRecv(uint64(i)))
	}
	g := job.Greeting{Version: job.Version}
	if p.PrivateData == nil {
		p.PrivateData = g.Append(nil)
	}
	info, err := dev.Dial(context.Background(), addr, c.qp, p)
	must(err)
	if _, err := job.ParseGreeting(info.PrivateData); err != nil {
		t.Fatal(err)
	}
	c.info = info
	go c.receive()
	t.Cleanup(c.close)
	if hello != nil {
		c.send(hello)
		c.wait("a welcome, toolchains and credits", func() bool {
			return c.welcome != nil && c.listed && len(c.credits) > 0
		})
	}
	return c
}

func (c *testClient) postRecv(i uint64) error {
	return c.qp.PostRecv(&iwarp.RecvWR{ID: i, SGL: []iwarp.SGE{{
		Addr: c.recvMR.Base() + i*job.MaxMessage, Length: job.MaxMessage, LKey: c.recvMR.STag(),
	}}})
}

// close drops the connection, as a killed manager would.
func (c *testClient) close() {
	c.qp.Abort()
	<-c.done
	if err := c.dev.Close(); err != nil {
		c.t.Error(err)
	}
}

func (c *testClient) receive() {
	defer close(c.done)
	var wcs [16]iwarp.WC
	for {
		n := c.cq.Poll(wcs[:])
		if n == 0 {
			if err := c.cq.Wait(context.Background()); err != nil {
				return
			}
			continue
		}
		for _, w := range wcs[:n] {
			if w.Status != iwarp.StatusSuccess {
				c.mu.Lock()
				c.ended = true
				c.cond.Broadcast()
				c.mu.Unlock()
				<-c.qp.Done()
				return
			}
			switch w.Op {
			case iwarp.OpRecv:
				c.message(w)
			case iwarp.OpRead:
				c.mu.Lock()
				c.reads++
				c.cond.Broadcast()
				c.mu.Unlock()
			}
		}
	}
}

func (c *testClient) message(w iwarp.WC) {
	m, err := job.Parse(c.recvs[w.ID*job.MaxMessage:][:w.ByteLen])
	if err != nil {
		c.t.Errorf("from the server: %v", err)
		return
	}
	if err := c.postRecv(w.ID); err != nil && !errors.Is(err, iwarp.ErrState) {
		c.t.Errorf("post receive: %v", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.cond.Broadcast()
	switch m := m.(type) {
	case *job.Welcome:
		c.welcome = m
	case *job.Compilers:
		c.send(&job.Ack{Of: job.KindCompilers, Seq: m.Seq})
	case *job.Toolchains:
		c.ids = append(c.ids[:m.First], m.IDs...)
		c.listed = len(c.ids) == int(m.Total) && !m.More
		c.send(&job.Ack{Of: job.KindToolchains, Seq: m.Seq})
	case *job.Grant:
		c.credits = append(c.credits, m.Credits...)
		if c.silent {
			c.grants = append(c.grants, m.Seq)
			return
		}
		c.send(&job.Ack{Of: job.KindGrant, Seq: m.Seq})
	case *job.Recall:
		if c.keep {
			c.recalls = append(c.recalls, m)
			return
		}
		for range min(int(m.Count), len(c.credits)) {
			c.returnLocked()
		}
		c.send(&job.Ack{Of: job.KindRecall, Seq: m.Seq})
	case *job.Result:
		r := c.results[m.ID]
		if r == nil || r.ID != 0 {
			c.t.Errorf("a result of job %d, which has none due", m.ID)
			return
		}
		if !w.Inv || w.InvSTag != r.mr.STag() {
			c.t.Errorf("result of job %d did not invalidate its sink", m.ID)
		}
		r.Result = *m
		if m.Next != nil {
			c.credits = append(c.credits, *m.Next)
		}
	case *job.Drain:
		c.draining = true
		c.send(&job.Ack{Of: job.KindDrain, Seq: m.Seq})
	case *job.Heartbeat:
		c.send(&job.Ack{Of: job.KindHeartbeat, Seq: m.Seq})
	case *job.Ack:
		c.acks[m.Of]++
	default:
		c.t.Errorf("from the server: %T", m)
	}
}

func (c *testClient) send(m job.Message) { c.post(m, 0) }

func (c *testClient) post(m job.Message, inv uint32) {
	wr := &iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Unsignaled | iwarp.Inline, Data: job.Append(nil, m)}
	if most := c.dev.Attr().MaxInline; len(wr.Data) > most { // registered until the connection ends
		mr, err := c.pd.RegMR(wr.Data, 0, nil)
		if err != nil {
			c.t.Fatal(err)
		}
		wr.SGL = []iwarp.SGE{{Addr: mr.Base(), Length: uint32(len(wr.Data)), LKey: mr.STag()}}
		wr.Flags, wr.Data = iwarp.Unsignaled, nil
	}
	if kept := c.welcome != nil && c.welcome.SlotsKept; inv != 0 && (!kept || m.Kind() == job.KindRelease) {
		wr.Op, wr.InvSTag = iwarp.OpSendInv, iwarp.STag(inv)
	}
	err := c.qp.PostSend(wr)
	for ; errors.Is(err, iwarp.ErrQueueFull); err = c.qp.PostSend(wr) { // behind the Writes of much text
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		c.t.Logf("post %T: %v", m, err)
	}
}

// returnLocked returns one credit.
func (c *testClient) returnLocked() {
	k := c.credits[0]
	c.credits = c.credits[1:]
	c.post(&job.Return{Credit: k.ID}, k.Slot.STag)
}

// wait blocks until cond holds; it is called with the lock held.
func (c *testClient) wait(what string, cond func() bool) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	timer := time.AfterFunc(patience, func() {
		c.mu.Lock()
		c.ended = true
		c.cond.Broadcast()
		c.mu.Unlock()
	})
	defer timer.Stop()
	for !cond() {
		if c.ended {
			c.t.Fatalf("waiting for %s: the connection ended (%v), or time is up", what, c.qp.Err())
		}
		c.cond.Wait()
	}
}

// request is a job to be submitted.
type request struct {
	body    job.Body
	text    string
	sink    int // bytes; 0 = 1 MiB
	timeout time.Duration
	fetch   uint64      // bytes of a result that it would fetch
	offer   bool        // the source lies in a window, as it does with a bare credit in any case
	eager   bool        // the source is in the message
	guard   sync.Locker // held while the daemon reads the source; nil: none
	raw     []byte      // instead of body and text
	change  func(*job.Job)
}

// start takes a credit, submits the job and returns its ID.
func (c *testClient) start(tc unit.ToolchainID, q request) uint64 {
	c.t.Helper()
	c.wait("a credit", func() bool { return len(c.credits) > 0 })
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.credits[0]
	c.credits = c.credits[1:]
	b := q.body.Append(nil)
	off := job.TextOffset(len(b))
	n := off + len(q.text)
	raw := q.raw
	if raw == nil {
		raw = make([]byte, n)
		copy(raw, b)
		copy(raw[off:], q.text)
	}
	n = len(raw)
	q.offer = !q.eager && (q.offer || k.Slot.STag == 0)
	if !q.offer {
		copy(c.src, raw)
	}
	if q.sink == 0 {
		q.sink = 1 << 20
	}
	r := &testResult{sink: make([]byte, q.sink)}
	var err error
	if r.mr, err = c.pd.RegMR(r.sink, iwarp.LocalWrite|iwarp.RemoteWrite, &iwarp.MROptions{QP: c.qp}); err != nil {
		c.t.Fatal(err)
	}
	c.lastJob++
	m := &job.Job{
		ID: c.lastJob, Credit: k.ID, Toolchain: tc, BodyLen: uint32(len(b)), TextOff: uint32(off), TextLen: uint64(len(q.text)),
		Sink:    job.Window{STag: uint32(r.mr.STag()), TO: r.mr.Base(), Len: uint64(q.sink)},
		Timeout: uint32(q.timeout.Milliseconds()),
		Fetch:   q.fetch,
		Store:   len(q.body.Blobs)+len(q.body.Lists) > 0,
	}
	if q.offer {
		if r.source, err = c.pd.RegMR(raw, iwarp.RemoteRead, &iwarp.MROptions{QP: c.qp, Guard: q.guard}); err != nil {
			c.t.Fatal(err)
		}
		m.Source = job.Window{STag: uint32(r.source.STag()), TO: r.source.Base(), Len: uint64(n)}
		n = 0 // written: nothing
	}
	if q.eager {
		m.Carried, n = raw, 0
	}
	if q.change != nil {
		q.change(m)
	}
	c.results[m.ID] = r
	// The text is written inline into the stream before src is used again: the
	// completion says so, but here one at a time is simpler.
	for at := 0; at < n; at += 4 << 10 {
		part := c.src[at:min(n, at+4<<10)]
		err := c.qp.PostSend(&iwarp.SendWR{Op: iwarp.OpWrite, Flags: iwarp.Unsignaled | iwarp.Inline, Data: part, STag: iwarp.STag(k.Slot.STag), TO: k.Slot.TO + uint64(at)})
		for errors.Is(err, iwarp.ErrQueueFull) {
			runtime.Gosched()
			err = c.qp.PostSend(&iwarp.SendWR{Op: iwarp.OpWrite, Flags: iwarp.Unsignaled | iwarp.Inline, Data: part, STag: iwarp.STag(k.Slot.STag), TO: k.Slot.TO + uint64(at)})
		}
		if err != nil {
			c.t.Fatalf("write text: %v", err)
		}
	}
	c.post(m, k.Slot.STag)
	return m.ID
}

// result waits for a job's answer.
func (c *testClient) result(id uint64) *testResult {
	c.t.Helper()
	var r *testResult
	c.wait("a result", func() bool { r = c.results[id]; return r.ID != 0 })
	return r
}

// do submits and waits.
func (c *testClient) do(tc unit.ToolchainID, q request) *testResult {
	c.t.Helper()
	return c.result(c.start(tc, q))
}

// read returns what the daemon has in a window.
func (c *testClient) read(w job.Window) []byte {
	c.t.Helper()
	mem := make([]byte, w.Len)
	mr, err := c.pd.RegMR(mem, iwarp.LocalWrite, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer mr.Dereg()
	c.mu.Lock()
	before := c.reads
	c.mu.Unlock()
	if err = c.postRead(w, mr); err != nil {
		c.t.Fatal(err)
	}
	c.wait("a Read", func() bool { return c.reads > before })
	return mem
}

// postRead posts a Read of a window into mr.
func (c *testClient) postRead(w job.Window, mr iwarp.MR) error {
	return c.qp.PostSend(&iwarp.SendWR{Op: iwarp.OpRead, STag: iwarp.STag(w.STag), TO: w.TO,
		SGL: []iwarp.SGE{{Addr: mr.Base(), Length: uint32(w.Len), LKey: mr.STag()}}})
}

func (r *testResult) bytes(s job.Segment) []byte { return r.sink[s.Off:][:s.Len] }

// compileBody returns the body of an ordinary compile.
func compileBody(lang, name string, args ...string) job.Body {
	return job.Body{
		Argv0: "cc", Args: args, Language: lang, Name: name, Cwd: "/nowhere",
		Outputs: []unit.Output{{Kind: unit.OutputObject, Name: "x.o"}},
	}
}
