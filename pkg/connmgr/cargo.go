package connmgr

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdistcc/rdistcc/pkg/digest"
	"github.com/rdistcc/rdistcc/pkg/hostlist"
	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/pack"
)

// cargo is a source as it travels: the slot's own bytes, placed as they are, or one
// zstd frame of them.
type cargo struct {
	mem    []byte // to be registered
	packed uint64 // its length as a frame, or 0
	sum    [digest.Size]byte
	zstd   bool // the result may come packed
	lent   *lent
}

// Sources and results that are shorter than packable bytes go in a segment or two of
// TCP anyway.
const packable = 4 << 10

// likelyResult is the length that results are taken to have when it is decided
// whether they are packed, in bytes.
const likelyResult = 64 << 10

// load makes a's source ready to travel over its link. drop it when the host can
// read it no more.
func (a *attempt) load(ctx context.Context) *cargo {
	g := &cargo{mem: a.text, sum: digest.Sum(a.text)}
	var source bool
	source, g.zstd = a.packs()
	if !source {
		return g
	}
	l := a.m.scratch.take(ctx, pack.Bound(len(a.text)))
	if l == nil {
		return g
	}
	p, err := pack.Pack(l.mem[:0], a.text)
	if err != nil || len(p) > len(a.text)-len(a.text)/8 { // what is saved has to pay for unpacking
		l.give()
		return g
	}
	g.lent = l.fit(len(p))
	g.mem, g.packed = g.lent.mem[:len(p)], uint64(len(p))
	a.m.metrics.packed(len(a.text), len(p), "out")
	return g
}

// packs says whether source and result are to be packed: as the host list has it, or
// where they are there sooner.
func (a *attempt) packs() (source, result bool) {
	l := a.link
	if !l.Welcome().Zstd {
		return false, false
	}
	long := len(a.text) >= packable
	switch a.compress[a.at.addr] {
	case hostlist.CompressZstd:
		return long, true
	case hostlist.CompressPlain:
		return false, false
	}
	source, result = l.Packing(uint64(len(a.text)), likelyResult)
	return long && source, result
}

// drop ends the cargo's memory.
func (g *cargo) drop() { g.lent.give() }

// errDigest: what came is not what the host made.
var errDigest = errors.New("the result is not the one that it sent: its digest differs")

// unload makes a's result, which lies in mem, plain and holds it against its digest.
// By now the host cannot write it any more. It returns where it is then.
func (a *attempt) unload(ctx context.Context, r *job.Result, mem []byte) ([]byte, error) {
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

// unpack puts a result in the place of its frame, at the sink's start.
func (a *attempt) unpack(ctx context.Context, r *job.Result, mem []byte) ([]byte, error) {
	n, err := pack.Len(mem[:r.Packed])
	if err != nil || n < resultEnd(r) || n > uint64(max(a.m.o.SinkSize, a.m.o.Result)) {
		return nil, errDigest
	}
	l := a.m.scratch.take(ctx, int(r.Packed))
	if l == nil {
		return nil, errNoRoom
	}
	defer l.give()
	frame := l.mem[:copy(l.mem, mem[:r.Packed])]
	to := a.sink.Bytes()
	if n > uint64(len(to)) {
		if err := a.takeSink(ctx, int64(n)); err != nil {
			return nil, err
		}
		if to, err = a.sink.Extend(int64(n)); err != nil {
			return nil, fmt.Errorf("%w: %w", errNoRoom, err)
		}
	}
	got, err := pack.Unpack(to[:0:n], frame, n)
	if err != nil {
		return nil, errDigest
	}
	a.m.metrics.packed(len(got), len(frame), "in")
	return got, nil
}

// resultEnd is how far a result reaches from its start, in bytes.
func resultEnd(r *job.Result) uint64 {
	end := max(r.Stdout.Off+r.Stdout.Len, r.Stderr.Off+r.Stderr.Len)
	for i := range r.Files {
		end = max(end, r.Files[i].Off+r.Files[i].Len)
	}
	return end
}
