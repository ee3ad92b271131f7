// Package rawjob sends jobs to a daemon exactly as given: without the wrapper's checks, without the
// manager's care, and without compiling anything here if the daemon rejects them. Its purpose is to judge a
// daemon, and to hand a daemon the jobs of clients that speak another protocol.
package rawjob

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// maxCredits is how many jobs a client can have with the daemon at a time.
const maxCredits = 8

// recvs is the number of a client's receives: the spare ones that the protocol requires, an answer for each
// job, and the one to Hello.
const recvs = job.Spare + maxCredits + 1

// reads is how many of the daemon's Reads may be outstanding.
const reads = 16

// Errors of a connection, which the errors of this package wrap.
var (
	ErrConnect  = errors.New("connect")
	ErrProtocol = errors.New("the connection ended")
)

// Rejected is the error of Dial when the daemon rejects the connection.
type Rejected struct {
	Addr string
	job.Rejection
}

func (r *Rejected) Error() string {
	return fmt.Sprintf("%s refuses (%v): %s", r.Addr, r.Cause, r.Detail)
}

// Client is one connection. It is for one goroutine at a time.
type Client struct {
	pd      iwarp.PD
	cq      iwarp.CQ
	qp      iwarp.QP
	recv    []byte
	rmr     iwarp.MR
	wcs     []iwarp.WC
	seq     uint32
	last    uint64       // number of the last job
	keep    bool         // Options.Keep
	mrs     []iwarp.MR   // of Fill, and of messages too long to be sent inline
	by      *job.Carrier // Options.Carrier
	most    int          // bytes that can be sent inline
	version uint16       // of the job protocol

	info    *iwarp.ConnInfo
	welcome *job.Welcome
	ids     []unit.ToolchainID // all listed so far
	listed  bool               // a list has arrived completely
	more    bool               // a longer one may follow
	credits []job.Credit
	echoed  uint32 // the last Heartbeat that was answered
	due     map[uint64]*Pending
}

// Options holds the options of a connection.
type Options struct {
	Want int      // credits that it asks for, and so the most jobs that are with the daemon at a time; 0 = 1
	Key  *psk.Key // the pre-shared key; nil: there is none

	// Name is what the client calls itself; empty: this machine's name. Boot is a random number that connections of the same
	// client share; zero: each stands for itself.
	Name string
	Boot [16]byte

	// Demand is how many places it claims to have use for; 0: it claims nothing. Keep: a Recall is
	// acknowledged, and no credit is returned.
	Demand uint16
	Keep   bool

	// Carrier is how all sources travel; nil: each in the first possible way of write, eager and pull.
	Carrier *job.Carrier
}

// Dial connects and introduces itself without a key. want is Options.Want.
func Dial(ctx context.Context, dev iwarp.Device, addr string, want int) (*Client, error) {
	return DialWith(ctx, dev, addr, Options{Want: want})
}

// DialWith connects and introduces itself. An error about a key is psk.ErrMissing or psk.ErrWrong, unless
// the daemon itself reports it by a *Rejected.
func DialWith(ctx context.Context, dev iwarp.Device, addr string, o Options) (*Client, error) {
	c, err := dial(ctx, dev, addr, o, job.Version)
	var no *Rejected
	if errors.As(err, &no) {
		if version, ok := no.Instead(job.Version); ok {
			return dial(ctx, dev, addr, o, version)
		}
	}
	return c, err
}

