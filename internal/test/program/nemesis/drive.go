package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// hung is how long a job may take before it counts as hanging and is killed.
const hung = 2 * time.Minute

// diagnostics is the reason of jobs about which a host's compiler printed something.
const diagnostics = "diagnostics"

// outcome is the outcome of a job.
type outcome struct {
	job      int
	host     string    // address of the relay; "": here
	reason   string    // for a job that ran here
	from, to time.Time // of its compile, on a host or here
	took     time.Duration
	repeats  int    // because its wrapper was struck, or the disk was full
	attempts int    // hosts that were given the job, in the last run
	wrong    string // what is not as it should be; "": nothing
	said     string // rdistcc's own line
	cached   bool   // the result came from the cache; of a job that is done twice, the second one
}

// driver runs the jobs as make does, a number at a time, and repeats those that ended for a reason that a
// developer would notice and fix.
type driver struct {
	s *site
	p plan

	mu      sync.Mutex
	flying  map[*flight]bool
	full    int // number of strikes under way that fill the disk here
	fills   int // number of such strikes so far
	results []outcome
	begun   time.Time
	ended   bool // all jobs have ended
}

// flight is a running wrapper.
type flight struct {
	job    int
	pid    int
	struck bool // the plan killed or interrupted its wrapper
}

// run does all jobs, width at a time; before each it calls at with the job's number.
func (d *driver) run(ctx context.Context, width int, at func(job int)) {
	d.flying, d.begun = make(map[*flight]bool), time.Now()
	turn := make(chan struct{}, width)
	var all sync.WaitGroup
	for i := range d.p.jobs {
		turn <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		at(i)
		all.Go(func() {
			o := d.job(ctx, i)
			d.mu.Lock()
			d.results = append(d.results, o)
			d.mu.Unlock()
			<-turn
		})
	}
	all.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
}

// over reports whether no job is left that a fault could hit.
func (d *driver) over() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ended
}

// on runs the first job once, with one host only.
func (d *driver) on(ctx context.Context, host string) outcome {
	o, _ := d.once(ctx, 0, &d.s.units[d.p.jobs[0]], "RDISTCC_HOSTS="+host, "RDISTCC_CACHE=off")
	return o
}

// job runs one job until it is done.
func (d *driver) job(ctx context.Context, i int) outcome {
	u := &d.s.units[d.p.jobs[i]]
	began := time.Now()
	for repeats := 0; ; repeats++ {
		o, again := d.once(ctx, i, u)
		if again && ctx.Err() == nil {
			continue
		}
		for d.s.cache && o.wrong == "" { // once more, which mostly comes from the cache
			second, again := d.once(ctx, i, u)
			if again && ctx.Err() == nil {
				continue
			}
			o.wrong, o.cached = second.wrong, second.cached
			break
		}
		o.job, o.repeats, o.took = i, repeats, time.Since(began)
		return o
	}
}

