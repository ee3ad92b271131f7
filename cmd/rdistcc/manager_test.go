package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/driver/recipes"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc/ipcserver"
	"github.com/rdistcc/rdistcc/pkg/connmgr/plain"
	"github.com/rdistcc/rdistcc/pkg/connmgr/typed"
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
	gone     sync.Once                                     // closes hang

	mu       sync.Mutex
	die      int // so many Submits are answered by the connection's end
	leases   []ipc.Lease
	submits  []ipc.Submit
	locals   []ipc.Local
	finishes []ipc.Finish
	bodies   []*job.Body
	lost     int // connections that ended without Finish
	reads    int // commands that a manager reads for the wrapper

	driver string // give leases the recipe of what they run first, by this gcc
	tree   bool   // wants the sources form
	fast   bool
	moves  bool    // answers in another sink than the leased one
	speaks *spoken // not nil: the outcome of every host's compiler
}

// spoken is how a compile ends that never ran.
type spoken struct {
	exit   uint8
	stderr string
}

// recipe is what the driver would run for the lease.
func (m *testManager) recipe(l *ipc.Lease) []string {
	words := l.Preprocess
	if m.tree {
		words = l.List
	}
	if m.driver == "" || len(words) == 0 {
		return nil
	}
	r, err := recipes.Expand(context.Background(), m.driver, words, os.Environ(), l.Cwd)
	m.check(err)
	return r.Words(0)
}

