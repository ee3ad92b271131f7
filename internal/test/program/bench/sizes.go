package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// headersSource is C++ that preprocesses to about 1 MB, with 350 headers.
const headersSource = "#include <iostream>\n#include <algorithm>\nint one() { return 1; }\n"

// client measures P14: the CPU time that a build host spends on a compile of a source of about 1 MB
// preprocessed, with 350 headers: command, preprocessor, manager. It does so with the same source each
// time, and with one that is always new.
func (b *bench) client() error {
	const name = "headers.cc"
	if err := os.WriteFile(filepath.Join(b.tmp, name), []byte(headersSource), 0o644); err != nil {
		return err
	}
	if err := b.clientOf("build host's CPU, 1 MB of preprocessed source", "<= 0.10", name, nil); err != nil {
		return err
	}
	return b.clientOf("the same, a source that was never seen", "<= 0.50", anyUnit, b.newUnit)
}

// newUnit makes a source unlike any before.
func (b *bench) newUnit(int) string {
	b.units++
	name := fmt.Sprintf("unit%d.cc", b.units)
	text := fmt.Sprintf("%sint unit%d() { return 0; }\n", headersSource, b.units)
	if err := os.WriteFile(filepath.Join(b.tmp, name), []byte(text), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err) // the compiler will not find it
	}
	return name
}

func (b *bench) clientOf(what, goal, name string, unit func(int) string) error {
	sides, f, done, err := b.contest("p14", ",lzo", []string{"g++", "-c", name, "-o", "headers.o"})
	if err != nil {
		return err
	}
	defer done()
	for _, s := range sides {
		s.unit = unit
	}
	if err := b.compete("P14", sides, b.rounds/2, f); err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	for _, s := range sides {
		fmt.Printf("# %s, CPU of %s: client with its preprocessor %.2f ms, manager %.2f, host %.2f; wall %.2f\n",
			what, s.name, median(s.client), median(s.mgr), median(s.far), median(s.wall))
	}
	if len(sides) < 3 {
		b.table.note("P14", what, fmt.Sprintf("%.2f ms", median(sides[1].near())), "no distcc", goal)
		return nil
	}
	b.table.ratio("P14", what, "ms", median(sides[1].near()), median(sides[2].near()), goal)
	return nil
}

// near returns the CPU time of the build host, round by round.
func (s *side) near() []float64 {
	sum := make([]float64, len(s.client))
	for i := range sum {
		sum[i] = s.client[i] + s.mgr[i]
	}
	return sum
}

// big measures P13: what 20 MB of preprocessed source add to the compiler's wall time, and the memory that
// wrapper and manager use for them.
func (b *bench) big() error {
	const name, size = "big.c", 20_000_000
	var text bytes.Buffer
	for i := 0; text.Len() < size; i++ {
		fmt.Fprintf(&text, "extern int declared_%08d_%s(int a, const char *b, unsigned long c);\n", i, strings.Repeat("y", 900))
	}
	if err := os.WriteFile(filepath.Join(b.tmp, name), text.Bytes(), 0o644); err != nil {
		return err
	}
	sides, f, done, err := b.contest("p13", "", []string{"gcc", "-c", name, "-o", "big.o"})
	if err != nil {
		return err
	}
	defer done()
	if err := b.compete("P13", sides, max(5, b.rounds/6), f); err != nil {
		return err
	}
	// Examining processes takes time of its own, so it is not done during the measurement.
	stop := peakOf(b.ctx, filepath.Join(b.bin, "rdistcc"))
	_, err = sides[1].run.run(b.ctx, 0, sides[1].env, b.tmp, sides[1].argv...)
	wrapper := stop()
	if err != nil {
		return f.trouble(err)
	}
	if err := f.check(); err != nil {
		return err
	}
	base := sides[0]
	for _, s := range sides {
		fmt.Printf("# %s, 20 MB: wall %.0f ms, CPU %.0f ms: client %.0f, manager %.0f, host %.0f\n",
			s.name, median(s.wall), median(s.cpu), median(s.client), median(s.mgr), median(s.far))
	}
	ours := median(diff(sides[1].wall, base.wall))
	if len(sides) < 3 {
		b.table.note("P13", "wall added, 20 MB of preprocessed source", fmt.Sprintf("%.0f ms", ours), "no distcc", "<= 1.0")
	} else {
		b.table.ratio("P13", "wall added, 20 MB of preprocessed source", "ms", ours, median(diff(sides[2].wall, base.wall)), "<= 1.0")
	}
	manager := resident(f.manager.cmd.Process.Pid)
	b.table.note("P13", "peak resident: wrapper; manager", fmt.Sprintf("%.0f MiB; %.0f MiB", mib(wrapper), mib(manager)), "-", "bounded by the pool")
	return nil
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// peakOf watches all processes that run the program at a path. The function that it returns ends that, and
// returns how many bytes the largest one had resident.
func peakOf(ctx context.Context, program string) func() int64 {
	ctx, cancel := context.WithCancel(ctx)
	var peak int64
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			procs, _ := filepath.Glob("/proc/[0-9]*/exe") // the pattern is right
			for _, exe := range procs {
				if to, err := os.Readlink(exe); err != nil || to != program {
					continue
				}
				if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(exe))); err == nil {
					peak = max(peak, resident(pid))
				}
			}
			<-tick.C
		}
	})
	return func() int64 {
		cancel()
		wg.Wait()
		return peak
	}
}

// resident returns the largest resident size that a process has had, in bytes; 0 for one that has ended.
func resident(pid int) int64 {
	status, err := os.ReadFile(procPath(pid, "status"))
	if err != nil {
		return 0
	}
	_, rest, ok := strings.Cut(string(status), "\nVmHWM:")
	if !ok {
		return 0
	}
	line, _, _ := strings.Cut(rest, "\n")
	kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(line), " kB"), 10, 64)
	return kib << 10
}
