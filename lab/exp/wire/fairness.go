package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/lab/exp"
	"github.com/rdistcc/rdistcc/lab/exp/end"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// How a large transfer shares the connection of small messages.
const (
	without  = "without"   // there is none
	whole    = "whole"     // one Write for all of it, on the same QP
	inPieces = "in-pieces" // Writes of a piece, two at a time, on the same QP: as the manager does
	ownQP    = "own-qp"    // whole, on a QP of its own
)

const (
	largeTransfer = 32 << 20  // bytes
	largePiece    = 256 << 10 // bytes; the manager's Writes before it knows the rate of the network
	piecesPosted  = 2
	smallMessage  = 1024 // bytes
	unsentInPiece = 128 << 10
)

// Fairness is E14: one large transfer beside many small messages.
var Fairness = &exp.Experiment{
	ID: "E14", Name: "fairness",
	Question: "How long do small messages take that share few QPs with a large transfer?",
	Axes: func(z exp.Size) []exp.Axis {
		return []exp.Axis{
			{Name: "large", Levels: []string{without, whole, inPieces, ownQP}},
			{Name: "jobs", Levels: exp.Pick(z, exp.Numbers(1), exp.Numbers(1, 8, 64), exp.Numbers(1, 4, 16, 64, 256))},
		}
	},
	Rounds: func(z exp.Size) int { return exp.Pick(z, 1, 9, 25) },
	Metrics: []exp.Metric{
		{Name: "p50", Unit: "us", What: "round trip of 1 KiB, median"},
		{Name: "p99", Unit: "us", What: "round trip of 1 KiB, 99th percentile"},
		{Name: "rate", Unit: "Gb/s", What: "rate of the large transfer meanwhile"},
	},
	Prepare: func(_ context.Context, s *exp.Setting) (exp.Bench, error) {
		srv, err := startServer(nil)
		return &fairness{srv, exp.Pick(s.Size, 2*time.Millisecond, 150*time.Millisecond, 500*time.Millisecond),
			exp.Pick(s.Size, 1<<20, largeTransfer, largeTransfer)}, err
	},
	Views: []exp.View{
		{Title: "Small messages beside a large transfer, 99th percentile", Metric: "p99", X: "jobs", Lines: []string{"large"}},
		{Title: "Small messages beside a large transfer, median", Metric: "p50", X: "jobs", Lines: []string{"large"}, Table: true, Aside: true},
		{Title: "The large transfer", Metric: "rate", X: "jobs", Lines: []string{"large"}, Table: true},
	},
	Claims: []exp.Predicate{
		{Claim: "a transfer that is posted whole holds up small messages on its QP: p99 is more than five times that of one in pieces", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return eachJobs(r, func(n string) exp.Verdict {
				return r.Less(shared(inPieces, n), shared(whole, n), "p99", 0.2)
			})
		}},
		{Claim: "in pieces there is no head-of-line blocking: p99 is within three times that on a QP of its own", Says: "expected [I]", Judge: func(r *exp.Results) exp.Verdict {
			return eachJobs(r, func(n string) exp.Verdict {
				return r.Less(shared(inPieces, n), shared(ownQP, n), "p99", 3)
			})
		}},
		{Claim: "pieces cost the large transfer less than a quarter of its rate", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return eachJobs(r, func(n string) exp.Verdict {
				return r.Less(shared(whole, n), shared(inPieces, n), "rate", 1.33)
			})
		}},
	},
	Defaults: []exp.Default{
		{What: "a source is written in pieces of 64 KiB to 1 MiB, 256 KiB at first, two at a time", Where: "pkg/connmgr/link/turns.go"},
	},
}

func eachJobs(r *exp.Results, judge func(string) exp.Verdict) exp.Verdict {
	return r.Along("jobs", 1, 1<<20, judge)
}

// shared returns a cell of Fairness.
func shared(large, jobs string) exp.Cell { return exp.Cell{"large": large, "jobs": jobs} }

type fairness struct {
	*server
	d    time.Duration
	size int // of the large transfer
}

func (f *fairness) Measure(ctx context.Context, c exp.Cell) (exp.Values, error) {
	jobs := c.Number("jobs")
	h := &hello{Echo: true, Op: opReflect, Size: smallMessage}
	small, err := f.connect(ctx, h, jobs, c["large"] == inPieces)
	if err != nil {
		return nil, err
	}
	defer small.Close()
	behind := small
	if c["large"] == ownQP {
		if behind, err = f.connect(ctx, h, 1, false); err != nil {
			return nil, err
		}
		defer behind.Close()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := newMux(small, jobs)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { m.route(ctx) })
	l := large{e: behind, size: f.size, piece: f.size}
	if c["large"] == inPieces {
		l.piece = min(largePiece, f.size)
	}
	if c["large"] != without {
		if err := l.begin(); err != nil {
			return nil, err
		}
		wg.Go(func() { l.run(ctx) })
	}
	us, err := m.trips(ctx, f.d)
	if err != nil {
		return nil, err
	}
	v := exp.Values{"p50": exp.Quantile(us, 0.5), "p99": exp.Quantile(us, 0.99)}
	if c["large"] != without {
		cancel()
		wg.Wait()
		if l.err != nil {
			return nil, l.err
		}
		v["rate"] = float64(l.moved) * 8 / float64(l.took.Nanoseconds())
	}
	return v, nil
}

