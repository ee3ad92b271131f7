package helper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/pkg/resultcache/crsh"
)

const (
	startTime = 10 * time.Second // for a helper to listen
	idleTime  = time.Hour        // after which it ends by itself, should this program die without a word
	stopTime  = 500 * time.Millisecond
	maxIdle   = 4 // connections that are kept for the next request
	maxWords  = 200
)

// process is a running helper. Its socket is in a directory of its own, which goes with it.
type process struct {
	program, dir string
	socket       string
	running      *os.Process
	began        time.Time
	ready        chan struct{} // closed once it listens, or will not
	gone         chan struct{} // closed when it has ended, and all that was needed for it is removed
	said         tail          // the end of what it has printed

	mu   sync.Mutex
	idle []*crsh.Client
	late error // why it is not ready
	exit error // how it has ended
}

// start starts a helper.
func start(o *Options) (*process, error) {
	dir, err := place()
	if err != nil {
		return nil, fmt.Errorf("a place for the helper's socket: %w", err)
	}
	p := &process{program: filepath.Base(o.Program), dir: dir, socket: filepath.Join(dir, "s"), began: time.Now(), ready: make(chan struct{}), gone: make(chan struct{})}
	told := crsh.Started{Endpoint: p.socket, URL: o.URL.Reveal(), Idle: idleTime, Attributes: o.Attributes}
	cmd := exec.Command(o.Program)
	cmd.Env = append(append([]string{}, o.Environ...), told.Environ()...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", &p.said, &p.said
	cmd.WaitDelay = stopTime // something that it has started may hold what it prints to
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGTERM}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // its end would be that of the helper, by Pdeathsig
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.running = cmd.Process
		}
		started <- err
		if err == nil {
			p.ended(cmd.Wait())
		}
	}()
	if err := <-started; err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("the helper cannot be started: %w", err)
	}
	go p.await()
	return p, nil
}

// mostSocket is how long the path of a directory may be, in bytes, for a socket in it to have an address.
const mostSocket = 100

// place makes a directory of mode 0700: who opens the socket can write results.
func place() (string, error) {
	const pattern = "rdistcc-helper-*"
	dir, err := os.MkdirTemp("", pattern)
	if err == nil && len(dir) > mostSocket {
		_ = os.Remove(dir)
		dir, err = os.MkdirTemp("/tmp", pattern)
	}
	return dir, err
}

// ended notes that the process has ended.
func (p *process) ended(err error) {
	if err == nil {
		err = errors.New("exit status 0")
	}
	_ = syscall.Kill(-p.running.Pid, syscall.SIGKILL) // what it has left
	p.mu.Lock()
	p.exit = err
	for _, c := range p.idle {
		_ = c.Close()
	}
	p.idle = nil
	p.mu.Unlock()
	_ = os.RemoveAll(p.dir)
	close(p.gone)
}

// await waits until the helper listens. One that does not is ended.
func (p *process) await() {
	defer close(p.ready)
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for {
		c, err := p.dial(ctx)
		if err == nil {
			p.keep(c)
			return
		}
		if errors.Is(err, crsh.ErrVersion) || ctx.Err() != nil {
			p.mu.Lock()
			if p.late = err; ctx.Err() != nil {
				p.late = fmt.Errorf("%s does not serve within %v", p.program, startTime)
			}
			p.mu.Unlock()
			p.kill()
			return
		}
		select {
		case <-p.gone:
			return
		case <-ctx.Done():
		case <-t.C:
		}
	}
}

// dial opens a connection.
func (p *process) dial(ctx context.Context) (*crsh.Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", p.socket)
	if err == nil {
		var c *crsh.Client
		if c, err = crsh.NewClient(ctx, conn); err == nil {
			return c, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", p.program, err)
}

// client returns a connection, and whether it was used before. It waits for a helper that starts.
func (p *process) client(ctx context.Context) (c *crsh.Client, old bool, err error) {
	select {
	case <-p.ready:
	case <-p.gone:
		return nil, false, p.err()
	case <-ctx.Done():
		return nil, false, fmt.Errorf("%s does not serve yet: %w", p.program, ctx.Err())
	}
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		c, p.idle = p.idle[n-1], p.idle[:n-1]
	}
	late := p.late
	p.mu.Unlock()
	switch {
	case late != nil:
		return nil, false, late
	case c != nil:
		return c, true, nil
	}
	if c, err = p.dial(ctx); err != nil {
		err = p.because(err)
	}
	return c, false, err
}

// because returns why a connection has broken: that the process has ended, if so, rather than err.
func (p *process) because(err error) error {
	if p.goneWithin(20 * time.Millisecond) { // its end is seen a little later than that of its connections
		return p.err()
	}
	return err
}

// keep keeps a connection for the next request.
func (p *process) keep(c *crsh.Client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exit != nil || len(p.idle) == maxIdle {
		_ = c.Close()
		return
	}
	p.idle = append(p.idle, c)
}

// over reports whether the process has ended.
func (p *process) over() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// err says how the process has ended.
func (p *process) err() error {
	p.mu.Lock()
	late, exit := p.late, p.exit
	p.mu.Unlock()
	if late != nil {
		return late
	}
	if last := p.said.last(); last != "" {
		return fmt.Errorf("%s has ended (%w): %s", p.program, exit, last)
	}
	return fmt.Errorf("%s has ended (%w)", p.program, exit)
}

// end ends the process: it is asked, told, and killed.
func (p *process) end() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	if c, err := p.dial(ctx); err == nil {
		_ = c.Stop(ctx) // it may be gone before it answers
		_ = c.Close()
	}
	if p.goneWithin(stopTime) {
		return
	}
	_ = p.running.Signal(syscall.SIGTERM) // it fails if the process has just ended
	if !p.goneWithin(stopTime) {
		p.kill()
		<-p.gone
	}
}

func (p *process) goneWithin(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.gone:
		return true
	case <-t.C:
		return false
	}
}

func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exit == nil { // otherwise its number may be another's
		_ = syscall.Kill(-p.running.Pid, syscall.SIGKILL)
	}
}

// tail keeps the end of what a program prints.
type tail struct {
	mu  sync.Mutex
	end []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, b[max(0, len(b)-4*maxWords):]...)
	t.end = t.end[max(0, len(t.end)-4*maxWords):]
	return len(b), nil
}

// last returns the last line.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(string(bytes.ToValidUTF8(t.end, nil)))
	line := strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
	return line[:min(len(line), maxWords)]
}
