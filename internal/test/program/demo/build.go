package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
)

// result is the result of building a code base.
type result struct {
	name        string
	units       int
	local, farm time.Duration // wall time of all compiles
	hosts       map[string]int
	fallbacks   map[string]int // by reason
	sent, got   int64          // bytes
	differing   []string       // objects
	shown       string         // shown by running what was built
	sample      string         // a line that the wrapper printed about a fallback
}

// unit is one compile.
type unit struct {
	source string
	object string
	args   []string // without the compiler and the output
}

// build compiles base locally and on the farm, compares, links the farm's objects and runs the result. It
// reports its progress on out.
func build(ctx context.Context, out screen, f *farm.Farm, base fetched, jobs int) (result, error) {
	r := result{name: base.name, shown: base.shown, hosts: map[string]int{}, fallbacks: map[string]int{}}
	sources, err := base.sources(base.root, base.out)
	if err != nil {
		return r, err
	}
	r.units = len(sources)
	units := make([]unit, len(sources))
	for i, s := range sources {
		args := slices.Clone(base.flags)
		if base.extra != nil {
			args = append(args, base.extra(s)...)
		}
		units[i] = unit{s, strings.ReplaceAll(strings.TrimPrefix(s, base.out+"/"), "/", "_") + ".o", append(args, "-c", s)}
	}

	fmt.Fprintf(out, "%s: %d files with %s\n", base.name, len(units), base.cc)
	local := filepath.Join(base.out, "local")
	compiling := out.begin("here alone", len(units))
	_, err = compileAll(ctx, base.root, local, []string{base.cc}, os.Environ(), units, runtime.NumCPU(), compiling.add)
	if r.local = compiling.end(); err != nil {
		return r, err
	}
	fmt.Fprintf(out, "  here alone    %6.1f s\n", r.local.Seconds())
	remote := filepath.Join(base.out, "remote")
	trace := filepath.Join(base.out, "trace")
	env := append(f.Env(), "RDISTCC_MODE=remote", "RDISTCC_TRACE="+trace)
	compiling = out.begin("with rdistcc", len(units))
	said, err := compileAll(ctx, base.root, remote, []string{f.Wrapper, base.cc}, env, units, jobs, compiling.add)
	if r.farm = compiling.end(); err != nil {
		return r, err
	}
	fmt.Fprintf(out, "  with rdistcc  %6.1f s\n", r.farm.Seconds())
	r.sample = firstLine(said)

	if err := r.readTrace(trace); err != nil {
		return r, err
	}
	for _, u := range units {
		same, err := equalFiles(filepath.Join(local, u.object), filepath.Join(remote, u.object))
		if err != nil {
			return r, err
		}
		if !same {
			r.differing = append(r.differing, u.source)
		}
	}
	if base.brief != nil {
		r.shown = ""
		return r, nil
	}
	for _, l := range base.links {
		if err := l.run(ctx, base, remote, units); err != nil {
			return r, err
		}
	}
	return r, base.check(ctx, base.ctl)
}

// compileAll compiles units into the new directory out, jobs at a time, and returns what was printed. It
// calls done after each, from several goroutines.
func compileAll(ctx context.Context, root, out string, command, env []string, units []unit, jobs int, done func()) (string, error) {
	if err := os.Mkdir(out, 0o755); err != nil {
		return "", err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(jobs)
	var mu sync.Mutex
	var printed bytes.Buffer // guarded by mu
	for _, u := range units {
		g.Go(func() error {
			args := append(slices.Clone(command[1:]), u.args...)
			cmd := exec.CommandContext(ctx, command[0], append(args, "-o", filepath.Join(out, u.object))...)
			cmd.Dir, cmd.Env = root, env
			text, err := cmd.CombinedOutput()
			mu.Lock()
			defer mu.Unlock()
			printed.Write(text)
			if err != nil {
				return fmt.Errorf("%s: %w: %s", u.source, err, firstLine(string(text)))
			}
			done()
			return nil
		})
	}
	err := g.Wait()
	return printed.String(), err
}

// run links a program from the farm's objects. That is done here: linking is never sent.
func (l link) run(ctx context.Context, base fetched, objects string, units []unit) error {
	args := []string{"-o", l.program}
	for _, u := range units {
		if !slices.Contains(l.without, u.source) {
			args = append(args, filepath.Join(objects, u.object))
		}
	}
	return execute(ctx, base.out, base.cc, append(args, l.libs...)...)
}

// readTrace counts where the jobs were done.
func (r *result) readTrace(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("the wrapper wrote no trace: %w", err)
	}
	jobs := 0
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); jobs++ {
		var job struct {
			Where  string
			Host   string
			Reason string
			Bytes  struct{ Out, In int64 }
		}
		if err := json.Unmarshal(lines.Bytes(), &job); err != nil {
			return fmt.Errorf("trace: %w", err)
		}
		if job.Where == "remote" {
			r.hosts[job.Host]++
		} else {
			r.fallbacks[job.Reason]++
		}
		r.sent += job.Bytes.Out
		r.got += job.Bytes.In
	}
	if jobs != r.units {
		return fmt.Errorf("the wrapper's trace has %d jobs of %d", jobs, r.units)
	}
	return nil
}
