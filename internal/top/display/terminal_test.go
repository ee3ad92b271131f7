package display_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"
	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// terminal is a terminal with a program in it.
type terminal struct {
	t     *testing.T
	keys  *os.File // the side of the user
	slave *os.File
	modes unix.Termios // before the program began
	cmd   *exec.Cmd
	end   chan error // of the program

	mu   sync.Mutex
	view *vt.Emulator
	raw  strings.Builder // all that was written
}

// open starts a program in a terminal of a size. It is killed with the test.
func open(t *testing.T, width, height int, env []string, program string, args ...string) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		need.Skipf(t, need.Sandbox, "no terminals: %v", err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err := errors.Join(err, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)); err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		need.Skipf(t, need.Sandbox, "no terminals: %v", err)
	}
	x := &terminal{t: t, keys: master, slave: slave, view: vt.NewEmulator(width, height), end: make(chan error, 1)}
	x.size(width, height)
	x.modes = x.modesNow()
	x.cmd = exec.CommandContext(t.Context(), program, args...)
	x.cmd.Env = env
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = slave, slave, slave
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() { x.end <- x.cmd.Wait() })
	all.Go(func() { _, _ = io.Copy(master, x.view) }) // what the terminal answers by itself
	all.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			x.mu.Lock()
			_, _ = x.view.Write(buf[:n])
			x.raw.Write(buf[:n])
			x.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		_ = x.cmd.Process.Kill() // it has ended, mostly
		_ = slave.Close()
		_ = x.view.InputPipe().(io.Closer).Close()
		all.Wait()
		_ = master.Close()
	})
	return x
}

// size gives the terminal a size.
func (x *terminal) size(width, height int) {
	x.t.Helper()
	if err := unix.IoctlSetWinsize(int(x.slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(height), Col: uint16(width)}); err != nil {
		x.t.Fatal(err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.view.Resize(width, height)
}

// press types keys.
func (x *terminal) press(keys string) {
	x.t.Helper()
	if _, err := x.keys.WriteString(keys); err != nil {
		x.t.Fatal(err)
	}
}

// screen returns what is on the screen.
func (x *terminal) screen() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.view.String()
}

// patience is how long a test waits before it gives up.
const patience = time.Minute

// shows waits until the screen has all of words. One blank in them stands for any number.
func (x *terminal) shows(words ...string) {
	x.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		s := x.screen()
		lacks := ""
		for _, w := range words {
			if !strings.Contains(squeeze(s), w) {
				lacks = w
			}
		}
		if lacks == "" {
			return
		}
		if time.Now().After(end) {
			x.t.Fatalf("the screen lacks %q:\n%s", lacks, s)
		}
	}
}

// squeeze makes one blank of several.
func squeeze(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	return strings.Join(lines, "\n")
}

// ends waits until the program has ended well, and checks that the terminal is as it was.
func (x *terminal) ends() {
	x.t.Helper()
	select {
	case err := <-x.end:
		if err != nil {
			x.t.Errorf("it ended with %v:\n%s", err, x.screen())
		}
	case <-time.After(patience):
		x.t.Fatalf("it does not end:\n%s", x.screen())
	}
	if now := x.modesNow(); now != x.modes {
		x.t.Errorf("the terminal's modes were %+v and are %+v", x.modes, now)
	}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		x.mu.Lock()
		alternate, hidden := x.view.IsAltScreen(), x.view.CursorHidden()
		x.mu.Unlock()
		if !alternate && !hidden {
			return
		}
		if time.Now().After(end) {
			x.t.Fatalf("alternate screen %v, cursor hidden %v", alternate, hidden)
		}
	}
}

func (x *terminal) modesNow() unix.Termios {
	x.t.Helper()
	m, err := unix.IoctlGetTermios(int(x.slave.Fd()), unix.TCGETS)
	if err != nil {
		x.t.Fatal(err)
	}
	return *m
}
