package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc/ipcserver"
	"github.com/rdistcc/rdistcc/pkg/connmgr/plain"
)

// stub is a manager that answers at once, like one that knows what a compile reads, and does nothing: every
// compile yields the same object. What remains is the wrapper's own work.
type stub struct {
	ln     *ipcserver.Listener
	sink   int
	object int // bytes at the start of the sink
	wg     sync.WaitGroup

	mu   sync.Mutex
	err  error // what a wrapper did unexpectedly; guarded by mu
	done int   // number of compiles answered; guarded by mu
}

func newStub(socket string, object []byte) (*stub, error) {
	s := &stub{object: len(object)}
	var err error
	if s.sink, err = unix.MemfdCreate("sink", unix.MFD_CLOEXEC); err != nil {
		return nil, err
	}
	if _, err := unix.Pwrite(s.sink, object, 0); err != nil {
		return nil, err
	}
	if s.ln, err = ipcserver.Listen(socket, false); err != nil {
		return nil, err
	}
	s.wg.Go(func() {
		for {
			c, err := s.ln.AcceptConn()
			if err != nil {
				return
			}
			s.wg.Go(func() {
				defer c.Close()
				if err := s.serve(c); err != nil {
					s.mu.Lock()
					s.err = err
					s.mu.Unlock()
				}
			})
		}
	})
	return s, nil
}

func (s *stub) serve(c *ipcserver.Conn) error {
	for {
		kind, fields, err := c.Recv()
		if err != nil {
			return nil // the wrapper has gone
		}
		switch kind {
		case ipc.KindWhole, ipc.KindLease:
			l, place, err := s.read(c, kind, fields)
			if err != nil {
				return err
			}
			if l.Command == nil {
				return errors.New("the wrapper wants to list by itself what the compile reads")
			}
			m := ipc.Leased{Job: 1, Family: "gcc", Major: 12, Tree: true, Known: true, Inputs: ipc.InputsScan, Files: 1}
			r := ipc.Result{Host: "stub", Attempts: 1, Files: []ipc.File{{Segment: ipc.Segment{Len: uint64(s.object)}}}}
			if err := c.Send(r.Append(m.Append(place(&r))), s.sink); err != nil {
				return err
			}
			s.mu.Lock()
			s.done++
			s.mu.Unlock()
		case ipc.KindFinish:
		case ipc.KindLocal:
			var m ipc.Local
			_ = m.Parse(fields)
			return fmt.Errorf("the wrapper compiles here (%s)", m.Reason)
		default:
			return fmt.Errorf("the wrapper sent a frame of kind %d", kind)
		}
	}
}

// read returns the lease that a frame is, or comes to, and a function that returns what goes ahead of a result.
func (s *stub) read(c *ipcserver.Conn, kind ipc.Kind, fields []byte) (*ipc.Lease, func(*ipc.Result) []byte, error) {
	if kind == ipc.KindLease {
		l := new(ipc.Lease)
		return l, func(*ipc.Result) []byte { return nil }, l.Parse(fields)
	}
	var w ipc.Whole
	peer, err := c.Peer()
	if err == nil {
		err = w.Parse(fields)
	}
	if err != nil {
		return nil, nil, err
	}
	command := plain.Read(&w, int(peer.Pid))
	if command == nil {
		return nil, nil, errors.New("the command is not plain")
	}
	return command.Lease, func(r *ipc.Result) []byte { return command.Place(r).Append(nil) }, nil
}

func (s *stub) close() error {
	err := s.ln.Close()
	s.wg.Wait()
	_ = unix.Close(s.sink)
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return errors.Join(err, s.err)
}

// wrapper measures P3: the wrapper with a manager that answers at once, against the start of distcc's client.
func (b *bench) wrapper() error {
	source := filepath.Join(b.tmp, "empty.c")
	if err := os.WriteFile(source, nil, 0o644); err != nil {
		return err
	}
	object := filepath.Join(b.tmp, "stub.o")
	if out, err := exec.CommandContext(b.ctx, b.gcc, "-c", source, "-o", object).CombinedOutput(); err != nil {
		return fmt.Errorf("gcc: %w: %s", err, out)
	}
	content, err := os.ReadFile(object)
	if err != nil {
		return err
	}
	dir := filepath.Join(b.tmp, "p3")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	socket := filepath.Join(dir, "cm.sock")
	s, err := newStub(socket, content)
	if err != nil {
		return err
	}
	g, err := b.acct.group("p3")
	if err != nil {
		return errors.Join(err, s.close())
	}
	r, err := newRunner(g, b.tmp)
	if err != nil {
		return errors.Join(err, s.close())
	}
	defer r.close()
	env := b.env("HOME="+dir, "RDISTCC_DIR="+dir, "RDISTCC_CM_SOCKET="+socket, "RDISTCC_MODE=remote", "RDISTCC_FALLBACK=0")
	ours := &side{name: "rdistcc", argv: []string{filepath.Join(b.bin, "rdistcc"), "gcc", "-c", "empty.c", "-o", "p3.o"}, env: env}
	sides := []*side{ours}
	if client, err := exec.LookPath("distcc"); err == nil {
		sides = append(sides, &side{name: "distcc", argv: []string{client, "--version"}, env: b.env("DISTCC_DIR=" + dir)})
	}
	rounds := 4 * b.rounds
	for round := -10; round < rounds; round++ {
		for _, x := range sides {
			t, err := r.run(b.ctx, 0, x.env, b.tmp, x.argv...)
			if err != nil {
				return errors.Join(err, s.close())
			}
			if round < 0 {
				continue
			}
			b.log.add(sample{Figure: "P3", Side: x.name, Round: round, WallMS: ms(t.wall), CPUMS: ms(t.self)})
			x.wall, x.cpu = append(x.wall, ms(t.wall)), append(x.cpu, ms(t.self))
		}
	}
	if err := s.close(); err != nil {
		return err
	}
	if want := rounds + 10; s.done != want {
		return fmt.Errorf("the wrapper asked for %d compiles, not %d", s.done, want)
	}
	const what = "wrapper's own CPU, manager answers at once"
	if len(sides) < 2 {
		b.table.note("P3", what, fmt.Sprintf("%.2f ms", median(ours.cpu)), "no distcc", "<= 0.60")
		return nil
	}
	b.table.ratio("P3", what, "ms", median(ours.cpu), median(sides[1].cpu), "<= 0.60")
	return nil
}
