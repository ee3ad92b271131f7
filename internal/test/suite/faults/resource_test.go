package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
)

// limit puts a limit on a running process.
func (s *site) limit(p farm.Process, resource int, n uint64) {
	s.t.Helper()
	var old unix.Rlimit
	if err := unix.Prlimit(p.PID(), resource, nil, &old); err != nil {
		s.t.Fatal(err)
	}
	if err := unix.Prlimit(p.PID(), resource, &unix.Rlimit{Cur: n, Max: old.Max}, nil); err != nil {
		s.t.Fatal(err)
	}
}

// next is the number that a process's next descriptor will have.
func (s *site) next(p farm.Process) (fd uint64) {
	for ; ; fd++ {
		switch _, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", p.PID(), fd)); {
		case errors.Is(err, os.ErrNotExist):
			return fd
		case err != nil:
			s.t.Fatal(err)
		}
	}
}

// together compiles n units at the same time; all must succeed with the right
// object and at most one line each. It returns the lines and what the reports say.
func (s *site) together(n int, env ...string) (lines, reports []string) {
	s.t.Helper()
	units := s.units(n)
	jobs := make([]*running, n)
	for i, u := range units {
		jobs[i] = s.start(env, "gcc", "-O2", "-c", u)
	}
	results := make([]outcome, n)
	var all sync.WaitGroup
	for i, j := range jobs {
		all.Go(func() { results[i] = j.wait() })
	}
	all.Wait()
	for i, u := range units {
		o := results[i]
		if o.status != 0 {
			s.t.Errorf("%s: %+v", u, o)
		}
		if o.stderr != "" {
			s.oneLine(o.stderr, "rdistcc: .*; compiled here")
			lines = append(lines, o.stderr)
		}
		reports = append(reports, o.report)
		s.sameObject(strings.TrimSuffix(u, ".c")+".o", "gcc", "-O2", "-c", u)
	}
	return lines, reports
}

// TestDescriptorsRunOut: neither a manager nor a daemon that gets no descriptor any
// more breaks a build, and both go on when there are some again.
func TestDescriptorsRunOut(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.daemon("d1", "", "--jobs", "4")
	s.manager(d.Addr, "")
	s.remote(d.Addr)
	s.atRest()
	for _, q := range []struct {
		p    farm.Process
		more uint64 // descriptors beyond those in use
		want string // reason that some job must have met
	}{
		{s.Manager, 0, "local:"},
		{s.Manager, 3, "local:no-slot"}, // a wrapper's connection, but not both ends of a slot
		{s.Manager, 12, ""},
		{d, 0, "local:refused:full"},
		{d, 6, ""},
	} {
		if q.p.Name == d.Name && os.Geteuid() != 0 {
			t.Log("only root sees how many descriptors a daemon has: its limit is left out")
			break
		}
		var old unix.Rlimit
		if err := unix.Prlimit(q.p.PID(), unix.RLIMIT_NOFILE, nil, &old); err != nil {
			t.Fatal(err)
		}
		s.limit(q.p, unix.RLIMIT_NOFILE, s.next(q.p)+q.more)
		_, reports := s.together(8)
		if !strings.Contains(strings.Join(reports, "\n"), q.want) {
			t.Errorf("%s with %d more descriptors: %q, want some %s", q.p.Name, q.more, reports, q.want)
		}
		t.Log(q.p.Name, q.more, reports)
		s.limit(q.p, unix.RLIMIT_NOFILE, old.Cur)
		s.remote(d.Addr)
		s.clean()
	}
}

