package connmgr

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/rdistcc/rdistcc/internal/compress"
	"github.com/rdistcc/rdistcc/internal/digest"
	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// testID is the toolchain of the tests.
var testID = unit.ToolchainID{1, 2, 3}

// fakeDaemon speaks the daemon's side of the job protocol and lets a test decide
// what each job comes to.
type fakeDaemon struct {
	t    testing.TB
	dev  iwarp.Device
	pd   iwarp.PD
	lis  iwarp.Listener
	addr string

	// set before start
	jobs       int
	tree       bool
	sandbox    uint16
	zstd       bool // takes packed sources, and packs results where it may
	slotSize   int
	fetches    int           // bytes of a source that it fetches; 0 = it offers and takes no windows
	board      func() []byte // what its load board holds; nil = it has none
	ids        []unit.ToolchainID
	reject     *job.Rejection
	onBeat     func()                           // when it is asked for a sign of life
	boardGuard sync.Locker                      // of what board returns
	mute       bool                             // takes no receive in: says nothing after the Welcome
	version    uint16                           // of the greeting, 0 = ours
	key        *psk.Key                         // wants a proof, and gives one
	bend       func(private []byte) []byte      // of the Reply's private data
	onHello    func(c *fakeConn)                // default: Welcome, Toolchains, Grant
	onJob      func(c *fakeConn, j *fakeJob)    // in a goroutine of its own; default: compiled
	onCancel   func(c *fakeConn, m *job.Cancel) // default: acknowledged, and the jobs' ctx ends

	mu      sync.Mutex
	conns   []*fakeConn
	stopped bool
	seen    int // jobs
	wg      sync.WaitGroup
}

// fakeJob is one job that arrived.
type fakeJob struct {
	job.Job
	body   *job.Body
	text   []byte
	moved  uint64          // bytes that travelled
	ctx    context.Context // ends when it is cancelled, or the connection ends
	cancel context.CancelFunc
}

// fakeConn is one manager's connection.
type fakeConn struct {
	d    *fakeDaemon
	qp   iwarp.QP
	cq   iwarp.CQ
	recv []byte
	rmr  iwarp.MR

	claim *psk.Claim // nil: there is nothing to prove, or it is proven

	mu      sync.Mutex
	heard   int                 // messages
	slots   map[uint64]fakeSlot // by credit
	next    uint64
	running map[uint64]*fakeJob
	acks    []job.Ack
	demands []job.Demand
	returns []uint64
	results []iwarp.MR          // of data that may still be on its way
	offers  map[uint64]iwarp.MR // results that the manager has to release, by job
	read    chan iwarp.Status   // of Reads; they are made one by one
	reading sync.Mutex
}

type fakeSlot struct {
	mem []byte
	mr  iwarp.MR
}

const fakeRecvs = 256

// startFake starts a daemon on dev at addr ("127.0.0.1:0"); change may be nil.
func startFake(t testing.TB, dev iwarp.Device, addr string, change func(d *fakeDaemon)) *fakeDaemon {
	t.Helper()
	d := &fakeDaemon{t: t, dev: dev, jobs: 2, slotSize: 1 << 20, ids: []unit.ToolchainID{testID}}
	d.onJob = func(c *fakeConn, j *fakeJob) { c.finish(j, compiled(j)) }
	if change != nil {
		change(d)
	}
	var err error
	if d.pd, err = dev.AllocPD(); err != nil {
		t.Fatal(err)
	}
	if d.lis, err = dev.Listen(context.Background(), addr, nil); err != nil {
		t.Fatal(err)
	}
	d.addr = d.lis.Addr().String()
	d.wg.Go(d.accept)
	t.Cleanup(d.stop)
	return d
}

// stop ends the daemon and all its connections, as a kill would.
func (d *fakeDaemon) stop() {
	d.lis.Close()
	d.mu.Lock()
	d.stopped = true
	d.mu.Unlock()
	d.kill()
	d.wg.Wait()
}

