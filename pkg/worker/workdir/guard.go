package workdir

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// Arg0 is how the program is called when it is to be the guard: main, and the test's
// main, look at os.Args[0] and hand over to Main.
const Arg0 = "rdistccd-guard"

// Main is the guard, and does not return. It outlives a daemon that was killed: it waits until the pipe on its standard
// input closes, kills every process that works below the work area named by its
// first argument, and removes it, and what the daemon's canaries have left elsewhere. In a session of its own and deaf to the
// terminal's signals it is not killed together with the daemon.
func Main() {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	if len(os.Args) != 2 {
		os.Exit(101)
	}
	// A daemon that ends in order has removed the area before; then nothing is
	// left to do.
	_, _ = io.Copy(io.Discard, os.Stdin)
	err := clearArea(os.Args[1])
	RemoveTargets() // of a canary that was under way
	if err != nil {
		os.Exit(107)
	}
	os.Exit(0)
}

// Guard is the daemon's end.
type Guard struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// StartGuard re-executes this program as the guard of area. Stop ends it.
func StartGuard(area *Area) (*Guard, error) {
	cmd := exec.Command("/proc/self/exe", area.Path)
	cmd.Args[0] = Arg0
	cmd.Env = []string{"GOMAXPROCS=1"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// The lock too: until the guard is done, nobody else clears the area.
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

// Stop ends the guard, which clears the area if that is still there.
func (g *Guard) Stop() error {
	g.pipe.Close()
	if err := g.cmd.Wait(); err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	return nil
}