// TestFilesTooLarge: a limit on the size of files is one on shared memory too.
func TestFilesTooLarge(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.daemon("d1", "", "--jobs", "1")
	s.manager(d.Addr, "")
	s.limit(s.Manager, unix.RLIMIT_FSIZE, 1<<20)
	s.atRest()
	lines, reports := s.together(2)
	if len(lines) != 2 || strings.Join(reports, " ") != "local:no-slot local:no-slot" {
		t.Errorf("%q, %q, want no slot for both", lines, reports)
	}
	s.limit(s.Manager, unix.RLIMIT_FSIZE, unix.RLIM_INFINITY)
	s.remote(d.Addr)

	// Where the limit is the user's own, the words are the compiler's.
	s.file("big.c", "char big[200000] = {1};\n")
	local := s.limited("gcc", "-c", "big.c")
	got := s.limited(s.Wrapper, "gcc", "-c", "big.c")
	if local.status == 0 || got != local {
		t.Errorf("an object over the limit: %+v, want %+v", got, local)
	}
	// Here only the text is too large.
	s.file("text.c", "#include <stdio.h>\n#include <stdlib.h>\n#include <math.h>\n#include <unistd.h>\nint text;\n")
	if got := s.limited(s.Wrapper, "gcc", "-c", "text.c"); got != (outcome{}) {
		t.Errorf("a text over the limit: %+v", got)
	}
	s.sameObject("text.o", "gcc", "-c", "text.c")
	s.clean()
}

// limited runs a command whose files may have at most 100 KB.
func (s *site) limited(argv ...string) outcome {
	s.t.Helper()
	sh := s.command(nil, append([]string{"sh", "-c", `ulimit -f 200; exec "$@"`, "sh"}, argv...)...)
	var out, err strings.Builder
	sh.Stdout, sh.Stderr = &out, &err
	_ = sh.Run() // its status says it
	return outcome{status: exitStatus(sh.ProcessState), stdout: out.String(), stderr: err.String()}
}

// TestClosedDescriptors: a command whose standard descriptors are closed writes nothing elsewhere, and one
// that can get hardly any descriptor fails or succeeds as the compiler alone does.
func TestClosedDescriptors(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.daemon("d1", "", "--jobs", "1")
	s.manager(d.Addr, "")
	s.remote(d.Addr)
	s.atRest()
	s.file("warn.c", "#warning heard\nint warn;\n")
	for _, closed := range []string{"<&-", ">&-", "2>&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"} {
		sh := s.command(nil, "sh", "-c", `"$0" gcc -c warn.c `+closed+` && "$0" gcc -O2 -c hello.c `+closed, s.Wrapper)
		if out, err := sh.CombinedOutput(); err != nil || closed == "2>&-" && len(out) > 0 {
			t.Errorf("%s: %v: %s", closed, err, out)
		}
		s.sameObject("warn.o", "gcc", "-c", "warn.c")
		s.sameObject("hello.o", "gcc", "-O2", "-c", "hello.c")
	}
	// Five descriptors are enough for gcc, not for a child of rdistcc's.
	for n := 4; n < 12; n++ {
		run := func(argv ...string) int {
			sh := s.command(nil, append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$@"`, n), "sh"}, argv...)...)
			_ = sh.Run() // its status says it
			return exitStatus(sh.ProcessState)
		}
		want, got := run("gcc", "-c", "hello.c"), run(s.Wrapper, "gcc", "-c", "hello.c")
		if got != want {
			t.Errorf("with %d descriptors: exit status %d, want %d", n, got, want)
		}
	}
	s.remote(d.Addr)
	s.clean()
}

// mount gives the test a small file system at dir.
func (s *site) mount(dir string, bytes int) {
	s.t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := unix.Mount("faults", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=700", bytes)); err != nil {
		s.t.Skipf("no file system of its own: %v", err)
	}
	s.t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			s.t.Error(err)
		}
	})
}