// dial is DialWith in one version of the protocol.
func dial(ctx context.Context, dev iwarp.Device, addr string, o Options, version uint16) (*Client, error) {
	c := &Client{version: version, keep: o.Keep, by: o.Carrier, most: dev.Attr().MaxInline, recv: make([]byte, recvs*job.MaxMessage), wcs: make([]iwarp.WC, recvs), due: map[uint64]*Pending{}}
	if err := c.dial(ctx, dev, addr, o); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Version returns the version of the job protocol that the connection speaks.
func (c *Client) Version() uint16 { return c.version }

func (c *Client) dial(ctx context.Context, dev iwarp.Device, addr string, o Options) error {
	var err error
	if c.pd, err = dev.AllocPD(); err != nil {
		return err
	}
	if c.cq, err = dev.CreateCQ(4 * recvs); err != nil {
		return err
	}
	if c.rmr, err = c.pd.RegMR(c.recv, iwarp.LocalWrite, nil); err != nil {
		return err
	}
	if c.qp, err = c.pd.CreateQP(iwarp.QPInitAttr{SendCQ: c.cq, RecvCQ: c.cq, MaxSend: 2 * recvs, MaxRecv: recvs}); err != nil {
		return err
	}
	for i := range uint64(recvs) {
		if err := c.postRecv(i); err != nil {
			return err
		}
	}
	hi := job.Greeting{Version: c.version, Boot: o.Boot}
	p := &iwarp.ConnParam{PrivateData: hi.Append(nil)}
	if a := dev.Attr(); a.RDMARead {
		p.IRD = uint16(min(reads, a.MaxIRD))
	}
	var proving *psk.Dialing
	if o.Key != nil {
		proving = o.Key.Dial(p.PrivateData, dev.Attr().StartUp)
		p.PrivateData = proving.PrivateData()
	}
	c.info, err = dev.Dial(ctx, addr, c.qp, p)
	var rejected *iwarp.RejectedError
	if errors.As(err, &rejected) {
		if r, perr := job.ParseRejection(rejected.PrivateData); perr == nil {
			return &Rejected{addr, r}
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConnect, err)
	}
	if err := c.agree(proving); err != nil {
		return err
	}
	name := o.Name
	if name == "" {
		if name, err = os.Hostname(); err != nil {
			name = "unknown"
		}
	}
	err = c.send(&job.Hello{Name: job.Clip(name, job.MaxName), Want: uint16(min(max(o.Want, 1), maxCredits))}, 0)
	if err == nil && o.Demand > 0 {
		err = c.send(&job.Demand{Seq: 1, Jobs: o.Demand, Builds: 1}, 0)
	}
	return err
}

// agree checks the daemon's answer. If the daemon has proven that it has the key, agree proves that this
// side has it too.
func (c *Client) agree(proving *psk.Dialing) error {
	g, err := job.ParseGreeting(c.info.PrivateData)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if g.Version != c.version {
		return fmt.Errorf("%w: it answers with version %d of the job protocol to version %d", ErrProtocol, g.Version, c.version)
	}
	if proving == nil {
		return nil
	}
	m := new(job.Proof)
	if _, m.MAC, err = proving.Finish(c.info.Request, c.info.Reply, c.info.PrivateData); err != nil {
		return fmt.Errorf("it does not prove that it has our pre-shared key: %w", err)
	}
	return c.send(m, 0)
}

// Introduced waits until the daemon has said what it is, and which compilers it knows so far.
func (c *Client) Introduced(ctx context.Context) (*job.Welcome, []unit.ToolchainID, error) {
	err := c.until(ctx, func() bool { return c.welcome != nil && (c.listed || c.welcome.Toolchains == 0) })
	if err != nil {
		return nil, nil, err
	}
	return c.welcome, c.ids, nil
}

// Identified waits until the daemon has listed all its compilers.
func (c *Client) Identified(ctx context.Context) ([]unit.ToolchainID, error) {
	err := c.until(ctx, func() bool { return c.listed && !c.more })
	if err != nil {
		return nil, err
	}
	return c.ids, nil
}

// Echo waits for the answer to a Heartbeat.
func (c *Client) Echo(ctx context.Context) error {
	c.seq++
	seq := c.seq
	if err := c.send(&job.Heartbeat{Seq: seq}, 0); err != nil {
		return err
	}
	return c.until(ctx, func() bool { return c.echoed == seq })
}

// Fill overwrites completely the slots that it has credits for, once there are any, and keeps these credits.
func (c *Client) Fill(ctx context.Context) error {
	if err := c.until(ctx, func() bool { return len(c.credits) > 0 }); err != nil {
		return err
	}
	for _, k := range c.credits {
		if k.Slot.STag == 0 {
			continue // there is nothing to fill
		}
		mr, err := c.pd.RegMR(make([]byte, k.Slot.Len), 0, nil)
		if err != nil {
			return err
		}
		c.mrs = append(c.mrs, mr)
		err = c.qp.PostSend(&iwarp.SendWR{
			Op: iwarp.OpWrite, Flags: iwarp.Unsignaled, STag: iwarp.STag(k.Slot.STag), TO: k.Slot.TO,
			SGL: []iwarp.SGE{{Addr: mr.Base(), Length: uint32(k.Slot.Len), LKey: mr.STag()}},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Close ends the connection, and with it everything that runs for it.
func (c *Client) Close() {
	if c.qp != nil {
		_ = c.qp.Destroy()
	}
	for _, p := range c.due {
		p.free()
	}
	for _, mr := range c.mrs {
		_ = mr.Dereg()
	}
	if c.rmr != nil {
		_ = c.rmr.Dereg()
	}
	if c.cq != nil {
		_ = c.cq.Close()
	}
	if c.pd != nil {
		_ = c.pd.Dealloc()
	}
}

// Welcome returns the daemon's introduction, once a first job has got its credit.
func (c *Client) Welcome() *job.Welcome { return c.welcome }

func (c *Client) postRecv(i uint64) error {
	return c.qp.PostRecv(&iwarp.RecvWR{ID: i, SGL: []iwarp.SGE{{
		Addr: c.rmr.Base() + i*job.MaxMessage, Length: job.MaxMessage, LKey: c.rmr.STag(),
	}}})
}

// ends returns the STag that a message which spends k has to invalidate; 0 = none.
func (c *Client) ends(k *job.Credit) iwarp.STag {
	if c.welcome != nil && c.welcome.SlotsKept {
		return 0
	}
	return iwarp.STag(k.Slot.STag)
}

// send sends one message, and invalidates an STag of the peer if inv is not 0.
func (c *Client) send(m job.Message, inv iwarp.STag) error {
	wr := &iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Unsignaled | iwarp.Inline, Data: job.Append(nil, m)}
	if inv != 0 {
		wr.Op, wr.InvSTag = iwarp.OpSendInv, inv
	}
	if len(wr.Data) > c.most {
		mr, err := c.pd.RegMR(wr.Data, 0, nil)
		if err != nil {
			return err
		}
		c.mrs = append(c.mrs, mr)
		wr.SGL = []iwarp.SGE{{Addr: mr.Base(), Length: uint32(len(wr.Data)), LKey: mr.STag()}}
		wr.Flags, wr.Data = iwarp.Unsignaled, nil
	}
	return c.qp.PostSend(wr)
}

// until handles messages until done returns true.
func (c *Client) until(ctx context.Context, done func() bool) error {
	for !done() {
		n := c.cq.Poll(c.wcs)
		if n == 0 {
			if err := c.cq.Wait(ctx); err != nil {
				return err
			}
			continue
		}
		for _, wc := range c.wcs[:n] {
			if wc.Status != iwarp.StatusSuccess {
				<-c.qp.Done()
				return fmt.Errorf("%w: %w", ErrProtocol, c.qp.Err())
			}
			if wc.Op != iwarp.OpRecv {
				continue
			}
			m, err := job.Parse(c.recv[wc.ID*job.MaxMessage:][:wc.ByteLen])
			if err != nil {
				return fmt.Errorf("%w: %w", ErrProtocol, err)
			}
			if err := c.postRecv(wc.ID); err != nil {
				return err
			}
			if err := c.take(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// take handles one message, and acknowledges it if required.
func (c *Client) take(m job.Message) error {
	switch m := m.(type) {
	case *job.Welcome:
		c.welcome, c.more = m, m.Identifying
	case *job.Ack:
		if m.Of == job.KindHeartbeat {
			c.echoed = m.Seq
		}
	case *job.Compilers:
		return c.send(&job.Ack{Of: job.KindCompilers, Seq: m.Seq}, 0)
	case *job.Toolchains:
		if m.First == 0 {
			c.ids = nil
		}
		c.ids = append(c.ids, m.IDs...)
		if len(c.ids) == int(m.Total) {
			c.listed, c.more = true, m.More
		}
		return c.send(&job.Ack{Of: job.KindToolchains, Seq: m.Seq}, 0)
	case *job.Grant:
		c.credits = append(c.credits, m.Credits...)
		return c.send(&job.Ack{Of: job.KindGrant, Seq: m.Seq}, 0)
	case *job.Recall:
		return c.recall(m)
	case *job.Drain:
		return c.send(&job.Ack{Of: job.KindDrain, Seq: m.Seq}, 0)
	case *job.Heartbeat:
		return c.send(&job.Ack{Of: job.KindHeartbeat, Seq: m.Seq}, 0)
	case *job.Result:
		if m.Next != nil {
			c.credits = append(c.credits, *m.Next)
		}
		if p := c.due[m.ID]; p != nil {
			p.result = m
			delete(c.due, m.ID)
		}
	}
	return nil
}

// recall returns unspent credits.
func (c *Client) recall(m *job.Recall) error {
	n := min(int(m.Count), len(c.credits))
	if c.keep {
		n = 0
	}
	for range n {
		last := c.credits[len(c.credits)-1]
		c.credits = c.credits[:len(c.credits)-1]
		if err := c.send(&job.Return{Credit: last.ID}, c.ends(&last)); err != nil {
			return err
		}
	}
	return c.send(&job.Ack{Of: job.KindRecall, Seq: m.Seq}, 0)
}
