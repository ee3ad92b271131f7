package offload

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Daemon is a daemon on this machine, with the software stack, that shows profiles (http.pprof).
type Daemon struct {
	PID   int
	Pages string // host:port of its pages
}

// Cost is what a job costs. CPU times are in milliseconds.
type Cost struct {
	Rate         float64 // jobs a second
	User, System float64 // of the daemon's processes, without compilers
	Client       float64 // of this process, in which the clients are
	// ModelUser and ModelSystem are what would be left to the daemon with an adapter, in a model: its CPU time without what a
	// profile says is the software stack's. It is too low by what posting to an adapter costs, and too high by the share of
	// the runtime's scheduler and poller that only the stack's goroutines need.
	ModelUser, ModelSystem float64
	Profile                *Profile
}

// Model sets what the model says, from the rest.
func (c *Cost) Model(p *Profile) {
	left := func(f func(Share) float64) float64 {
		all := f(p.Stack) + f(p.Runtime) + f(p.Daemon)
		if all == 0 {
			return 1
		}
		return 1 - f(p.Stack)/all
	}
	c.Profile = p
	c.ModelUser = c.User * left(func(s Share) float64 { return s.User })
	c.ModelSystem = c.System * left(func(s Share) float64 { return s.System })
}

// Measure keeps d busy by c for at least length, of which whole seconds are profiled.
func (d *Daemon) Measure(ctx context.Context, c *Clients, length time.Duration) (*Cost, error) {
	length = max(length.Round(time.Second), time.Second)
	profile := make(chan error, 1)
	var p *Profile
	user, system, here := d.cpu(), d.cpuSystem(), self()
	go func() {
		var err error
		p, err = d.profile(ctx, length)
		profile <- err
	}()
	done, err := c.Run(ctx, length)
	user, system, here = d.cpu()-user, d.cpuSystem()-system, self()-here
	if perr := <-profile; err == nil {
		err = perr
	}
	if err != nil {
		return nil, err
	}
	per := func(d time.Duration) float64 { return d.Seconds() * 1e3 / float64(done.Jobs) }
	cost := &Cost{Rate: float64(done.Jobs) / done.Wall.Seconds(), User: per(user), System: per(system), Client: per(here)}
	cost.Model(p)
	return cost, nil
}

// profile fetches and reads a profile of so long. It needs the go command.
func (d *Daemon) profile(ctx context.Context, length time.Duration) (*Profile, error) {
	ctx, cancel := context.WithTimeout(ctx, length+time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", d.Pages, int(length.Seconds())), nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("profile: %s (http.pprof has to be set)", resp.Status)
	}
	if err != nil {
		return nil, err
	}
	return Read(ctx, body)
}

// Read reads a CPU profile with the go command's pprof.
func Read(ctx context.Context, profile []byte) (*Profile, error) {
	dir, err := os.MkdirTemp("", "profile-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "profile")
	if err := os.WriteFile(file, profile, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "tool", "pprof", "-traces", file)
	cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+dir)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go tool pprof: %w", err)
	}
	return ParseTraces(bytes.NewReader(out))
}

// tick is the unit of /proc's times.
const tick = 10 * time.Millisecond

func (d *Daemon) cpu() time.Duration       { return d.times(11) }
func (d *Daemon) cpuSystem() time.Duration { return d.times(12) }

// times returns the sum of a field of /proc/PID/stat, counted from the state on, of the daemon and those of its descendants
// that run its program.
func (d *Daemon) times(field int) time.Duration {
	exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", d.PID)) // of another user: only the daemon counts
	var sum time.Duration
	pids := []int{d.PID}
	for i := 0; i < len(pids); i++ {
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pids[i]))
		for _, l := range lists {
			b, _ := os.ReadFile(l) // it has just ended
			for _, f := range strings.Fields(string(b)) {
				if n, err := strconv.Atoi(f); err == nil {
					pids = append(pids, n)
				}
			}
		}
		if e, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pids[i])); i > 0 && e != exe {
			continue
		}
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pids[i]))
		_, rest, _ := strings.Cut(string(b), ") ")
		if f := strings.Fields(rest); len(f) > field {
			n, _ := strconv.ParseInt(f[field], 10, 64)
			sum += time.Duration(n) * tick
		}
	}
	return sum
}

// self returns the CPU time of this process.
func self() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it cannot fail for oneself
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
