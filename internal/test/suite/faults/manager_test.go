package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
)

// sleepers writes n sources that take the stand-in some milliseconds.
func (s *site) sleepers(n, ms int) (names []string) {
	for i := range n {
		name := fmt.Sprintf("sleep%d.c", i)
		s.file(name, fmt.Sprintf("/* stand-in: sleep %d output 2000 */\nint unit_%d;\n", ms, i))
		names = append(names, name)
	}
	return names
}

// atOnce starts a compile of each source, all of them before the first is waited for.
func (s *site) atOnce(cc string, sources []string, started func()) []outcome {
	s.t.Helper()
	results := make([]outcome, len(sources))
	jobs := make([]*running, len(sources))
	for i, name := range sources {
		jobs[i] = s.start(nil, cc, "-c", name)
	}
	if started != nil {
		started()
	}
	var all sync.WaitGroup
	for i, j := range jobs {
		all.Go(func() { results[i] = j.wait() })
	}
	all.Wait()
	return results
}

// rightStandin wants the object that the stand-in makes here.
func (s *site) rightStandin(cc, source string) {
	s.t.Helper()
	s.sameObject(strings.TrimSuffix(source, ".c")+".o", cc, "-c", source)
}

// further starts a further manager with the settings that the site's had, and returns
// when it serves.
func (s *site) further(binary string, args ...string) *exec.Cmd {
	s.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	defer r.Close()
	log, err := os.OpenFile(filepath.Join(s.Dir, "further.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	cmd := s.command([]string{"RDISTCC_READY_FD=3"}, append([]string{binary, "--http", "127.0.0.1:0"}, args...)...)
	cmd.ExtraFiles, cmd.Stderr = []*os.File{w}, log
	err = cmd.Start()
	w.Close()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if n, err := r.Read(make([]byte, 1)); n != 1 {
		s.t.Fatalf("a further manager does not serve: %v", err)
	}
	return cmd
}

// TestManagerIsReplaced: managers take over from one another in the midst of a build,
// and no command notices.
func TestManagerIsReplaced(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	cc := filepath.Dir(farmtest.StandIn(t))
	d := s.daemon("d1", "toolchains: {dirs: ["+cc+"]}\n", "--jobs", "8")
	cc = filepath.Join(cc, "gcc")
	// A new manager has no connection yet: how long its first commands wait for one, and whether this
	// machine is faster, is not tested here.
	const settings = "local: {share: false}\nscheduler: {audit: 0, connect-grace: 1m}\nlinks: {idle: 1s}\n"
	s.manager(d.Addr, settings)
	sources := s.sleepers(120, 20)
	if o := s.run(nil, cc, "-c", sources[0]); o.report != "remote:"+d.Addr {
		t.Fatalf("%+v", o)
	}
	binary := filepath.Join(filepath.Dir(s.Wrapper), "rdistcc-cm")
	stop := make(chan struct{})
	var all sync.WaitGroup
	next := make(chan string, len(sources))
	for _, name := range sources {
		next <- name
	}
	close(next)
	for range 8 {
		all.Go(func() {
			for name := range next {
				if o := s.run(nil, cc, "-c", name); o.status != 0 || o.report != "remote:"+d.Addr || o.stderr != "" {
					t.Errorf("%s: %+v", name, o)
				}
				s.hasObject(cc, name)
			}
		})
	}
	go func() { all.Wait(); close(stop) }()
	var managers []*exec.Cmd
	args := append(s.settings("further", settings), "--replace", "--hosts", d.Addr)
	for n := 0; n < 8; n++ {
		managers = append(managers, s.further(binary, args...))
		select {
		case <-stop:
			n = 8
		default:
		}
	}
	<-stop
	t.Logf("replaced %d times", len(managers))
	for _, m := range managers[:len(managers)-1] {
		if err := m.Wait(); err != nil {
			t.Errorf("a manager that was replaced: %v", err)
		}
	}
	s.eventually("end of the first one", func() string {
		if s.Manager.Running() {
			return "it runs"
		}
		return ""
	})
	if out, err := s.command(nil, s.Wrapper, "stop").CombinedOutput(); err != nil {
		t.Errorf("stop: %v: %s", err, out)
	}
	_ = managers[len(managers)-1].Wait() // it was told to
	s.clean()
}

// hasObject wants some object of a source; several goroutines may.
func (s *site) hasObject(cc, source string) {
	object := filepath.Join(s.work, strings.TrimSuffix(source, ".c")+".o")
	got, err := os.ReadFile(object)
	if err != nil || len(got) < 2000 {
		s.t.Errorf("%s: %d bytes, %v", object, len(got), err)
	}
}

// otherVersion builds wrapper and manager as a later version has them, with another
// number for the protocol between them.
func (s *site) otherVersion() (wrapper, manager string) {
	s.t.Helper()
	source, err := filepath.Abs("../../../../pkg/connmgr/ipc/ipc.go")
	if err != nil {
		s.t.Fatal(err)
	}
	text, err := os.ReadFile(source)
	if err != nil {
		s.t.Fatal(err)
	}
	const line = "const Version = "
	before, after, ok := strings.Cut(string(text), line)
	number, after, ok2 := strings.Cut(after, "\n")
	n, err := strconv.Atoi(number)
	if !ok || !ok2 || err != nil {
		s.t.Fatalf("no version of the protocol in %s", source)
	}
	dir := filepath.Join(s.root, "later")
	if err := os.Mkdir(dir, 0o755); err != nil {
		s.t.Fatal(err)
	}
	changed := filepath.Join(dir, "ipc.go")
	if err := os.WriteFile(changed, []byte(before+line+strconv.Itoa(n+1)+"\n"+after), 0o600); err != nil {
		s.t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {source: changed}})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		s.t.Fatal(err)
	}
	bin, err := farmtest.Build(s.t.Context(), []string{"-overlay", filepath.Join(dir, "overlay.json")}, "rdistcc", "rdistcc-cm")
	if err != nil {
		s.t.Fatal(err)
	}
	return filepath.Join(bin, "rdistcc"), filepath.Join(bin, "rdistcc-cm")
}