// kill resets all connections; new ones are taken.
func (d *fakeDaemon) kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.conns {
		c.qp.Abort()
	}
}

// jobsSeen counts the jobs that arrived.
func (d *fakeDaemon) jobsSeen() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen
}

func (d *fakeDaemon) accept() {
	for {
		r, err := d.lis.Accept(context.Background())
		if err != nil {
			return
		}
		if d.reject != nil {
			_ = r.Reject(d.reject.Append(nil))
			continue
		}
		if g, err := job.ParseGreeting(r.Info().PrivateData); err != nil || g.Version != job.Version {
			d.t.Errorf("greeting %x: %v", r.Info().PrivateData, err)
		}
		c := &fakeConn{d: d, slots: make(map[uint64]fakeSlot), running: make(map[uint64]*fakeJob),
			offers: make(map[uint64]iwarp.MR), read: make(chan iwarp.Status, 1),
			recv: make([]byte, fakeRecvs*job.MaxMessage)}
		if err := c.open(r); err != nil {
			d.t.Logf("fake daemon: %v", err)
			continue
		}
		d.mu.Lock()
		d.conns = append(d.conns, c)
		if d.stopped {
			c.qp.Abort()
		}
		d.mu.Unlock()
		d.wg.Go(c.serve)
	}
}

func (c *fakeConn) open(r iwarp.ConnRequest) (err error) {
	if c.cq, err = c.d.dev.CreateCQ(4 * fakeRecvs); err != nil {
		return err
	}
	if c.rmr, err = c.d.pd.RegMR(c.recv, iwarp.LocalWrite, nil); err != nil {
		return err
	}
	c.qp, err = c.d.pd.CreateQP(iwarp.QPInitAttr{SendCQ: c.cq, RecvCQ: c.cq, MaxSend: fakeRecvs, MaxRecv: fakeRecvs})
	if err != nil {
		return err
	}
	for i := range fakeRecvs {
		if err := c.post(i); err != nil {
			return err
		}
	}
	hi := job.Greeting{Version: job.Version}
	if c.d.version != 0 {
		hi.Version = c.d.version
	}
	p := &iwarp.ConnParam{PrivateData: hi.Append(nil)}
	if k := c.d.key; k != nil {
		if c.claim, err = k.Judge(r.Info().PrivateData); err != nil {
			return errors.Join(err, r.Reject((&job.Rejection{Cause: job.CauseDenied, Detail: err.Error()}).Append(nil)))
		}
		p.Private = func(i iwarp.ConnInfo) []byte { return c.claim.Answer(hi.Append(nil), i.Request, i.Reply) }
	}
	if bend := c.d.bend; bend != nil {
		made := p.Private
		p.Private = func(i iwarp.ConnInfo) []byte {
			b := p.PrivateData
			if made != nil {
				b = made(i)
			}
			return bend(b)
		}
	}
	if c.d.fetches > 0 || c.d.board != nil {
		p.ORD, p.IRD = 4, 4
	}
	return r.Accept(context.Background(), c.qp, p)
}

func (c *fakeConn) post(i int) error {
	return c.qp.PostRecv(&iwarp.RecvWR{ID: uint64(i) | 1<<32,
		SGL: []iwarp.SGE{{Addr: uint64(i) * job.MaxMessage, Length: job.MaxMessage, LKey: c.rmr.STag()}}})
}

