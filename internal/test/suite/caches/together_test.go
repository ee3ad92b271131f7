package caches

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// together are builds of the same sources on two machines, as far as rdistcc can tell: each has a manager with a directory
// of its own, and sees its own files at the same place.
type together struct {
	*site
	files    int
	machines [2]*machine
}

// machine is a mount namespace with a manager. It shows dir at site.work.
type machine struct {
	dir, at string
	vars    []string
	manager farm.Process
}

// Enter implements farm.Place.
func (m *machine) Enter() error {
	runtime.LockOSThread()
	return errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount(m.dir, m.at, "", unix.MS_BIND, ""))
}

// Dial implements farm.Place.
func (m *machine) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, addr)
}

// startTogether starts a farm of two hosts and two machines with a checkout of as many files.
func startTogether(t *testing.T, files int) *together {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the programs and starts a farm")
	}
	for _, program := range []string{"make", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			need.Skipf(t, need.Tools, "no %s", program)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("needs the right to make mount namespaces")
	}
	x := &together{site: start(t, "cache: {farm: true}\n"), files: files}
	if err := x.Manager.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := x.StartDaemon(x.ctx, "host2", "--jobs", "2"); err != nil {
		t.Fatal(err)
	}
	before := x.Vars
	for i := range x.machines {
		m := &machine{dir: filepath.Join(x.Dir, fmt.Sprintf("machine%d", i)), at: x.work}
		x.checkOut(m.dir)
		own := filepath.Join(x.Dir, fmt.Sprintf("own%d", i))
		if err := os.Mkdir(own, 0o700); err != nil {
			t.Fatal(err)
		}
		m.vars = []string{"RDISTCC_DIR=" + own, "XDG_STATE_HOME=" + own, "XDG_CACHE_HOME=" + own}
		ports, err := farm.FreePorts(1)
		if err != nil {
			t.Fatal(err)
		}
		x.Vars = append(append([]string(nil), before...), m.vars...)
		if err := x.StartManagerAt(x.ctx, m, ports[0], "--hosts", x.Daemons[0].Addr+" "+x.Daemons[1].Addr); err != nil {
			t.Fatal(err)
		}
		m.manager = x.Manager
		t.Cleanup(func() {
			if m.manager.Running() {
				if err := m.manager.Stop(); err != nil {
					t.Error(err)
				}
			}
		})
		x.machines[i] = m
	}
	x.Vars = before
	return x
}

// checkOut writes the sources into a directory. Each takes some tenths of a second to compile.
func (x *together) checkOut(dir string) {
	x.Helper()
	if err := os.Mkdir(dir, 0o777); err != nil {
		x.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			x.Fatal(err)
		}
	}
	rules := "CC = gcc\nO =\nall:"
	for i := range x.files {
		rules += fmt.Sprintf(" $(O)f%d.o", i)
		var text strings.Builder
		fmt.Fprintf(&text, "#include \"all.h\"\nint file%d;\n", i)
		for k := range 20 {
			fmt.Fprintf(&text, "int f%d_%d(const int *a, int n) { int s = %d, i, k; for (i = 0; i < n; i++) for (k = i; k < n; k++) s += MIX(a[i], a[k], %d) %% (s | 1); return s; }\n", i, k, i, k)
		}
		write(fmt.Sprintf("f%d.c", i), text.String())
	}
	write("all.h", "#define MIX(a, b, c) ((a) * (b) ^ ((a) + (c)) << 3)\n")
	write("Makefile", rules+"\n$(O)%.o: %.c all.h\n\t$(CC) -O2 -g -c $< -o $@\n")
}

// build prepares a command that builds on a machine, with words for make.
func (x *together) build(m *machine, words ...string) *exec.Cmd {
	line := fmt.Sprintf("cd %s && exec make -s -j6 %s", x.work, strings.Join(words, " "))
	cmd := exec.CommandContext(x.ctx, "nsenter", "-t", fmt.Sprint(m.manager.PID()), "-m", "sh", "-c", line)
	cmd.Env = append(append(x.Env(), "PWD="+x.work), m.vars...)
	return cmd
}

// wrapped are the words for a build with rdistcc.
func (x *together) wrapped() string { return fmt.Sprintf("'CC=%s gcc'", x.Wrapper) }