// TestVersionsMeet: a wrapper that is newer than the manager puts one of its own in its
// place, in the midst of what the old one does; an older wrapper compiles here and says
// so in a line, and does not put back what is newer.
func TestVersionsMeet(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	cc := filepath.Dir(farmtest.StandIn(t))
	d := s.daemon("d1", "toolchains: {dirs: ["+cc+"]}\n", "--jobs", "4")
	cc = filepath.Join(cc, "gcc")
	s.Vars = append(s.Vars, "RDISTCC_HOSTS="+d.Addr)
	old := s.Wrapper
	later, _ := s.otherVersion()
	sources := s.sleepers(12, 10)
	s.file("slow.c", "/* stand-in: sleep 3000 output 2000 */\nint slow;\n")
	if o := s.run(nil, cc, "-c", sources[0]); o.report != "remote:"+d.Addr { // starts the older manager
		t.Fatalf("%+v", o)
	}
	slow := s.start(nil, cc, "-c", "slow.c")
	s.eventually("the slow one", func() string {
		if n := s.metrics(d)["rdistccd_jobs_running"]; n != 1 {
			return fmt.Sprint(n, " run")
		}
		return ""
	})
	s.Wrapper = later
	for _, o := range s.atOnce(cc, sources, nil) {
		if o.status != 0 || o.report != "remote:"+d.Addr || o.stderr != "" {
			t.Errorf("newer wrapper: %+v", o)
		}
	}
	if o := slow.wait(); o.report != "remote:"+d.Addr || o.stderr != "" {
		t.Errorf("what the older manager had: %+v", o)
	}
	s.Wrapper = old
	for range 2 {
		o := s.run(nil, cc, "-c", sources[0])
		if o.status != 0 || o.report != "local:manager" {
			t.Errorf("older wrapper: %+v", o)
		}
		s.oneLine(o.stderr, "rdistcc: the connection manager is of another version.*; compiled here")
	}
	s.Wrapper = later
	if o := s.run(nil, cc, "-c", sources[1]); o.report != "remote:"+d.Addr || o.stderr != "" {
		t.Errorf("newer wrapper again: %+v", o)
	}
	s.rightStandin(cc, sources[1])
	// Either one ends it.
	if out, err := s.command(nil, old, "stop").CombinedOutput(); err != nil {
		t.Errorf("stop: %v: %s", err, out)
	}
}