func (c *fakeConn) serve() {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-c.qp.Done(); cancel() }()
	var jobs sync.WaitGroup
	for {
		var wc [8]iwarp.WC
		n := c.cq.Poll(wc[:])
		if n == 0 {
			if ctx.Err() != nil {
				break
			}
			_ = c.cq.Wait(ctx)
			continue
		}
		for i := range wc[:n] {
			switch {
			case wc[i].ID == fakeRead:
				c.read <- wc[i].Status
			case wc[i].ID>>32 == 1 && wc[i].Status == iwarp.StatusSuccess:
				c.message(ctx, &wc[i], &jobs)
			}
		}
	}
	jobs.Wait()
	c.mu.Lock()
	for _, s := range c.slots {
		_ = s.mr.Dereg()
	}
	for _, mr := range c.results {
		_ = mr.Dereg()
	}
	for _, mr := range c.offers {
		_ = mr.Dereg()
	}
	c.mu.Unlock()
	_ = c.qp.Destroy()
	_ = c.rmr.Dereg()
	_ = c.cq.Close()
}

func (c *fakeConn) message(ctx context.Context, wc *iwarp.WC, jobs *sync.WaitGroup) {
	i := int(uint32(wc.ID))
	m, err := job.Parse(c.recv[i*job.MaxMessage:][:wc.ByteLen])
	if err != nil {
		c.d.t.Errorf("fake daemon got %v", err)
		return
	}
	if err := c.post(i); err != nil {
		c.d.t.Logf("fake daemon: %v", err)
	}
	c.mu.Lock()
	c.heard++
	c.mu.Unlock()
	if c.claim != nil {
		p, ok := m.(*job.Proof)
		if !ok || c.claim.Check(p.MAC[:]) != nil {
			c.d.t.Errorf("fake daemon: %T %+v where a right proof is due", m, m)
			c.qp.Abort()
		}
		c.claim = nil
		return
	}
	switch m := m.(type) {
	case *job.Hello:
		if c.d.onHello != nil {
			c.d.onHello(c)
			return
		}
		c.welcome()
	case *job.Job:
		j := &fakeJob{Job: *m}
		j.ctx, j.cancel = context.WithCancel(ctx)
		c.mu.Lock()
		slot, ok := c.slots[m.Credit]
		delete(c.slots, m.Credit)
		c.running[m.ID] = j
		c.mu.Unlock()
		if !ok || !wc.Inv || wc.InvSTag != slot.mr.STag() {
			c.d.t.Errorf("job %d spends credit %d with invalidation %v of %#x", m.ID, m.Credit, wc.Inv, wc.InvSTag)
			return
		}
		_ = slot.mr.Dereg()
		c.d.mu.Lock()
		c.d.seen++
		c.d.mu.Unlock()
		jobs.Go(func() {
			content := slot.mem
			if m.Source.STag != 0 {
				if content = c.fetch(m.Source); content == nil {
					return // the QP is gone
				}
			}
			total := uint64(m.TextOff) + m.TextLen
			j.moved = uint64(len(content))
			if m.Source.STag == 0 {
				j.moved = total
			}
			var err error
			if m.Packed != 0 {
				if j.moved = m.Packed; !c.d.zstd {
					c.d.t.Errorf("job %d is packed, which was not offered", m.ID)
				}
				if content, err = compress.Unpack(nil, content[:m.Packed], total); err != nil {
					c.d.t.Errorf("job %d: %v", m.ID, err)
					return
				}
			}
			if digest.Sum(content[:total]) != m.Digest {
				c.d.t.Errorf("job %d has another digest than its source", m.ID)
			}
			if j.body, err = job.ParseBody(content[:m.BodyLen]); err != nil {
				c.d.t.Errorf("body: %v", err)
				return
			}
			j.text = bytes.Clone(content[m.TextOff:][:m.TextLen])
			c.d.onJob(c, j)
		})
	case *job.Release:
		c.mu.Lock()
		mr := c.offers[m.ID]
		delete(c.offers, m.ID)
		c.mu.Unlock()
		if mr == nil || !wc.Inv || wc.InvSTag != mr.STag() {
			c.d.t.Errorf("job %d released with invalidation %v of %#x", m.ID, wc.Inv, wc.InvSTag)
			return
		}
		_ = mr.Dereg()
	case *job.Return:
		c.mu.Lock()
		slot, ok := c.slots[m.Credit]
		delete(c.slots, m.Credit)
		c.returns = append(c.returns, m.Credit)
		c.mu.Unlock()
		if !ok || !wc.Inv || wc.InvSTag != slot.mr.STag() {
			c.d.t.Errorf("credit %d returned with invalidation %v of %#x", m.Credit, wc.Inv, wc.InvSTag)
			return
		}
		_ = slot.mr.Dereg()
	case *job.Heartbeat:
		if c.d.onBeat != nil {
			c.d.onBeat()
		}
		if !c.d.mute {
			c.send(&job.Ack{Of: job.KindHeartbeat, Seq: m.Seq}, 0)
		}
	case *job.Demand:
		c.mu.Lock()
		c.demands = append(c.demands, *m)
		c.mu.Unlock()
		if !c.d.mute {
			c.send(&job.Ack{Of: job.KindDemand, Seq: m.Seq}, 0)
		}
	case *job.Cancel:
		if c.d.onCancel != nil {
			c.d.onCancel(c, m)
			return
		}
		c.send(&job.Ack{Of: job.KindCancel, Seq: m.Seq}, 0)
		c.mu.Lock()
		for _, id := range m.Jobs {
			if j := c.running[id]; j != nil {
				j.cancel()
			}
		}
		c.mu.Unlock()
	case *job.Ack:
		c.mu.Lock()
		c.acks = append(c.acks, *m)
		c.mu.Unlock()
	default:
		c.d.t.Errorf("fake daemon got a %T", m)
	}
}

