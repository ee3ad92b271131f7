package faults

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/internal/test/kit/relay"
)

// smallBuffers makes windows out of sources and objects of some hundred KB.
const smallBuffers = "buffers: {slot: 64KiB, sink: 64KiB, prefault: 64KiB, source: 16MiB, result: 16MiB, large: 32MiB}\n"

const smallObject = "char large[3000000] = {1};\n"

// variables is C of n variables, each some 45 bytes of text and of object.
func variables(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "int variable_with_a_long_name_%d = %d;\n", i, i)
	}
	return text.String()
}

// Settings with which every source is pulled, into memory in place of a slot.
const (
	takesPulls = "daemon: {carriers: [pull]}\n"
	pulls      = "manager: {carrier: pull}\n"
)

// declarations is C of n declarations, each some 50 bytes of text and none of object.
func declarations(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "extern int declared_with_a_long_name_%d(int, int);\n", i)
	}
	return text.String() + "int x;\n"
}

// TestBrokenWireInAFetch: the same trouble as TestBrokenWire, in the midst of RDMA
// Reads of a source and of an object; and a wire that goes dead there. The sources are
// too big for slots, or pulled as all others.
func TestBrokenWireInAFetch(t *testing.T) {
	part.Skip(t)
	t.Parallel()
	t.Run("windows", func(t *testing.T) { t.Parallel(); brokenInAFetch(t, smallBuffers, smallBuffers, smallObjects) })
	t.Run("pulled", func(t *testing.T) { t.Parallel(); brokenInAFetch(t, takesPulls, pulls, nil) })
}

// smallObjects wants that results were fetched as well.
func smallObjects(t *testing.T, m map[string]float64) {
	if m[`rdistccd_windows_total{what="source"}`] == 0 || m[`rdistccd_windows_total{what="result"}`] == 0 {
		t.Errorf("windows: %v and %v, want some of each", m[`rdistccd_windows_total{what="source"}`], m[`rdistccd_windows_total{what="result"}`])
	}
}

func brokenInAFetch(t *testing.T, daemon, manager string, check func(t *testing.T, m map[string]float64)) {
	s := newSite(t)
	d := s.daemon("d1", daemon+soon, "--jobs", "2")
	s.manager("", manager+soon+"scheduler: {backoff: 10ms, backoff-max: 20ms}\n")
	s.file("large.c", variables(10000))
	s.atRest() // without any connection
	wires := []wire{
		{"source", bend{flipAt: 150000}, bend{}},
		{"source cut", bend{cutAt: 150001}, bend{}},
		{"source twice", bend{twiceAt: 150002}, bend{}},
		{"source with a hole", bend{dropAt: 150003}, bend{}},
		{"source that stops", bend{stopAt: 150004}, bend{}},
		{"object", bend{}, bend{flipAt: 150000}},
		{"object cut", bend{}, bend{cutAt: 150001}},
		{"object twice", bend{}, bend{twiceAt: 150002}},
		{"object with a hole", bend{}, bend{dropAt: 150003}},
		{"object that stops", bend{}, bend{stopAt: 150004}},
	}
	results := s.overWires(d.Addr, wires)
	for i, w := range wires {
		if o := results[i]; o.status != 0 || o.report == "" {
			t.Errorf("%s: %+v", w.name, o)
		}
		s.sameObject(wireObject(i), "gcc", "-c", "large.c")
	}
	if m := s.metrics(d); check != nil {
		check(t, m)
	} else if m[`rdistccd_carriers_total{carrier="pull"}`] == 0 || m[`rdistccd_carriers_total{carrier="write"}`] != 0 {
		t.Errorf("carriers: %v pulled, %v written", m[`rdistccd_carriers_total{carrier="pull"}`], m[`rdistccd_carriers_total{carrier="write"}`])
	}
	o := s.run([]string{"RDISTCC_HOSTS=" + d.Addr}, "gcc", "-c", "large.c", "-o", "again.o")
	if o.status != 0 || o.report != "remote:"+d.Addr {
		t.Errorf("afterwards: %+v", o)
	}
	s.eventually("rest", s.busy)
	if err := s.Manager.Stop(); err != nil {
		t.Error(err)
	}
	s.clean()
}

// fetching waits until a process holds memory of a source or result under way.
func (s *site) fetching(p farm.Process, name string) {
	s.t.Helper()
	s.eventually("fetch", func() string {
		if s.metrics(p)[name] > 0 {
			return ""
		}
		return name + " is 0"
	})
}

