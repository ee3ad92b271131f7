package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc/ipcserver"
	"github.com/rdistcc/rdistcc/pkg/driver/recipes"
	"github.com/rdistcc/rdistcc/pkg/job"
)

// testManager is a manager without a farm: it compiles a job itself, with the
// compiler that the lease names, from nothing but the slot.
type testManager struct {
	t   *testing.T
	dir string // RDISTCC_DIR
	l   *ipcserver.Listener
	wg  sync.WaitGroup

	// set before use
	slotSize int64
	onLease  func(*ipc.Lease) *ipc.GoLocal                 // not nil: no slot
	onSubmit func(*ipc.Submit) (*ipc.Result, *ipc.GoLocal) // not nil: in place of a compile
	hang     chan struct{}                                 // not nil: a Submit has no answer; closed when the wrapper has gone
	die      bool                                          // ends the connection in place of an answer to Submit

	mu       sync.Mutex
	leases   []ipc.Lease
	submits  []ipc.Submit
	locals   []ipc.Local
	finishes []ipc.Finish
	bodies   []*job.Body
	lost     int // connections that ended without Finish

	driver string // give leases the recipe of their preprocessor, by this gcc
}

// recipe is what the lease's preprocessor would run.
func (m *testManager) recipe(l *ipc.Lease) []string {
	if m.driver == "" || len(l.Preprocess) == 0 {
		return nil
	}
	r, err := recipes.Expand(context.Background(), m.driver, l.Preprocess, os.Environ(), l.Cwd)
	m.check(err)
	return r.Words(0)
}

func newTestManager(t *testing.T) *testManager {
	t.Helper()
	m := &testManager{t: t, dir: filepath.Join(t.TempDir(), "state"), slotSize: 8 << 20}
	if err := ipcserver.MakeDir(m.dir); err != nil {
		t.Fatal(err)
	}
	var err error
	m.l, err = ipcserver.Listen(filepath.Join(m.dir, ipc.SocketName), false)
	if err != nil {
		t.Fatal(err)
	}
	m.wg.Go(func() {
		for {
			c, err := m.l.AcceptConn()
			if err != nil {
				return
			}
			m.wg.Go(func() { m.serve(c) })
		}
	})
	t.Cleanup(func() {
		m.l.Close()
		m.wg.Wait()
	})
	return m
}

// wait returns when all commands that have connected are done with.
func (m *testManager) wait() {
	m.l.Close()
	m.wg.Wait()
}

func (m *testManager) serve(c *ipcserver.Conn) {
	defer c.Close()
	var lease ipc.Lease
	var source, sink *os.File
	for {
		k, fields, err := c.Recv()
		if err != nil {
			m.mu.Lock()
			m.lost++
			m.mu.Unlock()
			return
		}
		switch k {
		case ipc.KindLease:
			m.check(lease.Parse(fields))
			m.mu.Lock()
			m.leases = append(m.leases, lease)
			m.mu.Unlock()
			if m.onLease != nil {
				if no := m.onLease(&lease); no != nil {
					m.check(c.Send(no.Append(nil)))
					continue
				}
			}
			source, sink = m.memfd("source", m.slotSize), m.memfd("sink", 64<<20)
			defer source.Close()
			defer sink.Close()
			w := m.reopen(source, os.O_RDWR)
			r := m.reopen(sink, os.O_RDONLY)
			m.check(c.Send((&ipc.Leased{Job: 1, SourceMax: uint64(m.slotSize), Family: "gcc", Major: 12, Direct: m.recipe(&lease)}).Append(nil), int(w.Fd()), int(r.Fd())))
			w.Close()
			r.Close()
		case ipc.KindSubmit:
			var s ipc.Submit
			m.check(s.Parse(fields))
			m.mu.Lock()
			m.submits = append(m.submits, s)
			m.mu.Unlock()
			if m.die {
				return
			}
			if m.hang != nil {
				_, _, err := c.Recv() // comes back when the wrapper is gone
				if err == nil {
					m.t.Error("a frame in place of an answer")
				}
				close(m.hang)
				return
			}
			var res *ipc.Result
			var no *ipc.GoLocal
			if m.onSubmit != nil {
				res, no = m.onSubmit(&s)
			}
			if no != nil {
				m.check(c.Send(no.Append(nil)))
				continue
			}
			if res == nil {
				res = m.compile(&lease, &s, source, sink)
			}
			m.check(c.Send(res.Append(nil)))
		case ipc.KindLocal:
			var l ipc.Local
			m.check(l.Parse(fields))
			m.mu.Lock()
			m.locals = append(m.locals, l)
			m.mu.Unlock()
			if l.Gate != ipc.GateNone {
				m.check(c.Send(ipc.AppendBare(nil, ipc.KindGo)))
			}
		case ipc.KindFinish:
			var f ipc.Finish
			m.check(f.Parse(fields))
			m.mu.Lock()
			m.finishes = append(m.finishes, f)
			m.mu.Unlock()
			return
		}
	}
}

func (m *testManager) check(err error) {
	if err != nil {
		m.t.Error(err)
	}
}

// memfd is a slot as a manager makes them: sealed in its size.
func (m *testManager) memfd(name string, size int64) *os.File {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	m.check(err)
	m.check(unix.Ftruncate(fd, size))
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
	m.check(err)
	return os.NewFile(uintptr(fd), name)
}

func (m *testManager) reopen(f *os.File, flag int) *os.File {
	n, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), flag, 0)
	m.check(err)
	return n
}

func (m *testManager) compile(lease *ipc.Lease, s *ipc.Submit, source, sink *os.File) *ipc.Result {
	dir := m.t.TempDir()
	slot := make([]byte, uint64(s.TextOff)+s.TextLen)
	_, err := source.ReadAt(slot, 0)
	m.check(err)
	body, err := job.ParseBody(slot[:s.BodyLen])
	if err != nil {
		m.t.Error(err)
		return &ipc.Result{Exit: 1}
	}
	m.mu.Lock()
	m.bodies = append(m.bodies, body)
	m.mu.Unlock()
	text := filepath.Join(dir, body.Name)
	m.check(os.WriteFile(text, slot[s.TextOff:], 0o600))
	mode := "-c"
	if body.Outputs[0].Kind == job.OutputAssembly {
		mode = "-S"
	}
	outputs := map[string]int{filepath.Join(dir, "out.o"): 0}
	args := append(append([]string{}, body.Args...), mode, "-x", body.Language, text, "-o", filepath.Join(dir, "out.o"))
	cmd := exec.Command(lease.Compiler, args...)
	cmd.Env, cmd.Dir = append(os.Environ(), body.Env...), dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run() // its status is in the result
	res := &ipc.Result{Host: "farm:7632", Exit: uint8(cmd.ProcessState.ExitCode()), Attempts: 1, CompileUS: 1000, BytesOut: uint64(len(slot))}
	var off int64
	put := func(b []byte) ipc.Segment {
		_, err := sink.WriteAt(b, off)
		m.check(err)
		seg := ipc.Segment{Off: uint64(off), Len: uint64(len(b))}
		off += int64(len(b))
		return seg
	}
	res.Stdout, res.Stderr = put(stdout.Bytes()), put(stderr.Bytes())
	for name, i := range outputs {
		if b, err := os.ReadFile(name); err == nil {
			res.Files = append(res.Files, ipc.File{Index: uint8(i), Segment: put(b)})
		}
	}
	res.BytesIn = uint64(off)
	return res
}
