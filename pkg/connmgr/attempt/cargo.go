package attempt

import (
	"context"

	"github.com/rdistcc/rdistcc/internal/compress"
	"github.com/rdistcc/rdistcc/internal/digest"
	"github.com/rdistcc/rdistcc/internal/hostlist"
	"github.com/rdistcc/rdistcc/internal/inputs"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/holdings"
	"github.com/rdistcc/rdistcc/pkg/connmgr/slots"
)

// cargo is a source as it is sent: the bytes themselves, or one zstd frame of them.
type cargo struct {
	mem    []byte // to be registered
	packed uint64 // length of the frame; 0: not packed
	sum    [digest.Size]byte
	zstd   bool // the result may come packed
	lent   *slots.Lent

	plain            []byte // body and text
	bodyLen, textOff uint32
	contents         *holdings.Load // contents that it brings; nil: the job's inputs are not known
	files            uint32         // files whose contents are in it
	text             *slots.Lent    // the memory of plain, if the job's inputs are known
}

// packable is the shortest source or result, in bytes, that is packed. Shorter ones fit in one or two TCP
// segments anyway.
const packable = 4 << 10

// likelyResult is the size, in bytes, that is assumed for a result when deciding whether it should be packed.
const likelyResult = 64 << 10

// load prepares a's source for its link. The caller calls drop once the host can no longer read it.
func (a *Attempt) load(ctx context.Context) (*cargo, error) {
	g := &cargo{plain: a.Text, bodyLen: a.BodyLen, textOff: a.TextOff}
	if a.Known != nil && (a.Text == nil || a.spares()) {
		if err := a.assemble(ctx, g); err != nil {
			g.drop()
			return nil, err
		}
	} else {
		g.files = uint32(len(a.Body.Files))
	}
	g.mem, g.sum = g.plain, digest.Sum(g.plain)
	var source bool
	source, g.zstd = a.packs(len(g.plain))
	if !source {
		return g, nil
	}
	l := a.Memory.Scratch.Take(ctx, compress.Bound(len(g.plain)))
	if l == nil {
		return g, nil
	}
	p, err := compress.Pack(l.Mem[:0], g.plain)
	if err != nil || len(p) > len(g.plain)-len(g.plain)/8 { // the time saved must pay for unpacking
		l.Give()
		return g, nil
	}
	g.lent = l.Fit(len(p))
	g.mem, g.packed = g.lent.Mem[:len(p)], uint64(len(p))
	a.Metrics.Packed(len(g.plain), len(p), "out")
	return g, nil
}

// spares reports whether the host keeps what the job reads, so that contents which it holds need not travel.
func (a *Attempt) spares() bool { return keeps(a.link.Welcome(), a.Known.Sets()) && !a.whole.Load() }

// assemble makes the text of a job whose inputs are known: the files that are its own, and those contents of others that
// the host lacks. A host that keeps no contents gets all, as files of the body.
func (a *Attempt) assemble(ctx context.Context, g *cargo) error {
	set, body := a.Known.Set, *a.Body
	send := set.Files
	var lists [][]byte // lists of files, which follow the contents of send
	sets := a.Known.Sets()
	if held := a.spares(); !held && len(body.Images) > 0 {
		return errNoImages
	} else if held {
		id, _ := sets[0].List()
		contents, err := a.Host.Holds.Need(ctx, a.link, sets...)
		if err != nil {
			return err
		}
		g.contents = contents
		want := make(map[unit.ContentID]bool, len(contents.IDs()))
		for _, id := range contents.IDs() {
			want[id] = true
		}
		body.Dirs, body.Links, body.Lists = nil, nil, []unit.ContentID{id}
		own := a.Known.Own()
		body.Files = body.Files[:len(own)]
		body.Blobs = make([]job.Blob, 0, len(want))
		send = append(make([]*inputs.Input, 0, len(want)+1), own...)
		sent := uint64(0)
		for _, set := range sets {
			for _, f := range set.Files[1:] {
				if want[f.ID] {
					delete(want, f.ID)
					send = append(send, f)
					body.Blobs = append(body.Blobs, job.Blob{ID: f.ID, Len: f.Len})
					sent += f.Len
				}
			}
		}
		for _, set := range sets {
			for s := set; s != nil; s = s.Base() {
				if id, _ := s.List(); want[id] {
					delete(want, id)
					list, abridged := listFor(s, a.Host.Holds.Alike())
					a.abridged = a.abridged || abridged
					lists = append(lists, list)
					body.Blobs = append(body.Blobs, job.Blob{ID: id, Len: uint64(len(list)), Abridged: abridged})
				}
			}
		}
		held := max(listed(sets[0]), sent) - sent
		a.Host.Holds.Spare(held)
		a.Metrics.Carried(sent, held)
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
	if len(enc) > job.MaxBodyLen || int64(total) > a.Memory.Sizes.Source {
		return errTooBig
	}
	if g.text = a.Memory.Texts.Take(ctx, total+1); g.text == nil { // one more, because reading a file looks for its end
		return errTooBig
	}
	b := append(g.text.Mem[:0], enc...)
	for len(b) < int(g.textOff) {
		b = append(b, 0)
	}
	var err error
	for _, f := range send {
		if f == set.Files[0] && a.Known.Source != nil {
			b = append(b, a.Known.Source...)
		} else if b, err = f.Append(b); err != nil {
			return err
		}
	}
	for _, list := range lists {
		b = append(b, list...)
	}
	if g.contents == nil {
		a.Metrics.Carried(listed(sets[0]), 0)
	}
	g.plain, g.files = b, uint32(len(send))
	return nil
}

// listed returns how many bytes the files have that the list of a set names.
func listed(set *inputs.Set) uint64 { return set.Len - set.Files[0].Len }

// keeps reports whether a host's store can hold all contents of sets at once, including those that precompiled headers
// are made of.
func keeps(w *job.Welcome, sets []*inputs.Set) bool {
	n := sets[0].Len
	if len(sets) > 1 {
		n = 0
		seen := make(map[unit.ContentID]bool)
		for _, set := range sets {
			for _, f := range set.Files {
				if !seen[f.ID] {
					seen[f.ID] = true
					n += f.Len
				}
			}
		}
	}
	return w.Store/2 >= n
}

// fewOwn is the least number of system headers for which a list is abridged.
const fewOwn = 4

// listFor returns the list of a set as it travels: abridged if its host is alike this machine and that makes it shorter.
func listFor(s *inputs.Set, alike bool) (list []byte, abridged bool) {
	list = s.AppendList(nil)
	if !alike {
		return list, false
	}
	short, n := s.AppendAbridged(nil)
	if n < fewOwn {
		return list, false
	}
	frame, err := compress.Pack(nil, short)
	if err != nil || len(frame) >= len(list) {
		return list, false
	}
	return frame, true
}

// packs reports whether a source of n bytes and its result are to be packed: as the host list has it, or
// where they are there sooner.
func (a *Attempt) packs(n int) (source, result bool) {
	l := a.link
	if !l.Welcome().Zstd {
		return false, false
	}
	long := n >= packable
	switch a.Compress[a.Host.Addr] {
	case hostlist.CompressZstd:
		return long, true
	case hostlist.CompressPlain:
		return false, false
	}
	source, result = l.Packing(uint64(n), likelyResult)
	return long && source, result
}

// drop releases the cargo's memory.
func (g *cargo) drop() {
	g.lent.Give()
	g.text.Give()
	g.contents.End(false) // unless it has been ended already
}
