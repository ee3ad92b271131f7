package rawjob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// maxSink bounds the memory for a result, in bytes.
const maxSink = 64 << 20

// Job is the job to send.
type Job struct {
	Toolchain unit.ToolchainID
	Body      *job.Body
	Text      []byte        // the source; in the sources form the contents of its files and blobs, one after the other
	Encoded   []byte        // replaces the encoded Body, as it is: it need not be a valid one
	Store     bool          // say that the body has blobs or lists, whatever it has; if Body has any, that is said anyway
	Timeout   time.Duration // of the compile; 0 = the daemon's
	Sink      int           // bytes for the result; 0 = as many as the daemon writes, but at most 64 MiB
}

// Result is a result together with the memory that it refers to.
type Result struct {
	*job.Result
	sink []byte
}

// Segment returns a part of the sink; Wait has checked that it is inside.
func (r *Result) Segment(s job.Segment) []byte { return r.sink[s.Off : s.Off+s.Len] }

// Pending is a job that the daemon has.
type Pending struct {
	ID     uint64
	sink   []byte
	mrs    []iwarp.MR
	result *job.Result
}

// free takes the memory out of the daemon's reach.
func (p *Pending) free() {
	for _, mr := range p.mrs {
		_ = mr.Dereg()
	}
	p.mrs = nil
}

// Run submits a job and waits for its result.
func (c *Client) Run(ctx context.Context, j *Job) (*Result, error) {
	p, err := c.Start(ctx, j)
	if err != nil {
		return nil, err
	}
	return c.Wait(ctx, p)
}

// Start submits a job, once there is a credit for it. While the daemon is still identifying its compilers,
// it waits for the job's.
func (c *Client) Start(ctx context.Context, j *Job) (*Pending, error) {
	// Both at once: a credit may be recalled while the compilers are awaited.
	credit, known := false, false
	err := c.until(ctx, func() bool {
		credit = c.welcome != nil && len(c.credits) > 0
		known = !c.more || slices.Contains(c.ids, j.Toolchain)
		return credit && known
	})
	switch {
	case err != nil && !credit:
		return nil, fmt.Errorf("waiting for a credit: %w", err)
	case err != nil:
		return nil, fmt.Errorf("waiting for the host's compilers: %w", err)
	}
	spent := c.credits[0]
	slot := j.Encoded
	if slot == nil {
		slot = j.Body.Append(nil)
	}
	bodyLen := len(slot)
	off := job.TextOffset(bodyLen)
	slot = append(append(slot[:bodyLen:bodyLen], make([]byte, off-bodyLen)...), j.Text...)
	carrier, err := c.carrier(uint64(len(slot)), spent)
	if err != nil {
		return nil, err
	}
	most := uint64(maxSink)
	if j.Sink > 0 {
		most = uint64(j.Sink)
	}
	c.last++
	p := &Pending{ID: c.last, sink: make([]byte, min(max(c.welcome.MaxResult, 1), most))}
	smr, err := c.show(slot, carrier)
	if err != nil {
		return nil, err
	}
	p.mrs = append(p.mrs, smr)
	kmr, err := c.pd.RegMR(p.sink, iwarp.LocalWrite|iwarp.RemoteWrite, &iwarp.MROptions{QP: c.qp})
	if err != nil {
		p.free()
		return nil, err
	}
	p.mrs = append(p.mrs, kmr)
	c.credits = c.credits[1:]
	c.due[p.ID] = p
	if carrier == job.Write {
		err = c.qp.PostSend(&iwarp.SendWR{
			Op: iwarp.OpWrite, STag: iwarp.STag(spent.Slot.STag), TO: spent.Slot.TO,
			SGL: []iwarp.SGE{{Addr: smr.Base(), Length: uint32(len(slot)), LKey: smr.STag()}},
		})
	}
	if err != nil {
		return nil, err
	}
	m := &job.Job{
		ID: p.ID, Credit: spent.ID, Toolchain: j.Toolchain, BodyLen: uint32(bodyLen), TextOff: uint32(off), TextLen: uint64(len(j.Text)),
		Sink:    job.Window{STag: uint32(kmr.STag()), TO: kmr.Base(), Len: uint64(len(p.sink))},
		Timeout: uint32(j.Timeout.Milliseconds()),
		Store:   j.Store || j.Body != nil && len(j.Body.Blobs)+len(j.Body.Lists) > 0,
	}
	switch carrier {
	case job.Pull:
		m.Source = job.Window{STag: uint32(smr.STag()), TO: smr.Base(), Len: uint64(len(slot))}
	case job.Eager:
		m.Carried = slot
	}
	n := len(c.mrs)
	err = c.send(m, c.ends(&spent))
	p.mrs, c.mrs = append(p.mrs, c.mrs[n:]...), c.mrs[:n]
	return p, err
}

// carrier returns how a source of n bytes travels: as Options.Carrier says, otherwise into the slot if the
// credit has one, inside the message if that may be so long, or by the daemon's Reads.
func (c *Client) carrier(n uint64, credit job.Credit) (job.Carrier, error) {
	fits := [...]bool{
		job.Write: n <= credit.Slot.Len && credit.Slot.STag != 0,
		job.Eager: n <= uint64(c.welcome.Eager),
		job.Pull:  n <= c.welcome.MaxSource && c.info.IRD > 0,
	}
	if c.by != nil {
		if !fits[*c.by] {
			return 0, fmt.Errorf("body and source are %d bytes, which the host does not take by %v", n, *c.by)
		}
		return *c.by, nil
	}
	for by, ok := range fits {
		if ok && (job.Carrier(by) != job.Pull || credit.Slot.STag == 0) {
			return job.Carrier(by), nil
		}
	}
	return 0, fmt.Errorf("body and source are %d bytes: the host's slot has %d", n, credit.Slot.Len)
}

// show registers a source so that it can be sent, or read by the daemon.
func (c *Client) show(source []byte, by job.Carrier) (iwarp.MR, error) {
	if by == job.Pull {
		return c.pd.RegMR(source, iwarp.RemoteRead, &iwarp.MROptions{QP: c.qp})
	}
	return c.pd.RegMR(source, 0, nil)
}

// Cancel asks the daemon to end jobs; each still has its result.
func (c *Client) Cancel(jobs ...*Pending) error {
	c.seq++
	m := &job.Cancel{Seq: c.seq}
	for _, p := range jobs {
		m.Jobs = append(m.Jobs, p.ID)
	}
	return c.send(m, 0)
}

// Wait waits for the result of a job that was started.
func (c *Client) Wait(ctx context.Context, p *Pending) (*Result, error) {
	if err := c.until(ctx, func() bool { return p.result != nil }); err != nil {
		return nil, fmt.Errorf("waiting for the result: %w", err)
	}
	p.free()
	r := p.result
	all := []job.Segment{r.Stdout, r.Stderr}
	for _, f := range r.Files {
		all = append(all, f.Segment)
	}
	for _, x := range all {
		if x.Off > uint64(len(p.sink)) || x.Len > uint64(len(p.sink))-x.Off {
			return nil, fmt.Errorf("%w: %w", ErrProtocol, errors.New("the result speaks of bytes outside of the sink"))
		}
	}
	return &Result{Result: r, sink: p.sink}, nil
}