// welcome says all that a manager waits for.
func (c *fakeConn) welcome() {
	w := &job.Welcome{Tree: c.d.tree, Sandbox: c.d.sandbox, Zstd: c.d.zstd, Jobs: uint16(c.d.jobs), MaxBody: uint64(c.d.slotSize), MaxSource: uint64(c.d.fetches), MaxResult: 1 << 30, Toolchains: uint16(len(c.d.ids))}
	if c.d.board != nil {
		w.Board = c.offer(0, c.d.board())
	}
	c.send(w, 0)
	c.send(&job.Toolchains{Seq: 1, Total: uint16(len(c.d.ids)), IDs: c.d.ids}, 0)
	c.grant(c.d.jobs)
}

func (c *fakeConn) send(m job.Message, inv iwarp.STag) {
	wr := &iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Inline, Data: job.Append(nil, m)}
	if inv != 0 {
		wr.Op, wr.InvSTag = iwarp.OpSendInv, inv
	}
	if err := c.qp.PostSend(wr); err != nil && !errors.Is(err, iwarp.ErrState) {
		c.d.t.Errorf("fake daemon: send %T: %v", m, err)
	}
}

// credit makes one with a slot of its own.
func (c *fakeConn) credit() job.Credit {
	mem := make([]byte, c.d.slotSize)
	mr, err := c.d.pd.RegMR(mem, iwarp.LocalWrite|iwarp.RemoteWrite, &iwarp.MROptions{QP: c.qp})
	if err != nil {
		c.d.t.Logf("fake daemon: %v", err) // the QP is gone
		return job.Credit{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	c.slots[c.next] = fakeSlot{mem, mr}
	return job.Credit{ID: c.next, Slot: job.Window{STag: uint32(mr.STag()), TO: mr.Base(), Len: uint64(len(mem))}}
}

func (c *fakeConn) grant(n int) {
	g := &job.Grant{Seq: 1}
	for range n {
		g.Credits = append(g.Credits, c.credit())
	}
	c.send(g, 0)
}

func (j *fakeJob) sinkSTag() iwarp.STag { return iwarp.STag(j.Sink.STag) }

// fakeRead is the id of Reads.
const fakeRead = 2 << 32

// fetch reads a window, or is nil when the connection ends first.
func (c *fakeConn) fetch(w job.Window) []byte {
	mem := make([]byte, w.Len)
	mr, err := c.d.pd.RegMR(mem, iwarp.LocalWrite, nil)
	if err != nil {
		c.d.t.Errorf("fake daemon: %v", err)
		return nil
	}
	defer mr.Dereg()
	c.reading.Lock()
	defer c.reading.Unlock()
	for at := uint64(0); at < w.Len; {
		n := min(w.Len-at, 1<<20)
		err := c.qp.PostSend(&iwarp.SendWR{ID: fakeRead, Op: iwarp.OpRead, STag: iwarp.STag(w.STag), TO: w.TO + at,
			SGL: []iwarp.SGE{{Addr: mr.Base() + at, Length: uint32(n), LKey: mr.STag()}}})
		if err != nil || <-c.read != iwarp.StatusSuccess {
			<-c.qp.Done()
			return nil
		}
		at += n
	}
	return mem
}

// offer opens a window on data, to be released for job id; 0 is the load board's.
func (c *fakeConn) offer(id uint64, data []byte) job.Window {
	o := &iwarp.MROptions{QP: c.qp}
	if id == 0 {
		o.Guard = c.d.boardGuard
	}
	mr, err := c.d.pd.RegMR(data, iwarp.RemoteRead, o)
	if err != nil {
		c.d.t.Logf("fake daemon: %v", err) // the QP is gone
		return job.Window{}
	}
	c.mu.Lock()
	c.offers[id] = mr
	c.mu.Unlock()
	return job.Window{STag: uint32(mr.STag()), TO: mr.Base(), Len: uint64(mr.Len())}
}

// answer is what a job came to: the data go to the sink one behind the other.
type answer struct {
	job.Result
	stdout, stderr []byte
	files          [][]byte
	noNext         bool
	change         func(r *job.Result) // before it is sent
	window         bool                // offered, not written; as is what the sink has no room for
}

// compiled is the result of a compile that went well: the object tells what it
// was made of.
func compiled(j *fakeJob) *answer {
	return &answer{files: [][]byte{fmt.Appendf(nil, "object of %s: %s", j.body.Name, j.text)}}
}

// finish writes an answer into the sink and sends the Result.
func (c *fakeConn) finish(j *fakeJob, a *answer) {
	j.cancel()
	c.mu.Lock()
	delete(c.running, j.ID)
	c.mu.Unlock()
	r := a.Result
	r.ID = j.ID
	var data []byte
	add := func(b []byte) job.Segment {
		s := job.Segment{Off: uint64(len(data)), Len: uint64(len(b))}
		data = append(data, b...)
		return s
	}
	r.Stdout, r.Stderr = add(a.stdout), add(a.stderr)
	for i, b := range a.files {
		r.Files = append(r.Files, job.File{Index: uint8(i), Segment: add(b)})
	}
	r.Digest = digest.Sum(data)
	if c.d.zstd && j.Zstd {
		data, _ = compress.Pack(nil, data)
		r.Packed = uint64(len(data))
	}
	if a.window || uint64(len(data)) > j.Sink.Len {
		r.Window = c.offer(j.ID, data)
	} else if len(data) > 0 {
		mr, err := c.d.pd.RegMR(data, 0, nil)
		if err != nil {
			c.d.t.Errorf("fake daemon: %v", err)
			return
		}
		err = c.qp.PostSend(&iwarp.SendWR{Op: iwarp.OpWrite, STag: iwarp.STag(j.Sink.STag), TO: j.Sink.TO,
			SGL: []iwarp.SGE{{Addr: mr.Base(), Length: uint32(len(data)), LKey: mr.STag()}}})
		if err != nil && !errors.Is(err, iwarp.ErrState) {
			c.d.t.Errorf("fake daemon: write: %v", err)
		}
		c.mu.Lock()
		c.results = append(c.results, mr)
		c.mu.Unlock()
	}
	if !a.noNext {
		next := c.credit()
		r.Next = &next
	}
	if a.change != nil {
		a.change(&r)
	}
	c.send(&r, iwarp.STag(j.Sink.STag))
}