func newTestManager(t *testing.T) *testManager {
	t.Helper()
	turn(t)
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

// read returns the Lease that a manager makes of a Whole, or nil if it leaves the command to the wrapper.
func (m *testManager) read(c *ipcserver.Conn, fields []byte) []byte {
	var w ipc.Whole
	m.check(w.Parse(fields))
	peer, err := c.Peer()
	m.check(err)
	command := plain.Read(&w, int(peer.Pid))
	if command == nil {
		return nil
	}
	m.mu.Lock()
	m.reads++
	m.mu.Unlock()
	return command.Lease.Append(nil)
}

func (m *testManager) serve(c *ipcserver.Conn) {
	defer c.Close()
	var lease ipc.Lease
	var source, sink *os.File
	var read []byte // the Lease that a manager makes of the command; nil: none
	for {
		k, fields, err := c.Recv()
		if err != nil {
			m.mu.Lock()
			m.lost++
			m.mu.Unlock()
			return
		}
		switch k {
		case ipc.KindWhole:
			read = m.read(c, fields)
			m.check(c.Send(ipc.AppendBare(nil, ipc.KindAsk)))
		case ipc.KindLease:
			if whole := slices.Clone(fields); read != nil && !bytes.Equal(whole, read[ipc.HeaderLen:]) {
				m.t.Errorf("the manager reads this command as\n%q\nthe wrapper as\n%q", read[ipc.HeaderLen:], whole)
			}
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
			m.check(c.Send((&ipc.Leased{Job: 1, SourceMax: uint64(m.slotSize), Family: "gcc", Major: 12, Direct: m.recipe(&lease), Tree: m.tree, Fast: m.fast}).Append(nil), int(w.Fd()), int(r.Fd())))
			w.Close()
			r.Close()
		case ipc.KindSubmit:
			var s ipc.Submit
			m.check(s.Parse(fields))
			m.mu.Lock()
			m.submits = append(m.submits, s)
			dies := m.die > 0
			if dies {
				m.die--
			}
			m.mu.Unlock()
			if dies {
				return
			}
			var fds []int
			if m.moves {
				sink = m.memfd("second", 64<<20)
				defer sink.Close()
				r := m.reopen(sink, os.O_RDONLY)
				defer r.Close()
				fds = append(fds, int(r.Fd()))
			}
			var res *ipc.Result
			var no *ipc.GoLocal
			if m.onSubmit != nil {
				res, no = m.onSubmit(&s)
			}
			if m.hang != nil && no == nil {
				_, _, err := c.Recv() // comes back when the wrapper is gone
				if err == nil {
					m.t.Error("a frame in place of an answer")
				}
				m.gone.Do(func() { close(m.hang) })
				return
			}
			if no != nil {
				m.check(c.Send(no.Append(nil)))
				continue
			}
			switch {
			case res != nil:
			case s.Tree:
				res = m.compileTree(&lease, &s, source, sink)
			default:
				res = m.compile(&lease, &s, source, sink)
			}
			res.Moved = m.moves
			m.check(c.Send(res.Append(nil), fds...))
		case ipc.KindLocal:
			var l ipc.Local
			m.check(l.Parse(fields))
			m.mu.Lock()
			m.locals = append(m.locals, l)
			m.mu.Unlock()
			if l.Turn != ipc.TurnNone {
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
	if body.Outputs[0].Kind == unit.OutputAssembly {
		mode = "-S"
	}
	outputs := map[string]int{filepath.Join(dir, "out.o"): 0}
	args := append(append([]string{}, body.Args...), mode, "-x", body.Language, text, "-o", filepath.Join(dir, "out.o"))
	cmd := exec.Command(lease.Compiler, args...)
	cmd.Env, cmd.Dir = append(os.Environ(), body.Env...), dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run() // its status is in the result
	if m.speaks != nil {
		stderr.Reset()
		stderr.WriteString(m.speaks.stderr)
	}
	res := &ipc.Result{Host: "farm:7632", Exit: uint8(cmd.ProcessState.ExitCode()), Attempts: 1, CompileUS: 1000, BytesOut: uint64(len(slot))}
	m.answer(res, sink, stdout.Bytes(), stderr.Bytes(), outputs)
	return res
}

// answer puts what a compile came to into the sink; outputs are its files, by name.
func (m *testManager) answer(res *ipc.Result, sink *os.File, stdout, stderr []byte, outputs map[string]int) {
	var off int64
	put := func(b []byte) ipc.Segment {
		_, err := sink.WriteAt(b, off)
		m.check(err)
		seg := ipc.Segment{Off: uint64(off), Len: uint64(len(b))}
		off += int64(len(b))
		return seg
	}
	res.Stdout, res.Stderr = put(stdout), put(stderr)
	for name, i := range outputs {
		if b, err := os.ReadFile(name); err == nil {
			res.Files = append(res.Files, ipc.File{Index: uint8(i), Segment: put(b)})
		}
	}
	res.BytesIn = uint64(off)
}

// compileTree does a job of the sources form where the wrapper stands, as this machine is
// the client too, and takes the outputs away. Before that it holds what it was sent
// against what is there.
func (m *testManager) compileTree(lease *ipc.Lease, s *ipc.Submit, source, sink *os.File) *ipc.Result {
	slot := make([]byte, uint64(s.TextOff)+s.TextLen)
	_, err := source.ReadAt(slot, int64(s.BodyOff))
	m.check(err)
	body, err := job.ParseBody(slot[:s.BodyLen])
	if err != nil {
		m.t.Error(err)
		return &ipc.Result{Exit: 1}
	}
	m.mu.Lock()
	m.bodies = append(m.bodies, body)
	m.mu.Unlock()
	text := slot[s.TextOff:]
	for _, f := range body.Files {
		b, err := os.ReadFile(typed.Absolute(f.Name, body.Cwd))
		m.check(err)
		if f.Same == 0 && f.Len != 0 && !bytes.Equal(b, text[:f.Len]) {
			m.t.Errorf("%s travels with another content", f.Name)
		}
		text = text[f.Len:]
	}
	if len(text) != 0 {
		m.t.Errorf("%d bytes behind the files", len(text))
	}
	res := &ipc.Result{Host: "farm:7632", Attempts: 1, CompileUS: 1000, BytesOut: uint64(len(slot))}
	if m.speaks != nil {
		res.Exit = m.speaks.exit
		outputs := map[string]int{}
		if res.Exit == 0 {
			outputs[typed.Absolute(body.Files[0].Name, body.Cwd)] = 0
		}
		m.answer(res, sink, nil, []byte(m.speaks.stderr), outputs)
		return res
	}
	cmd := exec.Command(lease.Compiler, body.Args...)
	cmd.Args[0] = body.Argv0
	cmd.Env, cmd.Dir = append([]string{"PATH=" + os.Getenv("PATH")}, body.Env...), body.Cwd
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run() // its status is in the result
	res.Exit = uint8(cmd.ProcessState.ExitCode())
	outputs := map[string]int{}
	for i, o := range body.Outputs {
		outputs[typed.Absolute(o.Name, body.Cwd)] = i
	}
	m.answer(res, sink, stdout.Bytes(), stderr.Bytes(), outputs)
	for name := range outputs {
		_ = os.Remove(name) // some may not be there
	}
	return res
}
