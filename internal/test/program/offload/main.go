// offload measures, on this machine, what serving jobs costs a daemon beside compiling, and how much of that is the software
// stack's: E12 without a guest. `make interop INTEROPFLAGS='-test.run TestOffload -test.v'` has the kernel's siw beside it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/standin"
	"github.com/rdistcc/rdistcc/lab/exp/offload"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

func main() {
	length := flag.Duration("length", 5*time.Second, "length of a measurement")
	rounds := flag.Int("rounds", 3, "measurements of each kind, of which the median is printed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *length, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "offload:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, length time.Duration, rounds int) (err error) {
	dir, err := os.MkdirTemp("", "offload-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bin, state := filepath.Join(dir, "bin"), filepath.Join(dir, "state")
	config := filepath.Join(dir, "config.yaml")
	text := fmt.Sprintf("http: {pprof: true}\nsandbox: off\ntoolchains: {dirs: [%s]}\n", bin)
	err = errors.Join(os.Mkdir(bin, 0o755), os.Mkdir(state, 0o700), os.WriteFile(config, []byte(text), 0o600),
		farm.Build(ctx, bin, nil), standin.Build(ctx, "gcc", filepath.Join(bin, "gcc")))
	if err != nil {
		return err
	}
	f := farm.New(bin, state)
	f.Vars = []string{"HOME=" + state, "TMPDIR=" + dir}
	defer func() { err = errors.Join(err, f.Stop()) }()
	d, err := f.StartDaemon(ctx, "d1", "--config", config, "--jobs", "2")
	if err != nil {
		return err
	}
	_ = exec.CommandContext(ctx, "go", "tool", "pprof", "-h").Run() // so that it is built
	daemon := &offload.Daemon{PID: d.PID(), Pages: d.HTTP}
	fmt.Println("| bytes each way | clients | jobs/s | daemon user + system, ms a job | of it the stack | model of an adapter, ms | client, ms |")
	fmt.Println("|---|---|---|---|---|---|---|")
	for _, size := range []int{4 << 10, 256 << 10, 4 << 20} {
		for _, clients := range []int{1, 4, 16} {
			costs, err := measure(ctx, daemon, d.Addr, size, clients, length, rounds)
			if err != nil {
				return err
			}
			of := func(f func(*offload.Cost) float64) float64 { return median(costs, f) }
			fmt.Printf("| %d | %d | %.0f | %.2f + %.2f | %.0f %% | %.2f + %.2f | %.2f |\n", size, clients, of(func(c *offload.Cost) float64 { return c.Rate }),
				of(func(c *offload.Cost) float64 { return c.User }), of(func(c *offload.Cost) float64 { return c.System }),
				100*of(func(c *offload.Cost) float64 { return c.Profile.Stack.Whole() }),
				of(func(c *offload.Cost) float64 { return c.ModelUser }), of(func(c *offload.Cost) float64 { return c.ModelSystem }), of(func(c *offload.Cost) float64 { return c.Client }))
		}
	}
	return nil
}

// measure measures one row.
func measure(ctx context.Context, d *offload.Daemon, addr string, size, clients int, length time.Duration, rounds int) (costs []*offload.Cost, err error) {
	dev, err := iwarp.Open(iwarp.Config{})
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	c, err := offload.Connect(ctx, offload.Load{Device: dev, Addr: addr, Clients: clients, Size: size})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for range rounds {
		cost, err := d.Measure(ctx, c, length)
		if err != nil {
			return nil, err
		}
		costs = append(costs, cost)
	}
	return costs, nil
}

func median(costs []*offload.Cost, f func(*offload.Cost) float64) float64 {
	var all []float64
	for _, c := range costs {
		all = append(all, f(c))
	}
	slices.Sort(all)
	return all[len(all)/2]
}
