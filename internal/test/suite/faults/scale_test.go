package faults

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
)

// scaled is a farm whose hosts come and go under a build, as an orchestrator lets them.
type scaled struct {
	*site
	cc    string
	hosts string // file with the addresses that a name server would have

	compiled atomic.Int64 // sources that are done
}

// newScaled starts a farm of the daemons d1 to dN.
func newScaled(t *testing.T, n int) (s *scaled, hosts []farm.Process) {
	s = &scaled{site: newSite(t)}
	dir := filepath.Dir(farmtest.StandIn(t))
	s.cc, s.hosts = filepath.Join(dir, "gcc"), filepath.Join(s.root, "hosts")
	for i := range n {
		hosts = append(hosts, s.daemon(fmt.Sprintf("d%d", i+1), "toolchains: {dirs: ["+dir+"]}\n", "--jobs", "4"))
	}
	s.listed(hosts...)
	s.manager("file+"+s.hosts, "local: {share: false}\nscheduler: {audit: 0, connect-grace: 1m}\nlinks: {idle: 1s}\n")
	return s, hosts
}

// listed makes the name server know these hosts and no others.
func (s *scaled) listed(hosts ...farm.Process) {
	s.t.Helper()
	var text strings.Builder
	for _, h := range hosts {
		fmt.Fprintln(&text, h.Addr)
	}
	if err := os.WriteFile(s.hosts+".new", []byte(text.String()), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(s.hosts+".new", s.hosts); err != nil {
		s.t.Fatal(err)
	}
}

// build begins to compile one source after the other, eight at a time, until stop is called. stop waits for them, and wants the object of
// each to be what the compiler makes here.
func (s *scaled) build() (stop func()) {
	var all sync.WaitGroup
	var n atomic.Int64
	var ended atomic.Bool
	for range 8 {
		all.Go(func() {
			for !ended.Load() {
				name := fmt.Sprintf("x%d.c", n.Add(1))
				s.file(name, fmt.Sprintf("/* stand-in: sleep 50 output 2000 */\nint unit_%s;\n", strings.TrimSuffix(name, ".c")))
				o := s.run([]string{"RDISTCC_MODE=remote"}, s.cc, "-c", name)
				if o.status != 0 || o.stderr != "" || !strings.HasPrefix(o.report, "remote:") {
					s.t.Errorf("%s: %+v", name, o)
					return
				}
				s.sameAsHere(name)
				s.compiled.Add(1)
			}
		})
	}
	return func() {
		ended.Store(true)
		all.Wait()
		s.t.Logf("%d compiles", n.Load())
	}
}

// sameAsHere wants the object of a source to be what the compiler makes here.
func (s *scaled) sameAsHere(source string) {
	plain := s.command(nil, s.cc, "-c", source, "-o", source+".plain")
	if out, err := plain.CombinedOutput(); err != nil {
		s.t.Errorf("%s: %v, %s", source, err, out)
		return
	}
	want, err := os.ReadFile(filepath.Join(s.work, source+".plain"))
	got, gotErr := os.ReadFile(filepath.Join(s.work, strings.TrimSuffix(source, ".c")+".o"))
	if err != nil || gotErr != nil || !bytes.Equal(got, want) {
		s.t.Errorf("%s: another object than here: %d and %d bytes, %v, %v", source, len(got), len(want), err, gotErr)
	}
}

// busyOn waits until a host has jobs under way.
func (s *scaled) busyOn(h farm.Process) {
	s.t.Helper()
	s.eventually("jobs on "+h.Name, func() string {
		if s.metrics(h)["rdistccd_jobs_running"] < 2 {
			return "it is idle"
		}
		return ""
	})
}

// TestScaleDown: under a build, a host gets what an orchestrator does when it removes one: name servers forget it, and SIGTERM. It
// ends by itself when it has answered what it had, and no job has to be done again. Another host comes instead, and gets jobs.
func TestScaleDown(t *testing.T) {
	t.Parallel()
	s, hosts := newScaled(t, 2)
	stop := s.build()
	s.busyOn(hosts[0])
	s.busyOn(hosts[1])
	third := s.daemon("d3", "toolchains: {dirs: ["+filepath.Dir(s.cc)+"]}\n", "--jobs", "4")
	s.listed(hosts[0], third)
	if err := hosts[1].Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience) // the grace, before a pod is killed
	defer cancel()
	if status, err := hosts[1].Ended(ctx); status != 0 || err != nil {
		t.Errorf("the host ended with %d, %v", status, err)
	}
	s.busyOn(third)
	stop()
	if m := s.metrics(s.Manager); m["rdistcc_cm_fallbacks_total"] != 0 {
		t.Errorf("%v compiles ran locally", m["rdistcc_cm_fallbacks_total"])
	}
	for series, n := range s.metrics(s.Manager) {
		if strings.HasPrefix(series, "rdistcc_cm_jobs_total{") && strings.Contains(series, `place="local"`) && n != 0 {
			t.Errorf("%s %v", series, n)
		}
	}
	log, err := os.ReadFile(hosts[1].Log)
	if err != nil || !strings.Contains(string(log), "draining: what runs is finished") {
		t.Errorf("the host has not drained: %v", err)
	}
}

// TestPodKilledAtOnce: a host that is killed under a build, as when its node is gone, and that name servers forget only then, costs
// repeated work and no job.
func TestPodKilledAtOnce(t *testing.T) {
	t.Parallel()
	s, hosts := newScaled(t, 2)
	stop := s.build()
	s.busyOn(hosts[0])
	s.busyOn(hosts[1])
	hosts[1].Kill()
	s.listed(hosts[0])
	// If a second host was working on each of its jobs already, none has to be given to another one: then the build goes on.
	const more = 100
	before := s.compiled.Load()
	s.eventually("the loss of the host's jobs", func() string {
		if s.metrics(s.Manager)["rdistcc_cm_retries_total"] == 0 && s.compiled.Load() < before+more {
			return "none has been given to another host"
		}
		return ""
	})
	stop()
	if m := s.metrics(s.Manager); m["rdistcc_cm_fallbacks_total"] != 0 {
		t.Errorf("%v compiles ran locally", m["rdistcc_cm_fallbacks_total"])
	}
}
