package worker

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// newBoard makes a board for c. It returns nil if the client cannot read one, or if the board could not
// safely change during a Read: kernel siw checksums a page before it sends it, so a change in between would
// break the connection's CRC.
func (c *conn) newBoard() (*board, error) {
	if !c.peerReads || !c.s.o.Device.Attr().Guard {
		return nil, nil
	}
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("map the load board: %w", err)
	}
	b := &board{page: page}
	b.mr, err = c.pd.RegMR(page[:job.BoardLen], iwarp.RemoteRead, &iwarp.MROptions{QP: c.qp, Guard: &b.mu})
	if err != nil {
		_ = unix.Munmap(page) // ours and whole: cannot fail
		return nil, fmt.Errorf("register the load board: %w", err)
	}
	return b, nil
}

// openBoardLocked makes the board when the client introduces itself, and writes the current state to it.
func (c *conn) openBoardLocked() (err error) {
	if c.board, err = c.newBoard(); err == nil {
		c.s.publishLocked()
	}
	return err
}

// window returns the window through which the client reads the board. It is zero for a nil board.
func (b *board) window() job.Window {
	if b == nil {
		return job.Window{}
	}
	return job.Window{STag: uint32(b.mr.STag()), TO: b.mr.Base(), Len: job.BoardLen}
}

func (b *board) write(content []byte) {
	b.mu.Lock()
	copy(b.page, content)
	b.mu.Unlock()
}

// free frees the board, after the QP has ended. It does nothing for a nil board.
func (b *board) free() error {
	if b == nil {
		return nil
	}
	return errors.Join(b.mr.Dereg(), unix.Munmap(b.page))
}

// publishLocked writes the current state to all boards. It takes a few hundred nanoseconds and a copy per
// client.
func (s *Server) publishLocked() {
	any := false
	for c := range s.conns {
		any = any || c.board != nil
	}
	if !any {
		return
	}
	s.page.seq++
	b := job.Board{
		Seq: s.page.seq, Uptime: uint64(time.Since(s.started).Milliseconds()),
		Load: s.loadLocked(), Pressure: s.load.Load().pressure, Speeds: s.page.speeds,
	}
	s.page.buf = b.Append(s.page.buf[:0])
	for c := range s.conns {
		if c.board != nil {
			c.board.write(s.page.buf)
		}
	}
}

// keptSpeeds is how many toolchains have a speed: those used most recently.
const keptSpeeds = 8

// timedLocked learns from a compile how fast a toolchain is on this host, as a moving average. It moves the
// toolchain to the front of the list.
func (s *Server) timedLocked(id unit.ToolchainID, text uint64, cpu time.Duration) {
	if cpu <= 0 {
		return
	}
	rate := min(float64(text)/1024/cpu.Seconds(), 1<<31)
	i := slices.IndexFunc(s.page.speeds, func(x job.Speed) bool { return x.Toolchain == id })
	if i < 0 {
		i = len(s.page.speeds)
		s.page.speeds = append(s.page.speeds, job.Speed{Toolchain: id, Rate: uint32(rate)})
	}
	x := s.page.speeds[i]
	x.Rate = uint32(float64(x.Rate) + (rate-float64(x.Rate))/8)
	s.page.speeds = slices.Insert(slices.Delete(s.page.speeds, i, i+1), 0, x)
	s.page.speeds = s.page.speeds[:min(len(s.page.speeds), keptSpeeds)]
}
