package faults

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

// liar is a host that has the compiler that is asked for, and behaves.
type liar struct {
	credits int                          // granted
	slot    uint64                       // what it says that a slot holds
	listed  uint16                       // toolchains that it says it has
	greet   func(p *peer)                // after its Grant
	onJob   func(p *peer, m *job.Job)    // nil: no answer
	cancel  func(p *peer, m *job.Cancel) // nil: no answer
	load    job.Load                     // that it tells of itself
	reads   bool                         // it may be sent RDMA Reads, and sends some
	fetches uint64                       // the longest source that it says it fetches
	again   bool                         // it grants a credit for each one that is spent
}

// serve takes connections until the test ends; it returns its address.
func (l liar) serve(t *testing.T, id unit.ToolchainID) string {
	t.Helper()
	dev, err := iwarp.Open(iwarp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	lis, err := dev.Listen(context.Background(), "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	var (
		mu     sync.Mutex
		open   []*peer
		closed bool
		all    sync.WaitGroup
	)
	t.Cleanup(func() {
		_ = lis.Close()
		mu.Lock()
		closed = true
		for _, p := range open {
			p.qp.Abort()
		}
		mu.Unlock()
		all.Wait()
		_ = dev.Close()
	})
	all.Go(func() {
		for {
			req, err := lis.Accept(context.Background())
			if err != nil {
				return
			}
			p, err := newPeer(t, dev)
			if err != nil {
				t.Error(err)
				return
			}
			g := job.Greeting{Version: job.Version}
			if req.Accept(context.Background(), p.qp, l.param(g)) != nil {
				p.destroy()
				continue
			}
			mu.Lock()
			if open = append(open, p); closed { // a manager that still runs has dialled in time
				p.qp.Abort()
			}
			mu.Unlock()
			all.Go(func() {
				defer p.destroy()
				l.speak(p, id)
			})
		}
	})
	return lis.Addr().String()
}

func (l liar) param(g job.Greeting) *iwarp.ConnParam {
	c := &iwarp.ConnParam{PrivateData: g.Append(nil)}
	if l.reads {
		c.IRD, c.ORD = 4, 4
	}
	return c
}

// speak is the daemon's side of a connection.
func (l liar) speak(p *peer, id unit.ToolchainID) {
	var slots []iwarp.MR
	grants := uint32(1)
	defer func() {
		_ = p.qp.Destroy() // before the memory that it may write goes
		for _, mr := range slots {
			_ = mr.Dereg()
		}
	}()
	for {
		switch m := p.receive().(type) {
		case nil:
			return
		case *job.Hello:
			p.send(&job.Welcome{Jobs: 2, MaxBody: l.slot, MaxSource: l.fetches, MaxResult: 1 << 20, Toolchains: l.listed, Tree: true, Load: l.load}, 0)
			p.send(&job.Toolchains{Seq: 1, Total: 1, IDs: []unit.ToolchainID{id}}, 0)
			grant := &job.Grant{Seq: 1}
			for i := range l.credits {
				mr, err := p.pd.RegMR(make([]byte, 1<<20), iwarp.LocalWrite|iwarp.RemoteWrite, &iwarp.MROptions{QP: p.qp})
				if err != nil {
					return // it is gone
				}
				slots = append(slots, mr)
				grant.Credits = append(grant.Credits, job.Credit{ID: uint64(i + 1), Slot: job.Window{STag: uint32(mr.STag()), Len: l.slot}})
			}
			if l.credits > 0 {
				p.send(grant, 0)
			}
			if l.greet != nil {
				l.greet(p)
			}
		case *job.Heartbeat:
			p.send(&job.Ack{Of: job.KindHeartbeat, Seq: m.Seq}, 0)
		case *job.Cancel:
			if l.cancel != nil {
				l.cancel(p, m)
			}
		case *job.Job:
			if l.onJob != nil {
				l.onJob(p, m)
			}
			if l.again {
				grants++
				l.regrant(p, grants, &slots)
			}
		}
	}
}

// answered makes a host's answer to a job: object is written into the sink first.
func answered(object string, change func(r *job.Result)) func(p *peer, m *job.Job) {
	return func(p *peer, m *job.Job) {
		p.write([]byte(object), m.Sink.STag, m.Sink.TO)
		r := &job.Result{ID: m.ID, Files: []job.File{{Segment: job.Segment{Len: uint64(len(object))}}}}
		change(r)
		p.send(r, m.Sink.STag)
	}
}

// objectHead is how an object of this machine's gcc begins.
var objectHead = func() string {
	order, machine := byte(1), map[string]byte{"amd64": 62, "arm64": 183, "riscv64": 243}[runtime.GOARCH]
	return string([]byte{0x7f, 'E', 'L', 'F', 2, order, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, machine, 0})
}()

// gcc is what hosts have to have.
func (s *site) gcc() unit.ToolchainID {
	s.t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		s.t.Fatal(err)
	}
	tool, err := (&toolchain.Cache{Home: s.root}).Identify(s.t.Context(), gcc)
	if err != nil {
		s.t.Fatal(err)
	}
	return tool.ID
}

