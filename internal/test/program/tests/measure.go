package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// usage is what the test binary of one package used, with all processes that it waited for.
type usage struct {
	pkg  string // directory in the module; "." for the module's own
	cpu  time.Duration
	wall time.Duration
}

// measure runs a test binary as `go test -exec` asks for it, and appends what it used to file. It returns the binary's
// exit status.
//
// What the go command sends it, as when time is up, goes on to the binary: both are in one process group only at a
// terminal.
func measure(file string, command []string) (int, error) {
	dir, err := os.Getwd() // the go command starts each test in the directory of its package
	if err != nil {
		return 1, err
	}
	began := time.Now()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 4) // a few: none comes twice
	signal.Notify(signals, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s) // it may have ended
		}
	}()
	err = cmd.Wait()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return 1, err
	}
	// Of all children, not of the one alone: those that it did not wait for itself are not in either.
	var of syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &of); err != nil {
		return 1, err
	}
	cpu := time.Duration(of.Utime.Nano() + of.Stime.Nano())
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return 1, err
	}
	_, err = fmt.Fprintf(f, "%s\t%d\t%d\n", dir, cpu, time.Since(began))
	if status := cmd.ProcessState.ExitCode(); status != 0 {
		return max(status, 1), errors.Join(err, f.Close())
	}
	return 0, errors.Join(err, f.Close())
}

// readUsage reads what measure wrote, and names packages by their directory below root.
func readUsage(file, root string) (map[string]usage, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	all := make(map[string]usage)
	for line := range strings.Lines(string(text)) {
		var u usage
		dir, rest, _ := strings.Cut(line, "\t")
		if _, err := fmt.Sscanf(rest, "%d\t%d", &u.cpu, &u.wall); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", file, line, err)
		}
		if u.pkg = strings.TrimPrefix(strings.TrimPrefix(dir, root), "/"); u.pkg == "" {
			u.pkg = "."
		}
		all[u.pkg] = u
	}
	return all, nil
}
