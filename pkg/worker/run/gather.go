package run

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/job"
)

// segmentAlign is the alignment of a result's segments, in bytes.
const segmentAlign = 64

// gathering is a result under construction: where each part goes, and how to fill it.
type gathering struct {
	dense bool   // without gaps between segments: they are outputs of a resultcache.Raw
	n     uint64 // bytes so far
	parts []part // in ascending order, not overlapping
	files []int  // descriptors that close closes
}

// part is one segment: bytes off to end of the result.
type part struct {
	off, end uint64
	fill     func(to []byte) error
}

func (g *gathering) close() {
	for _, fd := range g.files {
		unix.Close(fd)
	}
}

// add reserves room for a segment of n bytes and sets seg to where it is. An empty segment takes no room.
func (g *gathering) add(n uint64, seg *job.Segment, fill func(to []byte) error) {
	if n == 0 {
		return
	}
	off := g.n
	if !g.dense {
		off = (g.n + segmentAlign - 1) &^ (segmentAlign - 1)
	}
	seg.Off, seg.Len = off, n
	g.n = off + n
	g.parts = append(g.parts, part{off, g.n, fill})
}

// fill writes all segments into mem. It zeroes what lies between them, so that no old content leaks to the
// client.
func (g *gathering) fill(mem []byte) error {
	var at uint64
	for _, p := range g.parts {
		clear(mem[at:p.off])
		if err := p.fill(mem[p.off:p.end]); err != nil {
			return err
		}
		at = p.end
	}
	return nil
}

// addFile adds a file of n bytes to the result and reserves room for its content. It takes ownership of fd.
func (g *gathering) addFile(fd int, n uint64, name string, f job.File, res *job.Result) {
	g.files = append(g.files, fd)
	res.Files = append(res.Files, f)
	i := len(res.Files) - 1
	g.add(n, &res.Files[i].Segment, func(to []byte) error { return readAll(fd, to, name) })
}

// addBytes adds a file to the result that has a content in memory.
func (g *gathering) addBytes(b []byte, f job.File, res *job.Result) {
	res.Files = append(res.Files, f)
	i := len(res.Files) - 1
	g.add(uint64(len(b)), &res.Files[i].Segment, func(to []byte) error { copy(to, b); return nil })
}

// readAll fills to from fd. A file that is shorter is an error. path is for error messages.
func readAll(fd int, to []byte, path string) error {
	for len(to) > 0 {
		n, err := unix.Read(fd, to)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return &os.PathError{Op: "read", Path: path, Err: errors.Join(io.ErrUnexpectedEOF, err)}
		}
		to = to[n:]
	}
	return nil
}
