package connmgr

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdistcc/rdistcc/pkg/connmgr/holdings"
	"github.com/rdistcc/rdistcc/pkg/connmgr/slots"
	"github.com/rdistcc/rdistcc/pkg/digest"
	"github.com/rdistcc/rdistcc/pkg/hostlist"
	"github.com/rdistcc/rdistcc/pkg/inputs"
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
	lent   *slots.Lent

	plain            []byte // body and text
	bodyLen, textOff uint32
	contents         *holdings.Load // that it brings; nil: of a job whose inputs are not known
	files            uint32         // whose contents are in it
	text             *slots.Lent    // of a job whose inputs are known: plain's memory
}

// Sources and results that are shorter than packable bytes go in a segment or two of
// TCP anyway.
const packable = 4 << 10

// likelyResult is the length that results are taken to have when it is decided
// whether they are packed, in bytes.
const likelyResult = 64 << 10

// load makes a's source ready to travel over its link. drop it when the host can
// read it no more.
func (a *attempt) load(ctx context.Context) (*cargo, error) {
	g := &cargo{plain: a.text, bodyLen: a.bodyLen, textOff: a.textOff}
	if a.known != nil {
		if err := a.assemble(ctx, g); err != nil {
			g.drop()
			return nil, err
		}
	} else {
		g.files = uint32(len(a.body.Files))
	}
	g.mem, g.sum = g.plain, digest.Sum(g.plain)
	var source bool
	source, g.zstd = a.packs(len(g.plain))
	if !source {
		return g, nil
	}
	l := a.m.memory.Scratch.Take(ctx, pack.Bound(len(g.plain)))
	if l == nil {
		return g, nil
	}
	p, err := pack.Pack(l.Mem[:0], g.plain)
	if err != nil || len(p) > len(g.plain)-len(g.plain)/8 { // what is saved has to pay for unpacking
		l.Give()
		return g, nil
	}
	g.lent = l.Fit(len(p))
	g.mem, g.packed = g.lent.Mem[:len(p)], uint64(len(p))
	a.m.metrics.Packed(len(g.plain), len(p), "out")
	return g, nil
}

// assemble makes the text of a job whose inputs are known: the source, and of the other
// files the contents that the host has not yet. A host that keeps none gets all, as files of the body.
func (a *attempt) assemble(ctx context.Context, g *cargo) error {
	set, body := a.known.Set, *a.body
	w := a.link.Welcome()
	send := set.Files
	var lists [][]byte // of files, which come behind the contents of send
	if w.Store/2 >= set.Len && !a.whole.Load() {
		id, _ := set.List()
		contents, err := a.at.Holds.Need(ctx, a.link, set)
		if err != nil {
			return err
		}
		g.contents = contents
		want := make(map[job.ContentID]bool, len(contents.IDs()))
		for _, id := range contents.IDs() {
			want[id] = true
		}
		body.Dirs, body.Links, body.Lists = nil, nil, []job.ContentID{id}
		body.Files = body.Files[:1]
		body.Blobs = make([]job.Blob, 0, len(want))
		send = append(make([]*inputs.Input, 0, len(want)+1), set.Files[0])
		sent := uint64(0)
		for _, f := range set.Files[1:] {
			if want[f.ID] {
				delete(want, f.ID)
				send = append(send, f)
				body.Blobs = append(body.Blobs, job.Blob{ID: f.ID, Len: f.Len})
				sent += f.Len
			}
		}
		for s := set; s != nil; s = s.Base() {
			if id, _ := s.List(); want[id] {
				list, abridged := listFor(s, a.at.Holds.Alike())
				a.abridged = a.abridged || abridged
				lists = append(lists, list)
				body.Blobs = append(body.Blobs, job.Blob{ID: id, Len: uint64(len(list)), Abridged: abridged})
			}
		}
		held := set.Len - set.Files[0].Len - sent
		a.at.Holds.Spare(held)
		a.m.metrics.Carried(sent, held)
	}
	enc := body.Append(nil)
	total := job.TextOffset(len(enc))
	g.bodyLen, g.textOff = uint32(len(enc)), uint32(total)
	for _, f := range send {
		total += int(f.Len)
	}
	for _, list := range lists {
		total += len(list)
	}
	if len(enc) > job.MaxBodyLen || int64(total) > a.m.o.Source {
		return errTooBig
	}
	if g.text = a.m.memory.Texts.Take(ctx, total+1); g.text == nil { // one more: reading looks for the end
		return errTooBig
	}
	b := append(g.text.Mem[:0], enc...)
	for len(b) < int(g.textOff) {
		b = append(b, 0)
	}
	var err error
	for i, f := range send {
		if i == 0 && a.known.Source != nil {
			b = append(b, a.known.Source...)
		} else if b, err = f.Append(b); err != nil {
			return err
		}
	}
	for _, list := range lists {
		b = append(b, list...)
	}
	if g.contents == nil {
		a.m.metrics.Carried(set.Len-set.Files[0].Len, 0)
	}
	g.plain, g.files = b, uint32(len(send))
	return nil
}

// fewOwn is how many system's headers a list has at least for it to be abridged.
const fewOwn = 4

// listFor is the list of a set as it travels: abridged if its host is alike this machine and that makes it shorter.
func listFor(s *inputs.Set, alike bool) (list []byte, abridged bool) {
	list = s.AppendList(nil)
	if !alike {
		return list, false
	}
	short, n := s.AppendAbridged(nil)
	if n < fewOwn {
		return list, false
	}
	frame, err := pack.Pack(nil, short)
	if err != nil || len(frame) >= len(list) {
		return list, false
	}
	return frame, true
}

// errTooBig: a job is larger than any that is sent.
var errTooBig = errors.New("the source and what it reads are too big")

// packs says whether a source of n bytes and its result are to be packed: as the host list has it, or
// where they are there sooner.
func (a *attempt) packs(n int) (source, result bool) {
	l := a.link
	if !l.Welcome().Zstd {
		return false, false
	}
	long := n >= packable
	switch a.compress[a.at.Addr] {
	case hostlist.CompressZstd:
		return long, true
	case hostlist.CompressPlain:
		return false, false
	}
	source, result = l.Packing(uint64(n), likelyResult)
	return long && source, result
}

// drop ends the cargo's memory.
func (g *cargo) drop() {
	g.lent.Give()
	g.text.Give()
	g.contents.End(false) // if nothing better was said
}

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
	l := a.m.memory.Scratch.Take(ctx, int(r.Packed))
	if l == nil {
		return nil, errNoRoom
	}
	defer l.Give()
	frame := l.Mem[:copy(l.Mem, mem[:r.Packed])]
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
	a.m.metrics.Packed(len(got), len(frame), "in")
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