// TestManagerKilledWithAHundredJobs: each of their wrappers compiles here, the next one
// starts a manager, and the host has nothing of the old one's any more.
func TestManagerKilledWithAHundredJobs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	cc := filepath.Dir(farmtest.StandIn(t))
	d := s.daemon("d1", "toolchains: {dirs: ["+cc+"]}\n", "--jobs", "100")
	cc = filepath.Join(cc, "gcc")
	s.Vars = append(s.Vars, "RDISTCC_HOSTS="+d.Addr)
	s.manager("", "buffers: {slots: 128}\nlocal: {share: false, preprocess: 100}\n")
	s.atRest()
	// Long at the host; the wrappers go on with a quick one.
	var sources []string
	for i := range 100 {
		name := fmt.Sprintf("long%d.c", i)
		s.file(name, fmt.Sprintf("/* stand-in: sleep 600000 output 2000 */\nint unit_%d;\n", i))
		sources = append(sources, name)
	}
	var killed time.Time
	results := s.atOnce(cc, sources, func() {
		s.eventually("a hundred jobs", func() string {
			if n := s.metrics(d)["rdistccd_jobs_running"]; n != 100 {
				return fmt.Sprint(n, " run")
			}
			return ""
		})
		for i, name := range sources {
			s.file(name+".new", fmt.Sprintf("/* stand-in: output 2000 */\nint unit_%d;\n", i))
			if err := os.Rename(filepath.Join(s.work, name+".new"), filepath.Join(s.work, name)); err != nil {
				t.Error(err)
			}
		}
		killed = time.Now()
		s.Manager.Kill()
	})
	t.Logf("all hundred done %v after the kill", time.Since(killed).Round(time.Millisecond))
	here := 0
	for i, o := range results {
		switch {
		case o.status == 0 && o.stderr == "" && o.report == "remote:"+d.Addr:
		case o.status == 0 && o.report == "local:manager": // the next one did not start in time
			s.oneLine(o.stderr, "rdistcc: connection manager .*; compiled here")
			here++
		default:
			t.Errorf("%s: %+v", sources[i], o)
		}
	}
	t.Logf("%d of them here", here)
	s.rightStandin(cc, sources[0])
	s.eventually("end of the jobs at the host", func() string {
		if n := s.metrics(d)["rdistccd_jobs_running"]; n != 0 {
			return fmt.Sprint(n, " run")
		}
		return ""
	})
	if o := s.run(nil, cc, "-c", sources[1]); o.report != "remote:"+d.Addr || o.stderr != "" {
		t.Errorf("the next one: %+v", o)
	}
	if out, err := s.command(nil, s.Wrapper, "stop").CombinedOutput(); err != nil {
		t.Errorf("stop: %v: %s", err, out)
	}
	s.clean()
}

// TestFiveHundredWrappers: one manager serves all, within bounds of memory, goroutines and descriptors;
// afterwards it holds what it held before.
func TestFiveHundredWrappers(t *testing.T) {
	t.Parallel()
	const n = 500
	s := newSite(t)
	cc := filepath.Dir(farmtest.StandIn(t))
	d := s.daemon("d1", "toolchains: {dirs: ["+cc+"]}\n", "--jobs", "8")
	cc = filepath.Join(cc, "gcc")
	s.manager(d.Addr, "buffers: {slots: 16}\nlog: {level: warn}\n")
	sources := s.sleepers(n, 1)
	if o := s.run(nil, cc, "-c", sources[0]); o.report != "remote:"+d.Addr {
		t.Fatalf("%+v", o)
	}
	s.atRest()
	before := s.memory(s.Manager)
	soft, hard := s.descriptorLimit(s.Manager)
	if soft != hard {
		t.Errorf("descriptors: %d of %d are allowed", soft, hard)
	}
	for i, o := range s.atOnce(cc, sources, nil) {
		if o.status != 0 || o.report != "remote:"+d.Addr || o.stderr != "" {
			t.Errorf("%s: %+v", sources[i], o)
		}
	}
	for _, name := range sources {
		s.hasObject(cc, name)
	}
	most := s.memory(s.Manager)
	t.Logf("manager: %d KiB before, %d KiB at most, %d processors", before.now, most.most, runtime.NumCPU())
	// 16 slots of a source and a sink, of which 1 MiB is kept each, and some for 500
	// connections: the bound does not know of the commands' number.
	if limit := before.now + 2*16*1024 + 64*1024; most.most > limit {
		t.Errorf("the manager took %d KiB, want at most %d", most.most, limit)
	}
	s.eventually("goroutines to end", func() string {
		if g := s.metrics(s.Manager)["go_goroutines"]; g > 60 {
			return fmt.Sprint(g, " goroutines")
		}
		return ""
	})
	s.clean()
}