// TestHostsThatLie: what a host says against the protocol, or about things that
// were not asked for, costs its connection and a line; beside a good host nothing.
func TestHostsThatLie(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.gcc()
	object := objectHead + "this is no object, and nobody shall take it for one"
	lies := map[string]liar{
		"a file outside the sink":        {onJob: answered(object, func(r *job.Result) { r.Files[0].Off = 1 << 40 })},
		"a file longer than the sink":    {onJob: answered(object, func(r *job.Result) { r.Files[0].Len = 1 << 40 })},
		"a message outside the sink":     {onJob: answered(object, func(r *job.Result) { r.Stderr = job.Segment{Off: 1<<64 - 10, Len: 9} })},
		"a file that nobody asked for":   {onJob: answered(object, func(r *job.Result) { r.Files[0].Index = 7 })},
		"a file twice":                   {onJob: answered(object, func(r *job.Result) { r.Files = append(r.Files, r.Files[0]) })},
		"no file":                        {onJob: answered(object, func(r *job.Result) { r.Files = nil })},
		"a window that nobody asked for": {onJob: answered(object, func(r *job.Result) { r.Window = job.Window{STag: 1, Len: 100} })},
		"another job's answer":           {onJob: answered(object, func(r *job.Result) { r.ID++ })},
		"a killed compiler":              {onJob: answered(object, func(r *job.Result) { r.Signal = 11 })},
		"a fault": {onJob: answered(object, func(r *job.Result) {
			r.Status, r.Cause, r.Detail = job.StatusFailed, job.CauseInternal, "a\x1b[31m\nlie"
		})},
		"an answer that leaves the sink": {onJob: func(p *peer, m *job.Job) { p.send(&job.Result{ID: m.ID}, 0) }},
		"an answer to another sink":      {onJob: func(p *peer, m *job.Job) { p.send(&job.Result{ID: m.ID}, m.Sink.STag+1) }},
		"a write past the sink":          {onJob: func(p *peer, m *job.Job) { p.write([]byte(object), m.Sink.STag, m.Sink.TO+m.Sink.Len-1) }},
		"a write nowhere":                {onJob: func(p *peer, m *job.Job) { p.write([]byte(object), 0x12345678, 0) }},
		"a broken message":               {onJob: func(p *peer, m *job.Job) { p.sendBytes([]byte{byte(job.KindResult), 1, 2, 3}, m.Sink.STag) }},
		"a manager's message":            {onJob: func(p *peer, m *job.Job) { p.send(m, 0) }},
		"a message that is too long":     {onJob: func(p *peer, m *job.Job) { p.sendBytes(bytes.Repeat([]byte{9}, 4*job.MaxMessage), 0) }},
		"a second Welcome":               {greet: func(p *peer) { p.send(&job.Welcome{}, 0) }},
		"an Ack of nothing":              {onJob: func(p *peer, _ *job.Job) { p.send(&job.Ack{Of: job.KindGrant, Seq: 9}, 0) }},
		"a flood": {onJob: func(p *peer, _ *job.Job) {
			for i := range uint32(500) {
				p.send(&job.Heartbeat{Seq: i}, 0)
			}
		}},
		"a connection cut":                 {onJob: func(p *peer, _ *job.Job) { p.qp.Abort() }},
		"more toolchains than it tells of": {listed: 60000},
		"no slot of the size it says":      {slot: 1 << 50, onJob: func(p *peer, m *job.Job) { p.qp.Abort() }},
	}
	d := s.daemon("d1", "", "--jobs", "2")
	s.manager("", "scheduler: {backoff: 5m, backoff-max: 5m}\n")
	s.file("hello.c", "#include <stddef.h>\nint hello;\n")
	if o := s.run([]string{"RDISTCC_HOSTS=" + d.Addr}, "gcc", "-c", "hello.c"); o.report != "remote:"+d.Addr {
		t.Fatalf("%+v", o)
	}
	s.atRest()
	for name, l := range lies {
		l.credits = 2
		if l.slot == 0 {
			l.slot = 1 << 20
		}
		l.listed = max(l.listed, 1)
		host := l.serve(t, id)
		o := s.run([]string{"RDISTCC_HOSTS=" + host}, "gcc", "-c", "hello.c")
		if o.status != 0 || o.report != "local:host-lost" {
			t.Errorf("%s: %+v, want it compiled here", name, o)
		}
		s.oneLine(o.stderr, "rdistcc: "+regexp.QuoteMeta(host)+"[ -~]*; compiled here")
		s.sameObject("hello.o", "gcc", "-c", "hello.c")
		host = l.serve(t, id)
		o = s.run([]string{"RDISTCC_HOSTS=" + host + " " + d.Addr}, "gcc", "-c", "hello.c")
		if o.status != 0 || o.stderr != "" || o.report != "remote:"+d.Addr {
			t.Errorf("%s beside a good host: %+v", name, o)
		}
		s.sameObject("hello.o", "gcc", "-c", "hello.c")
	}
	s.eventually("end of all connections", s.busy)
	if err := s.Manager.Stop(); err != nil {
		t.Error(err)
	}
}

