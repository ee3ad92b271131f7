// Command record wraps a compiler and records what each compile took: the jobs that internal/test/program/simfarm replays.
//
//	go build -o /tmp/record ./internal/test/program/simfarm/record
//	RECORD=/tmp/redis.tsv make CC='/tmp/record gcc'
//
// A line is: file, CPU milliseconds of the compile, of listing what it reads, peak memory in KiB, bytes
// read, bytes written. CPU times, because wall times mean nothing on a busy machine.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	err := run(os.Args[1:])
	if e := new(exec.ExitError); errors.As(err, &e) {
		os.Exit(e.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("no compiler: record COMPILER ARG...")
	}
	cpu, rss, err := timed(args)
	if err != nil {
		return err
	}
	to := os.Getenv("RECORD")
	src := slices.IndexFunc(args, isSource)
	if to == "" || src < 0 || !slices.Contains(args, "-c") {
		return nil
	}
	var written int64
	if i := slices.Index(args, "-o"); i > 0 && i+1 < len(args) {
		if fi, err := os.Stat(args[i+1]); err == nil {
			written = fi.Size()
		}
	}
	list, read, err := listing(args)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s\t%d\t%d\t%d\t%d\t%d\n", filepath.Base(args[src]), cpu.Milliseconds(), list.Milliseconds(), rss, read, written)
	return errors.Join(err, f.Close())
}

// timed runs a command; cpu is that of it and its children, rss the largest of theirs in KiB.
func timed(args []string) (cpu time.Duration, rss int64, err error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return 0, 0, err
	}
	st := cmd.ProcessState
	return st.UserTime() + st.SystemTime(), st.SysUsage().(*syscall.Rusage).Maxrss, nil
}

// listing does the work that a job in the sources form costs its own machine, and adds up the sizes of the
// files that it names.
func listing(args []string) (cpu time.Duration, read int64, err error) {
	dep, err := os.CreateTemp("", "record")
	if err != nil {
		return 0, 0, err
	}
	defer os.Remove(dep.Name())
	defer dep.Close()
	var list []string
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case a == "-c", a == "-MD", a == "-MMD", a == "-MP":
		case a == "-o", a == "-MF", a == "-MT", a == "-MQ":
			i++
		default:
			list = append(list, a)
		}
	}
	list = append(list, "-E", "-fdirectives-only", "-MD", "-MF", dep.Name(), "-o", "/dev/null")
	if cpu, _, err = timed(list); err != nil {
		return 0, 0, err
	}
	words, err := os.ReadFile(dep.Name())
	if err != nil {
		return 0, 0, err
	}
	for w := range strings.FieldsSeq(strings.ReplaceAll(string(words), "\\\n", " ")) {
		if fi, err := os.Stat(w); err == nil && fi.Mode().IsRegular() && w != "/dev/null" {
			read += fi.Size()
		}
	}
	return cpu, read, nil
}

func isSource(a string) bool {
	switch filepath.Ext(a) {
	case ".c", ".cc", ".cpp", ".cxx":
		return !strings.HasPrefix(a, "-")
	}
	return false
}