// memory is what a process has resident, in KiB: now, and at most so far.
type memory struct{ now, most int }

func (s *site) memory(p farm.Process) (m memory) {
	s.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.Atoi(f[1]) // other lines hold words
		switch f[0] {
		case "VmRSS:":
			m.now = n
		case "VmHWM:":
			m.most = n
		}
	}
	return m
}

// descriptorLimit is the limit on a process's descriptors.
func (s *site) descriptorLimit(p farm.Process) (soft, hard uint64) {
	s.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", p.PID()))
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "Max open files"); ok {
			if _, err := fmt.Sscan(rest, &soft, &hard); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	return soft, hard
}

// TestDrainedByHand: a host that was drained by hand gets nothing new, from the next
// manager neither, until it is undrained.
func TestDrainedByHand(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.daemon("d1", "", "--jobs", "8")
	s.manager(d.Addr, "")
	s.remote(d.Addr)
	if out, err := s.command(nil, s.Wrapper, "drain", d.Addr).CombinedOutput(); err != nil {
		t.Fatalf("drain: %v: %s", err, out)
	}
	if o := s.run(nil, "gcc", "-c", "hello.c"); o.report != "local:refused:draining" {
		t.Errorf("on a drained host: %+v", o)
	}
	next := s.further(filepath.Join(filepath.Dir(s.Wrapper), "rdistcc-cm"), "--replace", "--hosts", d.Addr)
	s.eventually("a connection of the next manager", func() string {
		if n := s.metrics(d)["rdistccd_clients"]; n < 1 {
			return fmt.Sprint(n)
		}
		return ""
	})
	if o := s.run(nil, "gcc", "-c", "hello.c"); o.report != "local:refused:draining" {
		t.Errorf("with the next manager: %+v", o)
	}
	if out, err := s.command(nil, s.Wrapper, "undrain", d.Addr).CombinedOutput(); err != nil {
		t.Fatalf("undrain: %v: %s", err, out)
	}
	s.remote(d.Addr)
	if out, err := s.command(nil, s.Wrapper, "stop").CombinedOutput(); err != nil {
		t.Errorf("stop: %v: %s", err, out)
	}
	_ = next.Wait() // it was told to
}

// TestSixtyFourCommandsKilled: the group of a make and its 64 commands is killed; their
// compiles end at the host, and the manager holds what it held before.
func TestSixtyFourCommandsKilled(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("no make")
	}
	s := newSite(t)
	cc := filepath.Dir(farmtest.StandIn(t))
	d := s.daemon("d1", "toolchains: {dirs: ["+cc+"]}\n", "--jobs", "64")
	cc = filepath.Join(cc, "gcc")
	s.manager(d.Addr, "local: {preprocess: 64}\n")
	s.file("long.c", "/* stand-in: sleep 600000 output 2000 */\n")
	s.file("Makefile", "all: $(patsubst %,unit%.o,$(shell seq 64))\nunit%.o: long.c\n\t@"+s.Wrapper+" "+cc+" -c long.c -o $@\n")
	s.file("quick.c", "/* stand-in: output 2000 */\n")
	if o := s.run(nil, cc, "-c", "quick.c"); o.report != "remote:"+d.Addr {
		t.Fatalf("%+v", o)
	}
	s.atRest()
	cmd := s.command([]string{"MAKEFLAGS="}, "make", "-j64")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.eventually("64 compiles", func() string {
		if n := s.metrics(d)["rdistccd_jobs_running"]; n != 64 {
			return fmt.Sprint(n, " run")
		}
		return ""
	})
	killed := time.Now()
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
	s.clean()
	t.Logf("at rest %v after the kill", time.Since(killed).Round(time.Millisecond))
	if o := s.run(nil, cc, "-c", "quick.c"); o.report != "remote:"+d.Addr {
		t.Errorf("afterwards: %+v", o)
	}
}