// TestHostsThatReadMore: a host that reads or writes around the window of a job loses its connection, and has
// read nothing.
func TestHostsThatReadMore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.gcc()
	lies := map[string]func(w job.Window) (op iwarp.Opcode, stag uint32, to uint64, n int){
		"past the end": func(w job.Window) (iwarp.Opcode, uint32, uint64, int) {
			return iwarp.OpRead, w.STag, w.TO + w.Len - 1, 2
		},
		"before the start": func(w job.Window) (iwarp.Opcode, uint32, uint64, int) { return iwarp.OpRead, w.STag, w.TO - 1, 2 },
		"a page further on": func(w job.Window) (iwarp.Opcode, uint32, uint64, int) {
			return iwarp.OpRead, w.STag, w.TO + w.Len + 4096, 64
		},
		"by another STag": func(w job.Window) (iwarp.Opcode, uint32, uint64, int) { return iwarp.OpRead, w.STag + 1, w.TO, 2 },
		"a Write":         func(w job.Window) (iwarp.Opcode, uint32, uint64, int) { return iwarp.OpWrite, w.STag, w.TO, 2 },
	}
	s.manager("", pulls+"scheduler: {backoff: 5m, backoff-max: 5m}\n")
	s.file("hello.c", "#include <stddef.h>\nint hello;\n")
	for name, lie := range lies {
		l := liar{credits: 2, slot: 1 << 20, listed: 1, reads: true, fetches: 1 << 20, onJob: func(p *peer, m *job.Job) {
			if m.Source.STag == 0 {
				t.Errorf("%s: the source is not offered: %+v", name, m)
			}
			op, stag, to, n := lie(m.Source)
			_ = p.qp.PostSend(&iwarp.SendWR{Op: op, STag: iwarp.STag(stag), TO: to,
				SGL: []iwarp.SGE{{Addr: peerBase, Length: uint32(n), LKey: p.mr.STag()}}})
			<-p.qp.Done()
			if string(p.mem[peerBase:][:64]) != string(make([]byte, 64)) {
				t.Errorf("%s: it read %q", name, p.mem[peerBase:][:64])
			}
		}}
		host := l.serve(t, id)
		o := s.run([]string{"RDISTCC_HOSTS=" + host}, "gcc", "-c", "hello.c")
		if o.status != 0 || o.report != "local:host-lost" {
			t.Errorf("%s: %+v, want it compiled here", name, o)
		}
		s.sameObject("hello.o", "gcc", "-c", "hello.c")
	}
	n := 0.0
	for series, v := range s.metrics(s.Manager) {
		if strings.HasPrefix(series, "iwarp_terminates_total{") && strings.Contains(series, `direction="sent"`) {
			n += v
		}
	}
	if n < float64(len(lies)) {
		t.Errorf("%v Terminates are counted, want %d", n, len(lies))
	}
	s.eventually("end of all connections", s.busy)
	if err := s.Manager.Stop(); err != nil {
		t.Error(err)
	}
}

