package interop

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rawjob"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// confinedRoot is a directory of the guest that is the root of what runs confined there: the guest's own
// is the kernel's first file system, in which no process can change its root.
const confinedRoot = "/confined"

// confineScript starts a command as a user in a control group of version 2 that is that user's: what a service manager
// does with Delegate=. Its arguments are the group's name, the user's number, and the command.
const confineScript = `#!/bin/busybox sh
group=$1 user=$2
shift 2
at=/sys/fs/cgroup/$group
mkdir -p $at && chown $user $at $at/cgroup.procs $at/cgroup.subtree_control $at/cgroup.threads && echo $$ >$at/cgroup.procs || exit 99
cd /confined && mount -t proc proc proc && mount -t sysfs sysfs sys && mount -t cgroup2 cgroup2 sys/fs/cgroup &&
	mount -o bind /dev dev && mount -o move . / || exit 99
exec chroot . /usr/bin/setpriv --reuid $user --regid $user --clear-groups "$@"
`

// confinedKey is what client and daemon share.
var confinedKey = strings.Repeat("confined", 4)

// confinedGuest makes the root, with a compiler, the programs of this project and what tests use of a shell.
func confinedGuest(t *testing.T) *Guest {
	t.Helper()
	g := Boot(t)
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip("needs setpriv, of util-linux")
	}
	dir := t.TempDir()
	files := append(toolchainFiles(t), setpriv)
	files = append(files, libraries(setpriv)...)
	tools := filepath.Join(dir, "confined.tar")
	archive(t, tools, files)
	script := filepath.Join(dir, "confine.sh")
	if err := os.WriteFile(script, []byte(confineScript), 0o700); err != nil {
		t.Fatal(err)
	}
	g.Put(t, script)
	g.Run(t, fmt.Sprintf(`mkdir -p %[1]s && mount -t tmpfs -o mode=755,size=420m confined %[1]s && busybox tar -xf %[2]s -C %[1]s && rm %[2]s &&
cd %[1]s && mkdir -p proc sys dev tmp etc bin run && chmod 1777 tmp && cp /bin/busybox bin/ &&
for p in sh head tail sleep true seq; do ln -s busybox bin/$p; done &&
cp %[3]s bin/ && rm %[3]s && cp -r /etc/hosts /etc/nsswitch.conf etc/ &&
printf 'root:x:0:0:root:/root:/bin/sh\nworker:x:%[4]d:%[4]d::/tmp:/bin/sh\n' >etc/passwd &&
mount -t cgroup2 cgroup2 /sys/fs/cgroup && echo '+cpu +memory +pids' >/sys/fs/cgroup/cgroup.subtree_control`,
		confinedRoot, g.Put(t, tools), g.Put(t, program(t, "rdistccd")), confinedUser))
	t.Cleanup(func() { g.Run(t, "umount /sys/fs/cgroup; umount -l "+confinedRoot) })
	return g
}

// confinedUser is the ordinary user.
const confinedUser = 1000

// confined is a daemon in the guest that runs in a group of its own.
type confined struct {
	g         *Guest
	group     string
	job       *Job
	addr      string // on this host
	dev       iwarp.Device
	key       *psk.Key
	toolchain unit.ToolchainID
}

// hogMemory is what a job may take.
const hogMemory = 64 << 20 // bytes

// startConfined starts a daemon as a user, with words of its configuration, and waits until it listens.
func startConfined(t *testing.T, g *Guest, user int, words string) *confined {
	t.Helper()
	port, host := g.Port()
	d := &confined{g: g, group: fmt.Sprintf("rdistccd-%d", port), addr: host, dev: open(t, iwarp.Config{})}
	var err error
	if d.key, err = psk.Parse([]byte(confinedKey)); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("sandbox: strict\nauth: {psk-file: /etc/%[1]s.key}\nlimits: {job-memory: %[2]dB, processes: 16, file: 512MiB, silence: 1m}\n%[3]s\n", d.group, hogMemory, words)
	g.Run(t, fmt.Sprintf("cd %s/etc && (umask 077; echo '%s' >%[3]s.key) && chown %d %[3]s.key && cat >%[3]s.yaml <<'END'\n%[5]sEND\n", confinedRoot, confinedKey, d.group, user, config))
	d.job = g.Start(t, fmt.Sprintf("exec busybox unshare -m sh /share/confine.sh %[1]s %[2]d /bin/rdistccd --config /etc/%[1]s.yaml --listen %[3]s --allow 10.0.2.0/24 --pid-file /tmp/%[1]s.pid --jobs 2",
		d.group, user, net.JoinHostPort(GuestAddr, fmt.Sprint(port))), 10*time.Minute)
	d.job.until(t, 4*time.Minute, "listen", func() bool {
		return strings.Contains(d.job.Output(), "msg=listening") || d.job.done()
	})
	if d.job.done() {
		t.Fatalf("the daemon has ended: %s", tail(d.job.Output(), 10))
	}
	return d
}

