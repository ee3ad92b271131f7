// Package offload finds out what serving jobs costs a compile host beside compiling, and how much of that an RDMA adapter would
// take off it. Its clients keep a daemon busy with jobs that hardly need a compiler; a profile of the daemon tells its own
// work from that of the software stack.
//
// The question is that of "Enabling Applications for RDMA" (RZ3764) and of the OSC server's software iWARP: clients without an
// adapter gain nothing from one at the server, and the server's load falls.
package offload

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rawjob"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Load is how a daemon is kept busy.
type Load struct {
	Device  iwarp.Device // of the clients
	Addr    string       // of the daemon
	Key     *psk.Key     // nil: it wants none
	Clients int          // connections, each with one job at a time
	Size    int          // bytes of a job's source, and of its result
	Settle  time.Duration
	// Retries is how many connections may be lost on the way, for a path that is known to lose some. A lost job is sent
	// again.
	Retries int
}

// Done is what clients have had done.
type Done struct {
	Jobs     int
	Lost     int           // connections
	Compiler time.Duration // CPU time of the compiler, as the daemon tells it
	Wall     time.Duration
}

// Clients are connected to a daemon and have had a job done each.
type Clients struct {
	load    Load
	job     *rawjob.Job
	mu      sync.Mutex
	done    Done
	clients []*rawjob.Client // owned by their goroutines while those run
}

// Connect connects the clients, and does one job for each, so that the daemon's memory and the compiler are warm.
func Connect(ctx context.Context, l Load) (*Clients, error) {
	if l.Settle > 0 {
		l.Device = settling{l.Device, l.Settle}
	}
	c := &Clients{load: l, clients: make([]*rawjob.Client, l.Clients)}
	for i := range c.clients {
		for c.clients[i] == nil {
			if err := c.connect(ctx, i); err != nil && !c.lost(err) {
				c.Close()
				return nil, err
			}
		}
	}
	return c, nil
}

// Close ends the connections.
func (c *Clients) Close() {
	for i := range c.clients {
		c.hangUp(i)
	}
}

func (c *Clients) hangUp(i int) {
	if c.clients[i] != nil {
		c.clients[i].Close()
	}
	c.clients[i] = nil
}

// settling is a device whose connections wait before they send (iwarp.ConnParam.Settle).
type settling struct {
	iwarp.Device
	wait time.Duration
}

func (s settling) Dial(ctx context.Context, addr string, qp iwarp.QP, p *iwarp.ConnParam) (*iwarp.ConnInfo, error) {
	with := *p
	with.Settle = s.wait
	return s.Device.Dial(ctx, addr, qp, &with)
}

// lost reports whether another connection may be lost, and counts it.
func (c *Clients) lost(err error) bool {
	if !errors.Is(err, rawjob.ErrProtocol) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done.Lost++
	return c.done.Lost <= c.load.Retries
}

// connect connects client i and does a job. The first one finds out which compiler there is.
func (c *Clients) connect(ctx context.Context, i int) error {
	rc, err := rawjob.DialWith(ctx, c.load.Device, c.load.Addr, rawjob.Options{Want: 1, Key: c.load.Key})
	if err != nil {
		return err
	}
	c.clients[i] = rc
	if c.job == nil {
		w, ids, err := rc.Introduced(ctx)
		if err == nil && w.Identifying {
			ids, err = rc.Identified(ctx)
		}
		if err == nil && len(ids) == 0 {
			err = errors.New("the daemon has no compiler")
		}
		if err != nil {
			c.hangUp(i)
			return err
		}
		c.job = newJob(ids[0], c.load.Size)
	}
	if _, err := c.one(ctx, i); err != nil {
		c.hangUp(i)
		return err
	}
	return nil
}

// newJob returns a job of preprocessed text: size bytes, most of them a comment, for an object of about as many. The stand-in
// compiler of the tests makes exactly as many.
func newJob(id unit.ToolchainID, size int) *rawjob.Job {
	text := fmt.Sprintf("/* stand-in: output %d */\nchar data[%d] = {1};\n", size, max(size-1024, 1))
	if pad := size - len(text); pad > len("/**/\n") {
		text += "/*" + strings.Repeat("x", pad-len("/**/\n")) + "*/\n"
	}
	return &rawjob.Job{Toolchain: id, Text: []byte(text), Sink: size + 64<<10, Body: &job.Body{
		Argv0: "gcc", Language: "cpp-output", Name: "a.i", Cwd: "/", Outputs: []unit.Output{{Kind: unit.OutputObject, Name: "a.o"}},
	}}
}

// one does one job for client i.
func (c *Clients) one(ctx context.Context, i int) (time.Duration, error) {
	res, err := c.clients[i].Run(ctx, c.job)
	switch {
	case err != nil:
		return 0, err
	case res.Status != job.StatusRan || res.Exit != 0:
		return 0, fmt.Errorf("the job: %v, %v, exit status %d: %s%s", res.Status, res.Cause, res.Exit, res.Detail, res.Segment(res.Stderr))
	case len(res.Files) != 1 || int(res.Files[0].Len) < min(c.load.Size, 1024)/2:
		return 0, fmt.Errorf("the job has no object: %+v", res.Result)
	}
	return time.Duration(res.CPU) * time.Microsecond, nil
}

// Run does jobs until d has passed and those under way are done: one for each client at least.
func (c *Clients) Run(ctx context.Context, d time.Duration) (Done, error) {
	c.done.Jobs, c.done.Compiler = 0, 0
	begin := time.Now()
	var wg sync.WaitGroup
	errs := make([]error, len(c.clients))
	for i := range c.clients {
		wg.Go(func() { errs[i] = c.run(ctx, i, begin.Add(d)) })
	}
	wg.Wait()
	c.done.Wall = time.Since(begin)
	return c.done, errors.Join(errs...)
}

func (c *Clients) run(ctx context.Context, i int, end time.Time) error {
	for n := 0; n == 0 || time.Now().Before(end); {
		var cpu time.Duration
		var err error
		if c.clients[i] == nil {
			err = c.connect(ctx, i)
		} else {
			cpu, err = c.one(ctx, i)
		}
		if err != nil {
			c.hangUp(i)
			if !c.lost(err) {
				return err
			}
			continue
		}
		n++
		c.mu.Lock()
		c.done.Jobs++
		c.done.Compiler += cpu
		c.mu.Unlock()
	}
	return nil
}