// TestHostsThatStall: a host that never answers a job, nor its cancellation, or
// that grants nothing, does not keep a command for ever.
func TestHostsThatStall(t *testing.T) {
	part.Skip(t)
	t.Parallel()
	for _, q := range []struct {
		l      liar
		report string
		words  string
	}{
		{liar{credits: 1, slot: 1 << 20, listed: 1}, "local:timeout", " took longer than the time limit"},
		{liar{slot: 1 << 20, listed: 1}, "local:refused:full", " has no free place for this machine"},
	} {
		t.Run(strings.TrimPrefix(q.report, "local:"), func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.manager("", "")
			s.file("hello.c", "int hello;\n")
			host := q.l.serve(t, s.gcc())
			o := s.run([]string{"RDISTCC_HOSTS=" + host, "RDISTCC_IO_TIMEOUT=1"}, "gcc", "-c", "hello.c")
			if o.status != 0 || o.report != q.report {
				t.Errorf("%+v, want it compiled here", o)
			}
			s.oneLine(o.stderr, "rdistcc: "+regexp.QuoteMeta(host)+q.words+"; compiled here")
			s.sameObject("hello.o", "gcc", "-c", "hello.c")
			s.eventually("rest", s.busy)
		})
	}
}

// TestWriteAfterTheAnswer: what a host writes into a sink after its answer does not
// reach the object.
func TestWriteAfterTheAnswer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.gcc()
	good := objectHead + strings.Repeat("object ", 50000)
	honest := answered(good, func(*job.Result) {})
	host := liar{credits: 1, slot: 1 << 20, listed: 1, onJob: func(p *peer, m *job.Job) {
		honest(p, m)
		// From other memory: the first Write may still be on its way.
		_ = p.qp.PostSend(&iwarp.SendWR{Op: iwarp.OpWrite, Flags: iwarp.Inline | iwarp.Unsignaled, STag: iwarp.STag(m.Sink.STag), TO: m.Sink.TO, Data: []byte("spoilt")})
	}}.serve(t, id)
	s.manager(host, "scheduler: {backoff: 10ms, backoff-max: 10ms}\n")
	s.file("hello.c", "int hello;\n")
	for range 3 {
		o := s.run([]string{"RDISTCC_BACKOFF_PERIOD=0"}, "gcc", "-c", "hello.c")
		if o.report == "remote:"+host {
			if got := s.read("hello.o"); got != good {
				t.Errorf("the object begins with %.20q", got)
			}
		} else if o.status != 0 || o.report != "local:host-lost" {
			t.Errorf("%+v", o)
		}
	}
	s.eventually("rest", s.busy)
}