// compiled returns how many jobs the daemons that run have compiled, and to how many they gave another one's result.
func (x *together) compiled() (ran, joined float64) {
	for _, d := range x.Daemons {
		if d.Running() {
			all := x.metric(d, "rdistccd_jobs_total{")
			j := x.metric(d, `rdistccd_jobs_total{language="c",result="joined"}`)
			ran, joined = ran+all-j, joined+j
		}
	}
	return ran, joined
}

// check compares a machine's objects with those of the plain compiler.
func (x *together) check(m *machine) {
	x.Helper()
	if err := os.MkdirAll(filepath.Join(m.dir, "plain"), 0o777); err != nil {
		x.Fatal(err)
	}
	if out, err := x.build(m, "O=plain/").CombinedOutput(); err != nil {
		x.Fatalf("%v: %s", err, out)
	}
	for i := range x.files {
		name := fmt.Sprintf("f%d.o", i)
		got, err := os.ReadFile(filepath.Join(m.dir, name))
		want, perr := os.ReadFile(filepath.Join(m.dir, "plain", name))
		if err = errors.Join(err, perr); err != nil {
			x.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			x.Errorf("%s differs from that of the plain command", name)
		}
	}
}

// mostCompiles is how many compiles two builds at the same time may take, of which one alone would take n. Those that
// both begin before they know of each other are done twice, and some that are late because the machine is busy.
func mostCompiles(n int) float64 { return 1.5 * float64(n) }

// TestTwoBuildsAtOnce: two machines that begin the same build at the same time compile it little more than once, and each
// has the objects that it would have alone.
func TestTwoBuildsAtOnce(t *testing.T) {
	x := startTogether(t, 40)
	var builds [2]*exec.Cmd
	var words [2]bytes.Buffer
	for i, m := range x.machines {
		builds[i] = x.build(m, x.wrapped())
		builds[i].Stdout, builds[i].Stderr = &words[i], &words[i]
		if err := builds[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range builds {
		if err := builds[i].Wait(); err != nil {
			t.Errorf("machine %d: %v\n%s", i, err, words[i].String())
		}
	}
	ran, joined := x.compiled()
	t.Logf("%v compiles of %d files on two machines, %v jobs joined on hosts", ran, x.files, joined)
	for i, m := range x.machines {
		x.check(m)
		t.Logf("machine %d: %v hits of the farm, %v joined; waits: %v made, %v lost, %v late", i,
			x.metric(m.manager, `rdistcc_cm_cache_total{result="hit",tier="farm"}`), x.metric(m.manager, `rdistcc_cm_cache_total{result="joined",tier="farm"}`),
			x.metric(m.manager, `rdistcc_cm_cache_waits_total{result="made"}`), x.metric(m.manager, `rdistcc_cm_cache_waits_total{result="lost"}`),
			x.metric(m.manager, `rdistcc_cm_cache_waits_total{result="late"}`))
	}
	if ran < float64(x.files) || ran > mostCompiles(x.files) {
		t.Errorf("%v compiles, want %d to %v", ran, x.files, mostCompiles(x.files))
	}
}

// TestTwoBuildsAndAFault: a host, or the manager of one of two equal builds, is killed in the middle. The other build, or
// both, have the right objects.
func TestTwoBuildsAndAFault(t *testing.T) {
	part.Skip(t)
	for what, c := range map[string]struct {
		kill  func(x *together)
		alive int // the first machine whose build goes on
	}{
		"host":    {func(x *together) { x.Daemons[0].Kill() }, 0},
		"manager": {func(x *together) { x.machines[0].manager.Kill() }, 1},
	} {
		t.Run(what, func(t *testing.T) {
			x := startTogether(t, 24)
			var builds [2]*exec.Cmd
			var words [2]bytes.Buffer
			for i, m := range x.machines {
				builds[i] = x.build(m, x.wrapped())
				builds[i].Stdout, builds[i].Stderr = &words[i], &words[i]
				builds[i].SysProcAttr = &unix.SysProcAttr{Setpgid: true}
				if err := builds[i].Start(); err != nil {
					t.Fatal(err)
				}
			}
			x.wait("some compiles", func() bool { ran, _ := x.compiled(); return ran >= 4 })
			if c.alive > 0 { // its wrappers would start another manager
				_ = unix.Kill(-builds[0].Process.Pid, unix.SIGKILL)
			}
			c.kill(x)
			for i := range builds {
				if err := builds[i].Wait(); err != nil && i >= c.alive {
					t.Errorf("machine %d: %v\n%s", i, err, words[i].String())
				}
			}
			for _, m := range x.machines[c.alive:] {
				x.check(m)
			}
		})
	}
}
