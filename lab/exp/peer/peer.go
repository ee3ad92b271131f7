// Package peer runs the other side of an experiment in a process of its own, so that what each side costs is
// known apart. The process is this program again, as "exp peer": it answers calls, lines of JSON, until its
// standard input ends.
package peer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// Handler answers one call.
type Handler func(ctx context.Context, arg json.RawMessage) (any, error)

// Args are the words after the program's name that make it a peer.
var Args = []string{"exp", "peer"}

// cpuCall asks for the CPU time that the peer and the children that it has waited for have used, in nanoseconds.
const cpuCall = "cpu"

// maxLine bounds a call or an answer, in bytes.
const maxLine = 64 << 20

type call struct {
	Name string          `json:"call"`
	Arg  json.RawMessage `json:"arg,omitempty"`
}

type answer struct {
	Value json.RawMessage `json:"value,omitempty"`
	Error string          `json:"error,omitempty"`
}

// Serve answers calls from in on out until in ends.
func Serve(ctx context.Context, in io.Reader, out io.Writer, handlers map[string]Handler) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var c call
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return err
		}
		var a answer
		if v, err := dispatch(ctx, &c, handlers); err != nil {
			a.Error = err.Error()
		} else if a.Value, err = json.Marshal(v); err != nil {
			return err
		}
		b, err := json.Marshal(&a)
		if err != nil {
			return err
		}
		if _, err := out.Write(append(b, '\n')); err != nil {
			return err
		}
	}
	return lines.Err()
}

func dispatch(ctx context.Context, c *call, handlers map[string]Handler) (any, error) {
	if c.Name == cpuCall {
		return Self(), nil
	}
	h := handlers[c.Name]
	if h == nil {
		return nil, fmt.Errorf("no call %q", c.Name)
	}
	return h(ctx, c.Arg)
}

// Called runs a test binary as a peer if it was started as one, and then does not return. It is for TestMain.
func Called(handlers map[string]Handler) {
	if len(os.Args) != 3 || os.Args[1] != Args[0] || os.Args[2] != Args[1] {
		return
	}
	if err := Serve(context.Background(), os.Stdin, os.Stdout, handlers); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Process is a peer that runs.
type Process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Scanner
	group *group // nil: it is asked for its own figures
}

// Start starts a peer. start, if not nil, starts the command in place of its Start: in another network, say.
func Start(start func(*exec.Cmd) error) (*Process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.Command(exe, Args...)}
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true} // an interrupt at the terminal is for us, who then end it
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewScanner(out)
	p.out.Buffer(nil, maxLine)
	if start == nil {
		start = (*exec.Cmd).Start
	}
	if err := start(p.cmd); err != nil {
		return nil, fmt.Errorf("start the other side: %w", err)
	}
	p.group = newGroup(p.cmd.Process.Pid) // it does nothing yet
	return p, nil
}

// Call calls the peer and decodes its answer into value, which may be nil.
func (p *Process) Call(name string, arg, value any) error {
	c := call{Name: name}
	var err error
	if arg != nil {
		if c.Arg, err = json.Marshal(arg); err != nil {
			return err
		}
	}
	b, err := json.Marshal(&c)
	if err != nil {
		return err
	}
	if _, err := p.in.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("call the other side: %w", err)
	}
	if !p.out.Scan() {
		return errors.Join(errors.New("the other side has ended"), p.out.Err())
	}
	var a answer
	if err := json.Unmarshal(p.out.Bytes(), &a); err != nil {
		return err
	}
	if a.Error != "" {
		return fmt.Errorf("the other side: %s", a.Error)
	}
	if value == nil {
		return nil
	}
	return json.Unmarshal(a.Value, value)
}

// Clock measures f: the time that it takes, and the CPU time of this process and of the peer meanwhile.
func (p *Process) Clock(f func() error) (wall, own, its time.Duration, err error) {
	before, err := p.CPU()
	if err != nil {
		return 0, 0, 0, err
	}
	mine, begin := Own(), time.Now()
	if err := f(); err != nil {
		return 0, 0, 0, err
	}
	wall, own = time.Since(begin), Own()-mine
	after, err := p.CPU()
	return wall, own, after - before, err
}

// CPU returns the CPU time that the peer and what it has started have used so far.
func (p *Process) CPU() (time.Duration, error) {
	if p.group != nil {
		return p.group.usage()
	}
	var t time.Duration
	err := p.Call(cpuCall, nil, &t)
	return t, err
}

// Source says how CPU measures.
func (p *Process) Source() string {
	if p.group != nil {
		return p.group.kind + " of the other side, rusage of this one"
	}
	return "rusage of either side and its children (no control group can be made)"
}

// Close ends the peer and waits for it.
func (p *Process) Close() error {
	_ = p.in.Close()
	stop := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
	err := p.cmd.Wait()
	stop.Stop()
	if p.group != nil {
		p.group.remove()
	}
	return err
}

// Self returns the CPU time that this process and the children that it has waited for have used.
func Self() time.Duration { return Own() + rusage(unix.RUSAGE_CHILDREN) }

// Own returns the CPU time that this process has used, without children.
func Own() time.Duration { return rusage(unix.RUSAGE_SELF) }

func rusage(who int) time.Duration {
	var u unix.Rusage
	if unix.Getrusage(who, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