// connect connects an end with room for jobs messages and a window for the large transfer.
func (f *fairness) connect(ctx context.Context, h *hello, jobs int, bounded bool) (*end.End, error) {
	g := *h
	g.Recvs, g.Window = jobs, f.size
	o := g.options(iwarp.Waiting{})
	o.Sends, o.Recvs, o.RecvLen = 4*jobs+16, jobs+2, h.Size // an answer can come before its request has left the queue
	if bounded {                                            // what is posted later waits behind what the socket has taken
		o.Conn.Unsent = unsentInPiece
	}
	return f.dialWith(ctx, &g, o)
}

// mux lets many jobs send messages on one end. Each has at most one under way.
type mux struct {
	e       *end.End
	answers []chan error
}

func newMux(e *end.End, jobs int) *mux {
	m := &mux{e: e, answers: make([]chan error, jobs)}
	for i := range m.answers {
		m.answers[i] = make(chan error, 1)
	}
	return m
}

// route gives each answer to its job until ctx ends.
func (m *mux) route(ctx context.Context) {
	for {
		b, err := m.e.Receive(ctx)
		if err != nil {
			for _, c := range m.answers {
				select {
				case c <- err:
				default:
				}
			}
			return
		}
		m.answers[binary.BigEndian.Uint32(b)] <- nil
	}
}

// trips makes round trips in all jobs for a time: in microseconds.
func (m *mux) trips(ctx context.Context, d time.Duration) (us []float64, err error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	stop := time.Now().Add(d)
	for i := range m.answers {
		wg.Go(func() {
			own, e := m.job(ctx, i, stop)
			mu.Lock()
			defer mu.Unlock()
			us, err = append(us, own...), errors.Join(err, e)
		})
	}
	wg.Wait()
	return us, err
}

// job makes round trips for one job, at least one.
func (m *mux) job(ctx context.Context, i int, stop time.Time) (us []float64, err error) {
	b := end.Filled(smallMessage)
	binary.BigEndian.PutUint32(b, uint32(i))
	wr := &iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Inline | iwarp.Unsignaled, Data: b}
	for time.Now().Before(stop) || len(us) == 0 {
		start := time.Now()
		if err := m.e.QP.PostSend(wr); err != nil {
			return us, fmt.Errorf("job %d: %w", i, err)
		}
		select {
		case err = <-m.answers[i]:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			return us, err
		}
		us = append(us, float64(time.Since(start).Nanoseconds())/1e3)
	}
	return us, nil
}

// large writes the same transfer again and again.
type large struct {
	e           *end.End
	size, piece int
	at          int // bytes of the current transfer that are posted
	posted      []int
	moved       int64 // bytes whose Writes have completed
	took        time.Duration
	err         error
	start       time.Time
}

// begin posts the first Writes, so that all small messages come behind them.
func (l *large) begin() error {
	l.start = time.Now()
	for range piecesPosted {
		if err := l.post(); err != nil {
			return err
		}
	}
	return nil
}

func (l *large) post() error {
	n := min(l.piece, l.size-l.at)
	wr := &iwarp.SendWR{Op: iwarp.OpWrite, SGL: l.e.Part(l.at, n), STag: l.e.Peer, TO: l.e.PeerTO + uint64(l.at)}
	if err := l.e.QP.PostSend(wr); err != nil {
		return err
	}
	l.posted = append(l.posted, n)
	l.at = (l.at + n) % l.size
	return nil
}

// run posts a Write for each that completes, until ctx ends.
func (l *large) run(ctx context.Context) {
	var wcs [piecesPosted]iwarp.WC
	for ctx.Err() == nil && l.err == nil {
		n, err := end.Next(ctx, l.e.SCQ, wcs[:])
		if err != nil {
			break // ctx has ended
		}
		for _, wc := range wcs[:n] {
			if wc.Status != iwarp.StatusSuccess {
				l.err = fmt.Errorf("large transfer: %v", wc.Status)
				break
			}
			l.moved += int64(l.posted[0])
			l.posted = l.posted[1:]
			if l.err = l.post(); l.err != nil {
				break
			}
		}
	}
	l.took = time.Since(l.start)
}