// TestManagersThatLie: what a manager says against the protocol costs its
// connection; the daemon's memory, files and other clients are untouched.
func TestManagersThatLie(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.daemon("d1", "", "--jobs", "2")
	s.manager(d.Addr, "")
	s.remote(d.Addr)
	s.atRest()
	dev, err := iwarp.Open(iwarp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	good := func(p *peer, c job.Credit) *job.Job {
		mr, err := p.pd.RegMR(make([]byte, 4096), iwarp.LocalWrite|iwarp.RemoteWrite, &iwarp.MROptions{QP: p.qp})
		if err != nil {
			t.Error(err)
			return &job.Job{}
		}
		t.Cleanup(func() { _ = mr.Dereg() })
		return &job.Job{ID: 1, Credit: c.ID, BodyLen: 64, TextOff: 64, TextLen: 10, Sink: job.Window{STag: uint32(mr.STag()), Len: 4096}}
	}
	with := func(change func(m *job.Job)) func(p *peer, c job.Credit) {
		return func(p *peer, c job.Credit) {
			m := good(p, c)
			change(m)
			p.send(m, c.Slot.STag)
		}
	}
	// Those that are refused leave the connection: the daemon answers them.
	lies := map[string]struct {
		say     func(p *peer, c job.Credit)
		refused bool
	}{
		"huge lengths":                 {with(func(m *job.Job) { m.BodyLen, m.TextOff, m.TextLen = 1<<32-1, 1<<32-64, 1<<64-1 }), true},
		"a text past the slot":         {with(func(m *job.Job) { m.TextLen = 1 << 40 }), true},
		"a window that it cannot have": {with(func(m *job.Job) { m.Source = job.Window{STag: 1, Len: 74} }), true},
		"a Release of nothing":         {func(p *peer, c job.Credit) { p.send(&job.Release{ID: 1}, c.Slot.STag) }, false},
		"a body of noise":              {with(func(m *job.Job) { m.BodyLen, m.TextOff = 1000, 1024 }), true},
		"no sink":                      {with(func(m *job.Job) { m.Sink = job.Window{} }), false},
		"a foreign credit":             {with(func(m *job.Job) { m.Credit += 1000 }), false},
		"a slot that stays open":       {func(p *peer, c job.Credit) { p.send(good(p, c), 0) }, false},
		"two jobs on one credit":       {func(p *peer, c job.Credit) { m := good(p, c); p.send(m, c.Slot.STag); m.ID++; p.send(m, c.Slot.STag) }, false},
		"a credit returned twice": {func(p *peer, c job.Credit) {
			m := &job.Return{Credit: c.ID}
			p.send(m, c.Slot.STag)
			p.send(m, c.Slot.STag)
		}, false},
		"a write past the slot": {func(p *peer, c job.Credit) { p.write(make([]byte, 100), c.Slot.STag, c.Slot.TO+c.Slot.Len-50) }, false},
		"a write after the job": {func(p *peer, c job.Credit) {
			p.send(good(p, c), c.Slot.STag)
			p.write(make([]byte, 100), c.Slot.STag, c.Slot.TO)
		}, false},
		"a write to a guessed slot":  {func(p *peer, c job.Credit) { p.write(make([]byte, 100), c.Slot.STag^1, 0) }, false},
		"a second Hello":             {func(p *peer, _ job.Credit) { p.send(&job.Hello{}, 0) }, false},
		"a daemon's message":         {func(p *peer, _ job.Credit) { p.send(&job.Welcome{}, 0) }, false},
		"noise":                      {func(p *peer, _ job.Credit) { p.sendBytes([]byte("\x07noise noise noise"), 0) }, false},
		"a message that is too long": {func(p *peer, _ job.Credit) { p.sendBytes(make([]byte, 4*job.MaxMessage), 0) }, false},
		"cancels of nothing": {func(p *peer, _ job.Credit) {
			for i := range uint32(200) {
				p.send(&job.Cancel{Seq: i, Jobs: []uint64{1, 2, 3, 1 << 63}}, 0)
			}
			p.send(&job.Hello{}, 0)
		}, false},
	}
	for name, l := range lies {
		p, err := newPeer(t, dev)
		if err != nil {
			t.Fatal(err)
		}
		g := job.Greeting{Version: job.Version}
		if _, err := dev.Dial(t.Context(), d.Addr, p.qp, &iwarp.ConnParam{PrivateData: g.Append(nil)}); err != nil {
			t.Fatal(err)
		}
		hung := time.AfterFunc(patience, p.qp.Abort)
		p.send(&job.Hello{Name: "liar"}, 0)
		said := false
		for m := p.receive(); m != nil; m = p.receive() {
			switch m := m.(type) {
			case *job.Grant:
				p.send(&job.Ack{Of: job.KindGrant, Seq: m.Seq}, 0)
				if !said {
					said = true
					l.say(p, m.Credits[0])
				}
			case *job.Compilers:
				p.send(&job.Ack{Of: job.KindCompilers, Seq: m.Seq}, 0)
			case *job.Toolchains:
				p.send(&job.Ack{Of: job.KindToolchains, Seq: m.Seq}, 0)
			case *job.Result:
				if !l.refused && m.Status == job.StatusRan {
					t.Errorf("%s: %+v", name, m)
				}
				if l.refused {
					if m.Status != job.StatusRefused {
						t.Errorf("%s: %+v, want it refused", name, m)
					}
					p.qp.Abort()
				}
			}
		}
		if !hung.Stop() {
			t.Errorf("%s: the daemon kept the connection", name)
		}
		p.destroy()
		s.remote(d.Addr)
	}
	s.clean()
}

// TestNoiseAfterStartUp: frames of noise, with and without a right CRC, after a
// start-up as it should be.
func TestNoiseAfterStartUp(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.daemon("d1", "", "--jobs", "2")
	s.manager(d.Addr, "")
	s.remote(d.Addr)
	s.atRest()
	g := job.Greeting{Version: job.Version}
	request, err := (&mpa.Frame{CRC: true, Rev: 1, Private: g.Append(nil)}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 50 {
		c, err := net.Dial("tcp", d.Addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err := c.Write(request); err != nil {
			t.Error(err)
		}
		if n, err := c.Read(make([]byte, 512)); err != nil || n < 20 {
			t.Errorf("reply of %d bytes: %v", n, err)
		}
		noise := make([]byte, 1+rnd.IntN(3000))
		for j := range noise {
			noise[j] = byte(rnd.Uint32())
		}
		if i%2 == 0 {
			frame := mpa.NewBatch()
			frame.Reset(true)
			frame.CopyAll()
			frame.Add(noise[:min(len(noise), 64)], noise[min(len(noise), 64):])
			noise = bytes.Join(frame.Bufs(), nil)
		}
		_, _ = c.Write(noise)             // the daemon may have closed already
		_ = c.(*net.TCPConn).CloseWrite() // as above
		if err := drain(c); err != nil {
			t.Errorf("noise %d: %v", i, err)
		}
		c.Close()
	}
	s.remote(d.Addr)
	s.clean()
}
