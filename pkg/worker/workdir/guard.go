package workdir

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// Arg0 is the os.Args[0] that makes the program the guard: main, and TestMain, look at it and call Main.
const Arg0 = "rdistccd-guard"

// Main runs the guard and does not return. The guard outlives a daemon that was killed: it waits until the
// pipe on its standard input closes, kills every process that works below the work area named by its first
// argument, and removes the area and what the daemon's canaries have left elsewhere. It has a session of its
// own and ignores the terminal's signals, so that it is not killed together with the daemon.
func Main() {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	if len(os.Args) != 2 {
		os.Exit(101)
	}
	// A daemon that shuts down normally has removed the area by then, so that nothing is left to do.
	_, _ = io.Copy(io.Discard, os.Stdin)
	err := clearArea(os.Args[1])
	RemoveTargets() // a canary may have been under way
	if err != nil {
		os.Exit(107)
	}
	os.Exit(0)
}

// Guard is the daemon's handle of its guard process.
type Guard struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// StartGuard executes this program again as the guard of area. Stop ends it.
func StartGuard(area *Area) (*Guard, error) {
	cmd := exec.Command("/proc/self/exe", area.Path)
	cmd.Args[0] = Arg0
	cmd.Env = []string{"GOMAXPROCS=1"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// The guard inherits the lock, so that no other daemon clears the area until it is done.
	cmd.ExtraFiles = []*os.File{area.dir}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start guard: %w", err)
	}
	if err := cmd.Start(); err != nil {
		pipe.Close()
		return nil, fmt.Errorf("start guard: %w", err)
	}
	return &Guard{cmd, pipe}, nil
}

// Stop ends the guard, which clears the area if it still exists, and waits for it.
func (g *Guard) Stop() error {
	g.pipe.Close()
	if err := g.cmd.Wait(); err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	return nil
}