// once runs the command once. again reports that it ended because of what was done to it here.
func (d *driver) once(ctx context.Context, i int, u *unit, env ...string) (o outcome, again bool) {
	out := filepath.Join(d.s.out, fmt.Sprintf("job%d.o", i))
	trace := filepath.Join(d.s.root, fmt.Sprintf("trace%d", i))
	defer os.Remove(trace)
	defer os.Remove(out)
	cmd := d.s.command(append(slices.Clone(u.args), "-o", out)...)
	cmd.Env = append(append(cmd.Env, env...), "RDISTCC_TRACE="+trace)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	f := &flight{job: i}
	d.mu.Lock()
	fills := d.fills
	full := d.full > 0
	err := cmd.Start()
	if err == nil {
		f.pid = cmd.Process.Pid
		d.flying[f] = true
	}
	d.mu.Unlock()
	if err != nil {
		o.wrong = err.Error()
		return o, false
	}
	late := time.AfterFunc(hung, func() { _ = syscall.Kill(f.pid, syscall.SIGABRT) }) // the crash shows where it hangs
	err = cmd.Wait()
	d.mu.Lock()
	delete(d.flying, f)
	full = full || d.full > 0 || d.fills != fills
	struck := f.struck
	d.mu.Unlock()
	if !late.Stop() {
		o.wrong = fmt.Sprintf("hung for %v: %s", hung, stderr.String())
		return o, false
	}
	ended := time.Now()
	status := cmd.ProcessState.ExitCode()
	if status < 0 {
		status = 128 + int(cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
	}
	if struck && status > 128 {
		return o, true
	}
	said, words := split(stderr.String())
	o.said = said
	object, oerr := os.ReadFile(out)
	if full && status != u.status && strings.Contains(words, "No space left") {
		for d.isFull() && ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond)
		}
		return o, true
	}
	switch {
	case status != u.status:
		o.wrong = fmt.Sprintf("exit status %d, want %d (%v): %s", status, u.status, err, stderr.String())
	case u.object == nil && !errors.Is(oerr, os.ErrNotExist):
		o.wrong = "an object of a source that does not compile"
	case u.object != nil && !bytes.Equal(object, u.object):
		o.wrong = fmt.Sprintf("wrong object of %d bytes, want %d bytes: %v", len(object), len(u.object), oerr)
	case words != strings.ReplaceAll(u.stderr, outName, filepath.Base(out)):
		o.wrong = fmt.Sprintf("said %q, want %q", words, u.stderr)
	}
	if err := o.account(trace, ended, u.links); err != nil && o.wrong == "" {
		o.wrong = "no right account: " + err.Error()
	}
	// The compiler here made up for it, but the host's had a different source; or there was no room for
	// what the host sent.
	if o.reason == diagnostics && o.wrong == "" && !full && u.status == 0 && u.stderr == "" {
		o.wrong = "a host's compiler complains of a source that is right"
	}
	return o, false
}

func (d *driver) isFull() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.full > 0
}

// split separates rdistcc's own lines from the rest of a command's stderr.
func split(stderr string) (ours, compilers string) {
	for line := range strings.Lines(stderr) {
		if strings.HasPrefix(line, "rdistcc: ") {
			ours += line
		} else {
			compilers += line
		}
	}
	return strings.TrimSpace(ours), compilers
}

// record is what rdistcc says of a command.
type record struct {
	Where, Host, Reason string
	Attempts            int
	MS                  struct{ Compile, Return, Place, Local float64 }
}

// account reads the one record that the job must have; those of the parts too if it links. A link is where the worst of its parts is: here
// for want of a host, before on a host, before in the cache.
func (o *outcome) account(file string, ended time.Time, links bool) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var records []record
	own := 0
	for line := range bytes.Lines(text) {
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		if links && r.Reason == "link" {
			own++
			continue
		}
		records = append(records, r)
	}
	switch {
	case links && (own != 1 || len(records) < 2):
		return fmt.Errorf("%d records of a link, %d of its parts", own, len(records))
	case !links && len(records) != 1:
		return fmt.Errorf("%d records", len(records))
	}
	worst := slices.MaxFunc(records, func(a, b record) int { return slices.Index(rank, a.Where) - slices.Index(rank, b.Where) })
	return o.take(worst, ended)
}

// rank has the places of a command from the best on.
var rank = []string{"cached", "remote", "local"}

// take takes over a record.
func (o *outcome) take(r record, ended time.Time) error {
	ms := func(f float64) time.Duration { return time.Duration(f * float64(time.Millisecond)) }
	o.attempts = r.Attempts
	if r.Where == "cached" {
		o.cached = true
		return nil
	}
	if r.Where == "remote" {
		o.host = r.Host
		o.to = ended.Add(-ms(r.MS.Place + max(r.MS.Return, 0)))
		o.from = o.to.Add(-ms(r.MS.Compile))
		return nil
	}
	if r.Reason == "" {
		return errors.New("it ran here without a reason")
	}
	o.reason = r.Reason
	o.from, o.to = ended.Add(-ms(r.MS.Local)), ended
	return nil
}