// TestEndsInAFetch: a wrapper that is killed, a daemon that is killed or drains while a source, or an
// object, is on its way: nothing is kept, and the command, if it still exists, completes.
func TestEndsInAFetch(t *testing.T) {
	part.Skip(t)
	t.Parallel()
	for _, what := range []string{"source", "object", "pulled"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			daemon, manager := smallBuffers, smallBuffers
			if what == "pulled" {
				daemon, manager = takesPulls, pulls
			}
			// A busy machine, on a path this slow, is silent for longer than usual.
			daemon, manager = daemon+"limits: {silence: 30s}\n", manager+"limits: {silence: 30s}\n"
			d1 := s.daemon("d1", daemon, "--jobs", "2")
			s.manager("", manager+"scheduler: {backoff: 10ms, backoff-max: 20ms, connect-grace: 30s}\n")
			s.file("object.c", smallObject)
			s.file("source.c", variables(60000))    // 2.7 MB
			s.file("pulled.c", declarations(60000)) // with a small object
			s.atRest()                              // without any connection
			file := what + ".c"
			// Slow enough that it is met on its way, quick enough to get to its end.
			slow := crooked(t, d1.Addr, bend{rate: 1 << 20}, bend{rate: 1 << 20})
			// Of either there is a copy at the host while it is on its way, if nothing
			// makes it so short that it goes at once.
			series, plain := "rdistccd_large_bytes", ",plain"
			if what == "pulled" {
				series = "rdistccd_fetched_ahead"
			}

			j := s.start([]string{"RDISTCC_HOSTS=" + slow + plain}, "gcc", "-c", file)
			s.fetching(d1, series)
			if err := j.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			j.wait()
			s.eventually("rest", s.busy)

			d2 := s.daemon("d2", daemon, "--jobs", "2")
			slow2 := crooked(t, d2.Addr, bend{rate: 1 << 20}, bend{rate: 1 << 20})
			// The other host is out of reach until the job is on its way to this one: it
			// is quicker, and on a busy machine may be there first.
			other, err := relay.New(d1.Addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(other.Close)
			other.Hold()
			j = s.start([]string{"RDISTCC_HOSTS=" + slow2 + plain + " " + other.Addr() + plain}, "gcc", "-c", file)
			s.fetching(d2, series)
			other.Release()
			d2.Kill()
			if o := j.wait(); o.status != 0 || o.report != "remote:"+other.Addr() {
				t.Errorf("%s: %+v, want it at the other host", what, o)
			}
			s.sameObject(what+".o", "gcc", "-c", file)
			s.eventually("rest", s.busy)

			j = s.start([]string{"RDISTCC_HOSTS=" + slow + plain}, "gcc", "-c", file)
			s.fetching(d1, series)
			if err := d1.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if o := j.wait(); o.status != 0 || o.report != "remote:"+slow {
				t.Errorf("%s: %+v, want it finished by the daemon that drains", what, o)
			}
			s.sameObject(what+".o", "gcc", "-c", file)
			s.eventually("end of the daemon", func() string {
				if d1.Running() {
					return "it runs"
				}
				return ""
			})
			s.clean()
		})
	}
}

// TestManagerDiesWhilePulled: the daemon that reads a source, and one whose job waits unread, let go of all of
// it when the manager is killed; the wrappers compile here.
func TestManagerDiesWhilePulled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.daemon("d1", takesPulls, "--jobs", "1")
	slow := crooked(t, d.Addr, bend{rate: 1 << 20}, bend{rate: 1 << 20})
	s.manager(slow+",plain", pulls)
	s.atRest()
	var jobs []*running
	for _, name := range []string{"one.c", "two.c", "three.c"} {
		s.file(name, variables(60000))
		jobs = append(jobs, s.start(nil, "gcc", "-c", name))
	}
	s.fetching(d, "rdistccd_fetched_ahead")
	s.Manager.Kill()
	for _, j := range jobs {
		if o := j.wait(); o.status != 0 || !strings.HasPrefix(o.report, "local:") {
			t.Errorf("%+v, want it here", o)
		}
	}
	s.sameObject("three.o", "gcc", "-c", "three.c")
	s.eventually("an idle daemon", func() string {
		m := s.metrics(d)
		if n := m["rdistccd_fetched_ahead"] + m["rdistccd_jobs_queued"] + m["rdistccd_clients"]; n != 0 {
			return fmt.Sprint(n, " of something")
		}
		return ""
	})
}

// TestFiftyMegabytes: with settings as they come, 50 MB of preprocessed text and an
// object of 40 MB are compiled on a host, with the same result, and no program keeps
// or ever takes more than the text, the object and what it has at rest.
func TestFiftyMegabytes(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles 50 MB")
	}
	t.Parallel()
	s := newSite(t)
	d := s.daemon("d1", "", "--jobs", "2")
	s.manager(d.Addr, "")
	s.remote(d.Addr)
	s.atRest()
	const megabytes = 1 << 20
	var text strings.Builder
	for i := 0; text.Len() < 50*megabytes; i++ {
		fmt.Fprintf(&text, "extern int declared_%08d_%s(int a, const char *b, unsigned long c);\n", i, strings.Repeat("y", 900))
	}
	text.WriteString("int last(int x) { return x + 1; }\n")
	s.file("text.c", text.String())
	s.file("object.c", "char large["+strconv.Itoa(40*megabytes)+"] = {1};\n")
	for _, name := range []string{"text", "object"} {
		o := s.run(nil, "gcc", "-c", name+".c")
		if o.status != 0 || o.stderr != "" || o.report != "remote:"+d.Addr {
			t.Fatalf("%s: %+v", name, o)
		}
		s.sameObject(name+".o", "gcc", "-c", name+".c")
	}
	s.clean()
	for _, p := range s.members() {
		peak, now := s.resident(p, "VmHWM"), s.resident(p, "VmRSS")
		t.Logf("%s: at most %d MiB, now %d MiB", p.Name, peak/megabytes, now/megabytes)
		if peak > 50*megabytes+64*megabytes || now > 64*megabytes {
			t.Errorf("%s: at most %d MiB, now %d MiB resident", p.Name, peak/megabytes, now/megabytes)
		}
	}
}

// resident reads a line of a process's status, in bytes.
func (s *site) resident(p farm.Process, name string) int {
	s.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		s.t.Fatal(err)
	}
	m := regexp.MustCompile(name + `:\s+(\d+) kB`).FindSubmatch(b)
	if m == nil {
		s.t.Fatalf("no %s in %s", name, b)
	}
	n, _ := strconv.Atoi(string(m[1]))
	return n << 10
}
