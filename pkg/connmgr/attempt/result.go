package attempt

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/internal/compress"
	"github.com/rdistcc/rdistcc/internal/digest"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// fetch reads a result that the daemon offers in a window into the sink, and ends the window in any case.
// After an error there is no result, and the link may have ended. When fetch returns, nothing writes to the
// sink any more.
func (a *Attempt) fetch(ctx context.Context) ([]byte, error) {
	l, fl := a.link, a.fl
	w := fl.Result.Window
	mem, err := a.fetchInto(ctx, l, fl, w)
	l.Release(fl)
	return mem, err
}

// takeSink counts n bytes of the sink as large memory, until its last drop.
func (a *Attempt) takeSink(ctx context.Context, n int64) error {
	if a.Sink.TryCount(n) {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, largeWait)
	defer cancel()
	if err := a.Sink.Count(wait, n); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return errNoRoom
	}
	return nil
}

func (a *Attempt) fetchInto(ctx context.Context, l *link.Link, fl *link.Flight, w job.Window) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	n := int64(w.Len)
	if err := a.takeSink(ctx, n); err != nil {
		return nil, err
	}
	mem, err := a.Sink.Extend(n)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoRoom, err)
	}
	mr, err := a.Memory.Register(mem, iwarp.LocalWrite, l.QP())
	if err != nil {
		select {
		case <-l.Dead():
			return nil, l.Err()
		default:
			return nil, fmt.Errorf("%w: %w", errNoRoom, err)
		}
	}
	defer a.Memory.Dereg(mr)
	if err = l.Fetch(ctx, fl, mr); err == nil {
		a.fetched = time.Now()
		a.Metrics.Fetched("result")
	}
	return mem, err
}

// unload unpacks a's result, which is in mem, and compares it with its digest. By now, the host can no longer
// write to it. unload returns where the result is then.
func (a *Attempt) unload(ctx context.Context, r *job.Result, mem []byte) ([]byte, error) {
	end := resultEnd(r)
	if r.Packed != 0 {
		var err error
		if mem, err = a.unpack(ctx, r, mem); err != nil {
			return nil, err
		}
	}
	if r.Digest != ([digest.Size]byte{}) && digest.Sum(mem[:end]) != r.Digest {
		return nil, errDigest
	}
	return mem, nil
}

// unpack replaces the frame at the sink's start by the unpacked result, and returns that.
func (a *Attempt) unpack(ctx context.Context, r *job.Result, mem []byte) ([]byte, error) {
	n, err := compress.Len(mem[:r.Packed])
	if err != nil || n < resultEnd(r) || n > uint64(max(a.Memory.Sizes.Sink, a.Memory.Sizes.Result)) {
		return nil, errDigest
	}
	l := a.Memory.Scratch.Take(ctx, int(r.Packed))
	if l == nil {
		return nil, errNoRoom
	}
	defer l.Give()
	frame := l.Mem[:copy(l.Mem, mem[:r.Packed])]
	to := a.Sink.Bytes()
	if n > uint64(len(to)) {
		if err := a.takeSink(ctx, int64(n)); err != nil {
			return nil, err
		}
		if to, err = a.Sink.Extend(int64(n)); err != nil {
			return nil, fmt.Errorf("%w: %w", errNoRoom, err)
		}
	}
	got, err := compress.Unpack(to[:0:n], frame, n)
	if err != nil {
		return nil, errDigest
	}
	a.Metrics.Packed(len(got), len(frame), "in")
	return got, nil
}

// holds records which outputs of a result the host keeps in its store.
func (a *Attempt) holds(r *job.Result, mem []byte) {
	if a.Known == nil || !a.spares() {
		return
	}
	for _, out := range a.Body.Modules(r, mem) {
		a.Host.Holds.Made(a.link, sha256.Sum256(out), uint64(len(out)))
	}
}

// resultEnd returns how far a result reaches from its start, in bytes.
func resultEnd(r *job.Result) uint64 {
	end := max(r.Stdout.Off+r.Stdout.Len, r.Stderr.Off+r.Stderr.Len)
	for i := range r.Files {
		end = max(end, r.Files[i].Off+r.Files[i].Len)
	}
	return end
}

// resultBytes returns how many bytes a result put into the sink.
func resultBytes(r *job.Result) uint64 {
	n := r.Stdout.Len + r.Stderr.Len
	for i := range r.Files {
		n += r.Files[i].Len
	}
	return n
}

// largeWait is how long a result waits for local memory while the daemon keeps it. It must be well below
// job.WindowTime.
const largeWait = job.WindowTime / 3
