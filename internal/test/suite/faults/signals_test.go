package faults

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// status is the kernel's account of a process; empty when it is gone.
func status(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // gone: empty
	return string(text)
}

// harmless are signals that interrupt a system call and otherwise mean nothing.
var harmless = []syscall.Signal{syscall.SIGURG, syscall.SIGWINCH, syscall.SIGCHLD, syscall.SIGCONT}

// TestSignalsRain: system calls of wrapper, manager and daemon that are interrupted all
// the time, and processes that are stopped for moments, change nothing.
func TestSignalsRain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.daemon("d1", "", "--jobs", "4")
	s.manager(d.Addr, "")
	s.remote(d.Addr)
	s.atRest()
	rnd := rand.New(rand.NewPCG(1, 2))
	stop := make(chan struct{})
	var rain sync.WaitGroup
	rain.Go(func() {
		for {
			for _, p := range s.processes() {
				switch {
				case !strings.HasPrefix(p.name, "rdistcc"):
				case rnd.IntN(8) == 0:
					_ = syscall.Kill(p.pid, syscall.SIGSTOP) // it may be gone, here and below
					time.Sleep(time.Millisecond)
					_ = syscall.Kill(p.pid, syscall.SIGCONT)
				default:
					_ = syscall.Kill(p.pid, harmless[rnd.IntN(len(harmless))])
				}
			}
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	lines := s.build(s.units(40), []string{"RDISTCC_HOSTS=" + d.Addr}, func() {})
	close(stop)
	rain.Wait()
	if len(lines) > 0 {
		t.Errorf("lines of rdistcc's: %q", lines)
	}
	s.clean()
}

// TestReaderTakesItsTime: messages go whole to a pipe that does not block its writers
// and whose reader is slow, as make's may be.
func TestReaderTakesItsTime(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.daemon("d1", "", "--jobs", "2")
	s.manager(d.Addr, "")
	s.remote(d.Addr)
	s.atRest()
	var text strings.Builder
	for i := range 1500 {
		fmt.Fprintf(&text, "int function_%d(void) { int nobody_uses_this_%d = 1; return 2; }\n", i, i)
	}
	s.file("chatty.c", text.String())
	local := s.command(nil, "gcc", "-Wall", "-c", "chatty.c")
	want, err := local.CombinedOutput()
	if err != nil || len(want) < 200<<10 {
		t.Fatalf("%d bytes of warnings, %v", len(want), err)
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	r, w := os.NewFile(uintptr(p[0]), "reader"), os.NewFile(uintptr(p[1]), "writer")
	defer r.Close()
	if err := unix.SetNonblock(p[1], true); err != nil {
		t.Fatal(err)
	}
	report := s.file("chatty.report", "")
	cmd := s.command([]string{"RDISTCC_REPORT=" + report}, s.Wrapper, "gcc", "-Wall", "-c", "chatty.c")
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	var got bytes.Buffer
	for buf := make([]byte, 4096); ; {
		n, err := r.Read(buf)
		got.Write(buf[:n])
		if err != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%d bytes of messages, want %d", got.Len(), len(want))
	}
	if o := strings.TrimSpace(s.read("chatty.report")); o != "remote:"+d.Addr {
		t.Errorf("%s, want it done by the host", o)
	}
	s.clean()
}