// TestDiskFullHere: if the object does not fit on the disk, the error, the status and what is left behind
// are the local compiler's.
func TestDiskFullHere(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.daemon("d1", "", "--jobs", "1")
	s.manager(d.Addr, "")
	s.remote(d.Addr)
	s.atRest()
	s.file("big.c", "char big[300000] = {1};\n")
	disk := filepath.Join(s.root, "disk")
	for _, name := range []string{"/dev/full", filepath.Join(disk, "big.o")} {
		if name != "/dev/full" {
			s.mount(disk, 100<<10)
		}
		for _, before := range []string{"", "an object of an earlier build"} {
			try := func(argv ...string) (outcome, string) {
				if before != "" && name != "/dev/full" {
					if err := os.WriteFile(name, []byte(before), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				cmd := s.command(nil, append(argv, "-c", "big.c", "-o", name)...)
				var stderr strings.Builder
				cmd.Stderr = &stderr
				_ = cmd.Run() // its status says it
				left, err := filepath.Glob(disk + "/*")
				if err != nil {
					t.Fatal(err)
				}
				state := fmt.Sprint(left)
				for _, f := range left {
					st, err := os.Stat(f)
					if err != nil {
						t.Fatal(err)
					}
					state += fmt.Sprintf(" %v %d bytes", st.Mode(), st.Size())
					_ = os.Remove(f)
				}
				// The assembler's input has a random name.
				words := regexp.MustCompile(`/cc\w+\.s`).ReplaceAllString(stderr.String(), "/cc.s")
				return outcome{status: exitStatus(cmd.ProcessState), stderr: words}, state
			}
			want, wantState := try("gcc")
			got, state := try(s.Wrapper, "gcc")
			if want.status == 0 || got != want || state != wantState {
				t.Errorf("%s: %+v, left %s\nwant %+v, left %s", name, got, state, want, wantState)
			}
		}
	}
	s.clean()
}

// TestStateDiskFull: a state directory without any room left.
func TestStateDiskFull(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.daemon("d1", "", "--jobs", "1")
	s.file("hello.c", "int hello;\n")
	state := filepath.Join(s.root, "full")
	s.mount(state, 4096)
	_ = os.WriteFile(filepath.Join(state, "filler"), make([]byte, 8192), 0o600) // as far as it goes
	env := []string{"RDISTCC_DIR=" + state, "RDISTCC_HOSTS=" + d.Addr}
	for range 2 {
		o := s.run(env, "gcc", "-c", "hello.c")
		if o.status != 0 {
			t.Errorf("%+v", o)
		}
		if o.stderr != "" {
			s.oneLine(o.stderr, "rdistcc: .*; compiled here")
		}
		s.sameObject("hello.o", "gcc", "-c", "hello.c")
		t.Logf("%+v", o)
	}
	_ = s.command(env, s.Wrapper, "stop").Run() // there need not be one
}

// TestDiskFullThere: a host that shows no trees, and has no room to compile, costs a
// line; it takes jobs that fit, and all when there is room again.
func TestDiskFullThere(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	area := filepath.Join(s.root, "area")
	s.mount(area, 200<<10)
	d := s.daemon("d1", "daemon: {work-dir: "+area+", tree: off}\nlimits: {disk-floor: 0}\n", "--jobs", "1")
	s.manager(d.Addr, "")
	s.remote(d.Addr)
	s.atRest()
	s.file("source.c", strings.Repeat("extern int a_declaration_of_some_length;\n", 20000))
	s.file("object.c", "char object[400000] = {1};\n")
	for _, name := range []string{"source", "object"} {
		o := s.run(nil, "gcc", "-O1", "-c", name+".c")
		if o.status != 0 || o.report != "local:host-lost" {
			t.Errorf("%s: %+v", name, o)
		}
		s.oneLine(o.stderr, "rdistcc: "+regexp.QuoteMeta(d.Addr)+".*no space left.*; compiled here")
		s.sameObject(name+".o", "gcc", "-O1", "-c", name+".c")
		s.remote(d.Addr)
	}
	good := s.daemon("d2", "daemon: {tree: off}\n", "--jobs", "1")
	hosts := []string{"RDISTCC_HOSTS=" + d.Addr + " " + good.Addr}
	s.run(hosts, "gcc", "-c", "hello.c")
	s.atRest()
	for _, name := range []string{"source", "object"} {
		if o := s.run(hosts, "gcc", "-O1", "-c", name+".c"); o.stderr != "" || o.report != "remote:"+good.Addr {
			t.Errorf("%s beside a host with room: %+v", name, o)
		}
	}
	if err := unix.Mount("faults", area, "tmpfs", unix.MS_REMOUNT, "size=10m"); err != nil {
		t.Fatal(err)
	}
	if o := s.run(nil, "gcc", "-O1", "-c", "source.c"); o.report != "remote:"+d.Addr {
		t.Errorf("with room again: %+v", o)
	}
	s.clean()
}
