package files

import (
	"cmp"
	"crypto/sha256"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/internal/wire"
)

// Identity returns a sum of what a job consists of, apart from its toolchain: its command, and all files, directories
// and links that it can see. It does not depend on how they came here: in which lists, or in which order. Like the
// name of a result, it depends on times of files only as far as files with the same content have the same one: gcc
// takes these for one file.
func (in *Set) Identity() [sha256.Size]byte {
	b := *in.Body
	b.Files, b.Dirs, b.Links, b.Blobs, b.Lists = nil, nil, nil, nil, nil
	b.Env = slices.Clone(b.Env)
	slices.SortStableFunc(b.Env, func(x, y string) int {
		x, _, _ = strings.Cut(x, "=")
		y, _, _ = strings.Cut(y, "=")
		return cmp.Compare(x, y)
	})
	sum := b.Append(make([]byte, 0, 4<<10))

	files := in.Body.Files
	order := make([]int, len(files))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(files[i].Name, files[j].Name) })
	type twin struct {
		id    unit.ContentID
		mtime int64
	}
	twins := make(map[twin]uint32, len(files))
	for n, i := range order {
		f := &files[i]
		sum = wire.AppendBool(wire.AppendString(sum, f.Name), f.Exec)
		if f.Same != 0 {
			sum = wire.AppendString(append(sum, 1), files[f.Same-1].Name)
			continue
		}
		id := in.content(i)
		sum = append(append(sum, 0), id[:]...)
		tw := twin{id, f.MTime}
		sum = wire.AppendUint32(sum, twins[tw])
		if twins[tw] == 0 {
			twins[tw] = uint32(n + 1)
		}
	}
	sum = wire.AppendUint32(sum, uint32(len(files)))
	sum = wire.AppendStrings(sum, slices.Compact(slices.Sorted(slices.Values(in.Body.Dirs))))
	links := slices.Clone(in.Body.Links)
	slices.SortFunc(links, func(x, y unit.Link) int { return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.Target, y.Target)) })
	for _, l := range slices.Compact(links) {
		sum = wire.AppendString(wire.AppendString(sum, l.Name), l.Target)
	}
	return sha256.Sum256(sum)
}

// content returns the ID of the content of file i.
func (in *Set) content(i int) unit.ContentID {
	if i >= in.FirstListed() {
		return in.ID(i)
	}
	return sha256.Sum256(in.Text[i])
}
