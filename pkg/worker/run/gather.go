package run

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/job"
)

// segmentAlign is where segments of a result start, in bytes.
const segmentAlign = 64

// gathering is a result under construction: its parts in their places, and how
// each is to be filled.
type gathering struct {
	n     uint64 // bytes
	parts []part
	files []int // descriptors
}

type part struct {
	off, end uint64
	fill     func(to []byte) error
}

func (g *gathering) close() {
	for _, fd := range g.files {
		unix.Close(fd)
	}
}

// add places a segment of n bytes.
func (g *gathering) add(n uint64, seg *job.Segment, fill func(to []byte) error) {
	if n == 0 {
		return
	}
	off := (g.n + segmentAlign - 1) &^ (segmentAlign - 1)
	seg.Off, seg.Len = off, n
	g.n = off + n
	g.parts = append(g.parts, part{off, g.n, fill})
}

// fill writes all segments into mem; what lies between them is zero, as old
// content is nobody's business.
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

// addFile places the content of a file of n bytes, and takes the descriptor.
func (g *gathering) addFile(fd int, n uint64, name string, f job.File, res *job.Result) {
	g.files = append(g.files, fd)
	res.Files = append(res.Files, f)
	i := len(res.Files) - 1
	g.add(n, &res.Files[i].Segment, func(to []byte) error { return readAll(fd, to, name) })
}

// readAll fills to from a file that is that long.
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
