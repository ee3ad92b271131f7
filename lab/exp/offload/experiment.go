package offload

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/lab/exp"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Devices of Asymmetric.
const (
	software = "software"
	model    = "model"
)

// Asymmetric is E12: clients with the software stack, and a daemon with it or, as a model, with an adapter.
var Asymmetric = &exp.Experiment{
	ID: "E12", Name: "asymmetric",
	Question: "How much of a daemon's CPU, without compilers, would an adapter take off, whose clients have none?",
	Axes: func(z exp.Size) []exp.Axis {
		return []exp.Axis{
			{Name: "device", Levels: []string{software, model}},
			{Name: "size", Bytes: true, Levels: exp.Pick(z, exp.Numbers(4<<10), exp.Numbers(4<<10, 256<<10, 4<<20), exp.Numbers(4<<10, 64<<10, 256<<10, 1<<20, 4<<20))},
			{Name: "clients", Levels: exp.Pick(z, exp.Numbers(1), exp.Numbers(1, 16), exp.Numbers(1, 4, 16))},
		}
	},
	Rounds: func(z exp.Size) int { return exp.Pick(z, 1, 5, 9) },
	Metrics: []exp.Metric{
		{Name: "cpu", Unit: "ms", What: "CPU time of the daemon for a job, without its compiler"},
		{Name: "user", Unit: "ms", What: "the part in user mode"},
		{Name: "client", Unit: "ms", What: "CPU time of the clients for a job"},
		{Name: "rate", Unit: "jobs/s", What: "jobs done; of the model, those of the software"},
	},
	Prepare: prepareAsymmetric,
	Views: []exp.View{
		{Title: "CPU time of the daemon", Metric: "cpu", X: "size", Lines: []string{"device", "clients"}},
		{Title: "CPU time in user mode", Metric: "user", X: "size", Lines: []string{"device", "clients"}, Table: true, Aside: true},
		{Title: "CPU time of the clients", Metric: "client", X: "size", Lines: []string{"device", "clients"}, Where: exp.Cell{"device": software}, Table: true},
		{Title: "Jobs", Metric: "rate", X: "size", Lines: []string{"device", "clients"}, Where: exp.Cell{"device": software}, Table: true, Aside: true},
	},
	Claims: []exp.Predicate{
		{Claim: "the receiver's load falls from 90 % to under 5 %: an adapter leaves the daemon less than a tenth of its CPU (4 MiB each way)", Says: "OSC [A]", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(at(model, 4<<20), at(software, 4<<20), "cpu", 0.1)
		}},
		{Claim: "an adapter takes a third or more off the daemon (4 MiB each way)", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(at(model, 4<<20), at(software, 4<<20), "cpu", 2.0/3)
		}},
		{Claim: "for small jobs it makes little difference: less than a quarter (4 KiB each way)", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(at(software, 4<<10), at(model, 4<<10), "cpu", 4.0/3)
		}},
	},
	Defaults: []exp.Default{{What: "daemons use the software stack", Where: "deploy/config.yaml"}},
}

// at returns a cell with one client.
func at(device string, size int) exp.Cell {
	return exp.Cell{"device": device, "size": fmt.Sprint(size), "clients": "1"}
}

// asymmetric is a daemon that is kept busy. A measurement serves both devices: the model is of what the software did.
type asymmetric struct {
	why    error // nothing can be measured
	cmd    *exec.Cmd
	daemon Daemon
	addr   string
	dev    iwarp.Device
	length time.Duration
	left   map[string]*Cost // measured for one device, not yet asked for by the other
}

func prepareAsymmetric(ctx context.Context, s *exp.Setting) (exp.Bench, error) {
	b := &asymmetric{length: exp.Pick(s.Size, time.Second, time.Second, 3*time.Second), left: make(map[string]*Cost)}
	s.CPU("ticks of the daemon's processes, rusage of the clients'")
	if b.why = b.start(ctx, s.Dir); b.why != nil && ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), b.Close())
	}
	return b, nil
}

// start starts the rdistccd that is next to this program.
func (b *asymmetric) start(ctx context.Context, dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	daemon := filepath.Join(filepath.Dir(self), "rdistccd")
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		return err
	}
	for _, tool := range []string{daemon, "go"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("needs %s: %w", tool, err)
		}
	}
	// One compiler, so that it is clear which one jobs get.
	bin := filepath.Join(dir, "bin")
	config := filepath.Join(dir, "rdistccd.yaml")
	text := fmt.Sprintf("http: {pprof: true}\nsandbox: off\ntoolchains: {dirs: [%s]}\n", bin)
	if err := errors.Join(os.Mkdir(bin, 0o700), os.Symlink(gcc, filepath.Join(bin, "gcc")), os.WriteFile(config, []byte(text), 0o600)); err != nil {
		return err
	}
	_ = exec.CommandContext(ctx, "go", "tool", "pprof", "-h").Run() // so that it is built
	if b.addr, err = freeAddr(); err != nil {
		return err
	}
	if b.daemon.Pages, err = freeAddr(); err != nil {
		return err
	}
	b.cmd = exec.CommandContext(ctx, daemon, "--config", config, "--listen", b.addr, "--http", b.daemon.Pages, "--jobs", "2")
	b.cmd.Env = append(os.Environ(), "HOME="+dir, "TMPDIR="+dir, "CACHE_DIRECTORY="+dir)
	if err := b.cmd.Start(); err != nil {
		b.cmd = nil
		return err
	}
	b.daemon.PID = b.cmd.Process.Pid
	if err := answers(ctx, b.addr); err != nil {
		return err
	}
	b.dev, err = iwarp.Open(iwarp.Config{})
	return err
}

// freeAddr returns an address of loopback that nothing listens on.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// answers waits until something listens on addr.
func answers(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if c, err := new(net.Dialer).DialContext(ctx, "tcp", addr); err == nil {
			return c.Close()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("rdistccd does not listen on %s: %w", addr, ctx.Err())
		}
	}
}

// Measure keeps the daemon busy.
func (b *asymmetric) Measure(ctx context.Context, c exp.Cell) (exp.Values, error) {
	if b.why != nil {
		return nil, &exp.Untold{Reason: strings.ReplaceAll(b.why.Error(), "\n", "; ")}
	}
	key := c["size"] + " " + c["clients"]
	cost := b.left[key]
	if cost != nil {
		delete(b.left, key)
	} else {
		clients, err := Connect(ctx, Load{Device: b.dev, Addr: b.addr, Clients: c.Number("clients"), Size: c.Number("size")})
		if err != nil {
			return nil, err
		}
		defer clients.Close()
		if cost, err = b.daemon.Measure(ctx, clients, b.length); err != nil {
			return nil, err
		}
		b.left[key] = cost
	}
	v := exp.Values{"cpu": cost.User + cost.System, "user": cost.User, "client": cost.Client, "rate": cost.Rate}
	if c["device"] == model {
		v["cpu"], v["user"] = cost.ModelUser+cost.ModelSystem, cost.ModelUser
	}
	return v, nil
}

// Close ends the daemon.
func (b *asymmetric) Close() (err error) {
	if b.dev != nil {
		err = b.dev.Close()
	}
	if b.cmd != nil {
		_ = b.cmd.Process.Signal(os.Interrupt) // or it has ended
		_ = b.cmd.Wait()                       // its status is the signal's
	}
	return err
}