// dial connects to the daemon, once that has looked at its compiler.
func (d *confined) dial(ctx context.Context, t *testing.T) *rawjob.Client {
	t.Helper()
	for {
		c, err := rawjob.DialWith(ctx, d.dev, d.addr, rawjob.Options{Want: 1, Key: d.key})
		if err != nil {
			t.Fatal(err)
		}
		_, ids, err := c.Introduced(ctx)
		if err != nil {
			c.Close()
			t.Fatal(err)
		}
		if len(ids) > 0 {
			d.toolchain = ids[0]
			t.Cleanup(c.Close)
			return c
		}
		c.Close()
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("it offers no compiler")
		}
	}
}

// compile is a job of a source that cpp has seen.
func (d *confined) compile(text string) *rawjob.Job {
	return &rawjob.Job{Toolchain: d.toolchain, Text: []byte(text), Sink: 1 << 20, Body: &job.Body{
		Argv0: "gcc", Language: "cpp-output", Name: "x.c", Cwd: "/src", Args: []string{"-O1"}, Outputs: []unit.Output{{Name: "x.o"}},
	}}
}

// metric is the line of a metric, with labels, as the daemon tells it now.
func (d *confined) metric(t *testing.T, name string) string {
	t.Helper()
	all := d.g.Run(t, "busybox wget -qO- http://127.0.0.1:7633/metrics")
	for line := range strings.Lines(all) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// stop ends the daemon, after which none of its groups is left but that in which it was.
func (d *confined) stop(t *testing.T) {
	t.Helper()
	d.g.Run(t, fmt.Sprintf("kill $(cat %s/tmp/%s.pid)", confinedRoot, d.group))
	if out, status := d.job.Wait(t); status != 0 {
		t.Errorf("the daemon's exit status is %d:\n%s", status, tail(out, 10))
	}
	if left := d.g.Run(t, "cd /sys/fs/cgroup/"+d.group+" && find . -type d"); strings.TrimSpace(left) != ".\n./daemon" {
		t.Errorf("groups that are left:\n%s", left)
	}
	d.g.Run(t, "cd /sys/fs/cgroup && rmdir "+d.group+"/daemon "+d.group)
}

// honest is a source that takes a compiler some time in the guest.
func honest() string {
	var b strings.Builder
	for i := range 60 {
		fmt.Fprintf(&b, "int f%d(int a, int *p) { for (int i = 0; i < a; i++) p[i] = p[i] * %d + a / (i + 1) - p[a - i]; return p[a] %% %d; }\n", i, i+2, i+3)
	}
	return b.String()
}

// TestConfinedByGroups: where control groups of version 2 are delegated, to root or to an ordinary user, each compile
// is in one. The kernel ends those that take too much memory, others go on, and when the daemon ends no group
// is left. Without a tree, on this kernel with Landlock of ABI 2, compiles are confined all the same.
func TestConfinedByGroups(t *testing.T) {
	if !full() {
		t.Skip("TestSystemd and TestGroupsOfTheKernel are the short form")
	}
	g := confinedGuest(t)
	for _, c := range []struct {
		name     string
		user     int
		config   string
		level    string
		measures []string
	}{
		{"root", 0, "", "full", []string{"tree", "processes", "network", "ipc", "user", "landlock", "seccomp", "limits", "cgroup"}},
		{"user", confinedUser, "", "full", []string{"tree", "processes", "network", "ipc", "landlock", "seccomp", "limits", "cgroup"}},
		{"user without a tree", confinedUser, "daemon: {tree: \"off\"}", "confined", []string{"landlock", "seccomp", "limits", "cgroup"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			note := row(t, "cgroup v2, Landlock ABI 2", "rdistccd, "+c.name+": a memory hog, its neighbour")
			d := startConfined(t, g, c.user, c.config)
			// It listens before it has tried out how it confines compilers, of which it first has to know one.
			d.job.until(t, 4*time.Minute, "say how compiles are confined", func() bool {
				return strings.Contains(d.job.Output(), "compiles are confined") || d.job.done()
			})
			_, says, _ := strings.Cut(d.job.Output(), "compiles are confined")
			says, _, _ = strings.Cut(says, "\n")
			if !strings.Contains(says, "level="+c.level+" ") {
				t.Errorf("got %q, want level %s", says, c.level)
			}
			_, held, _ := strings.Cut(says, "measures=")
			have := map[string]bool{}
			for _, m := range strings.Split(strings.TrimSpace(held), ",") {
				have[m] = true
			}
			for _, m := range c.measures {
				if !have[m] {
					t.Errorf("%s is not among the measures: %q", m, held)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			neighbour, hog := d.dial(ctx, t), d.dial(ctx, t)
			run := func(c *rawjob.Client, text string) *rawjob.Result {
				t.Helper()
				r, err := c.Run(ctx, d.compile(text))
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			good := func(r *rawjob.Result) {
				t.Helper()
				if r.Status != job.StatusRan || r.Exit != 0 || r.Signal != 0 {
					t.Errorf("an honest job: %+v: %s", r.Result, r.Segment(r.Stderr))
				}
			}
			good(run(hog, "int f(void) { return 1; }\n"))
			other, err := neighbour.Start(ctx, d.compile(honest()))
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range []string{
				"__asm__(\".rept 100000000\\nnop\\n.endr\");\n",                // the assembler's memory
				"__asm__(\".data\\n.fill 150000000, 1, 1\");\n",                // a file, in memory too
				"__asm__(\".data\\n.fill 150000000, 1, 1\"); int x = 1 + 1;\n", // and again, in the same place
			} {
				if r := run(hog, text); r.Status == job.StatusRan || r.Cause != job.CauseMemory {
					t.Errorf("%s: got %+v", text, r.Result)
				}
			}
			r, err := neighbour.Wait(ctx, other)
			if err != nil {
				t.Fatal(err)
			}
			good(r)
			hog.Close() // it has said nothing for long
			hog = d.dial(ctx, t)
			good(run(hog, "int f(void) { return 2; }\n"))
			kills := strings.TrimSpace(g.Run(t, "sed -n 's/^oom_kill //p' /sys/fs/cgroup/"+d.group+"/memory.events"))
			if kills == "0" || kills == "" {
				t.Errorf("the kernel has killed %q", kills)
			}
			if n := d.metric(t, `rdistccd_sandbox_canaries_total{result="passed"}`); n == "" || n == "0" {
				t.Errorf("canaries passed: %q", n)
			}
			if n := d.metric(t, `rdistccd_sandbox_canaries_total{result="failed"}`); n != "0" && n != "" {
				t.Errorf("canaries failed: %q", n)
			}
			neighbour.Close()
			hog.Close()
			d.stop(t)
			*note = fmt.Sprintf("%s; %s kills by the kernel", c.level, kills)
		})
	}
}

// TestGroupsOfTheKernel runs the tests of control groups, which no machine without delegated ones can, in the guest.
func TestGroupsOfTheKernel(t *testing.T) {
	g := confinedGuest(t)
	dir := t.TempDir()
	type tests struct{ pkg, run string }
	all := []tests{{"privatetree", "^TestGroupsBoundCommands$"}, {"sandbox", "^(TestLimitsOfTheKernel|TestGroupsShareTheProcessor)$"}}
	for _, p := range all {
		bin := filepath.Join(dir, p.pkg+".test")
		cmd := exec.Command("go", "test", "-c", "-o", bin, "../internal/"+p.pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		at := g.Put(t, bin)
		g.Run(t, "cp "+at+" "+confinedRoot+"/bin/ && rm "+at)
		for _, user := range []int{confinedUser, 0}[:pick(2, 1)] {
			t.Run(fmt.Sprintf("%s, user %d", p.pkg, user), func(t *testing.T) {
				row(t, "cgroup v2, Landlock ABI 2", fmt.Sprintf("tests of internal/%s, user %d: memory, tasks, processor, neighbours", p.pkg, user))
				group := fmt.Sprintf("test-%s-%d", p.pkg, user)
				out, status := g.Exec(t, fmt.Sprintf("busybox unshare -m sh /share/confine.sh %s %d /bin/%s.test -test.v -test.timeout 15m -test.run '%s'; s=$?; find /sys/fs/cgroup/%[1]s -type d; rmdir /sys/fs/cgroup/%[1]s/daemon /sys/fs/cgroup/%[1]s; exit $s", group, user, p.pkg, p.run), 16*time.Minute)
				if status != 0 || !strings.Contains(out, "--- PASS") || strings.Contains(out, "--- SKIP") {
					t.Errorf("exit status %d\n%s", status, tail(out, 60))
				}
				if strings.Contains(out, "/runner-") {
					t.Errorf("groups are left:\n%s", out)
				}
			})
		}
	}
}

// libraries are those of a program.
func libraries(file string) []string {
	out, err := exec.Command("ldd", file).Output()
	if err != nil {
		return nil
	}
	var libs []string
	for _, word := range strings.Fields(string(out)) {
		if strings.HasPrefix(word, "/") {
			libs = append(libs, word)
		}
	}
	return libs
}
