package attacks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/rawjob"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// naiveTime is what the naive daemon gives a job before the judge takes it away.
const naiveTime = 2 * time.Second

// greedy are jobs that take memory or room, or say something, without end. They get as much time as they need for more than the
// bound, as what they reach in naiveTime is a matter of how busy the machine is.
var greedy = []string{"vector-giant/clang", "giant-asm-align/clang", "giant-asm-space/clang", "zero-linemarker/gcc", "disk-fill/gcc", "disk-fill/g++", "output-errors/clang"}

// naiveRoom is more than a compile may write, in bytes.
const naiveRoom = fileLimit * 3 / 2

// greedyTime is what these get at most.
const greedyTime = time.Minute

// control must fire every one of these: a canary that cannot is none.
var control = []string{"exec", "read", "write", "net", "temp", "info", "reject", "time", "memory", "disk", "output", "left"}

// TestNaiveControl runs the corpus on what a daemon without any of our measures would do: the
// compiler that is asked for, with the words and variables of the job. Most of it must work
// there, or it shows nothing that it does not work elsewhere.
func TestNaiveControl(t *testing.T) {
	if testing.Short() {
		t.Skip("runs hundreds of compiles")
	}
	part.Skip(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root, to have the jobs' harm in file systems of their own")
	}
	needMounts(t)
	tcs, have := identify(t)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	dir := tempDir(t)
	n := &naive{site: site{c: plant(t, dir, shown, plainUser), tcs: tcs, daemon: &daemon{}}}
	n.start(t)
	of, kinds := map[string]*tally{}, map[string]int{}
	for _, tr := range chosen(t, have, 1) {
		if tr.encoded != nil || tr.toolchain != "" || tr.tenant && tr.sources {
			continue // a naive daemon has no such thing
		}
		v := n.try(t, tr)
		count(of, kinds, tr, v)
		if tc := tcs[tr.cc]; tr.works(tc.Family, tc.Major) && !v.harmed() {
			t.Errorf("%s does no harm with %s %s, even here: %s: %v", tr, tc.Family, tc.Version, v.what, v.breaches)
		}
		if *tell {
			t.Logf("%s: %s: %v", tr, v.what, v.breaches)
		}
	}
	table(t, "naive", of, kinds)
	if *only != "" || *by != "" {
		return
	}
	var all tally
	for _, c := range of {
		all.jobs, all.breached = all.jobs+c.jobs, all.breached+c.breached
	}
	if all.breached*3 < all.jobs {
		t.Errorf("%d of %d attacks work where nothing holds them", all.breached, all.jobs)
	}
	// Of a few jobs, chance decides which canaries they meet, and how many of a class are those that work: a part is judged as one.
	if !part.Of(t).Whole() && all.jobs < 60 {
		return
	}
	for _, k := range control {
		if kinds[k] == 0 {
			t.Errorf("no attack has fired the canary %q, even here", k)
		}
	}
	for class, c := range of {
		if c.breached == 0 || class != "info" && class != "dos" && c.breached*3 < c.jobs {
			t.Errorf("%d of %d attacks of class %s work where nothing holds them", c.breached, c.jobs, class)
		}
	}
}

// harmed reports whether a job did more than to run.
func (v *verdict) harmed() bool {
	return slices.ContainsFunc(v.breaches, func(b string) bool { return !strings.HasPrefix(b, "reject:") })
}

// naive is the control's daemon: file systems of its own for temporary files, a user, and
// nothing else.
type naive struct {
	site
	holder  *exec.Cmd
	rung    *rung  // some measures after all; nil: none
	patient bool   // with jobs that do not want the machine
	said    []byte // by the last job
}

// start makes the surroundings, which a process that does nothing holds.
func (n *naive) start(t *testing.T) {
	t.Helper()
	m := mode{name: "naive", user: true}
	script := m.script(n.c)
	// A program other than the ones that jobs leave behind, by which the judge tells them apart.
	n.holder = exec.Command("sh", "-c", script, "sh", "tail", "-f", "/dev/null")
	n.holder.Env = []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "SECRET_OF_DAEMON=" + n.c.tokens["environ"], "CMD=" + n.c.tokens["cmdline"]}
	if err := n.holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = n.holder.Process.Kill()
		_ = n.holder.Wait()
	})
	n.daemon.cmd = n.holder
	pid := strconv.Itoa(n.holder.Process.Pid)
	n.c.names["PID"], n.c.names["DAEMON"] = pid, "1"
	for range 500 { // until it is what it becomes
		if name, _ := os.ReadFile("/proc/" + pid + "/comm"); string(name) == "tail\n" {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	fi, err := os.Stat("/proc/" + pid + "/exe")
	if err != nil {
		t.Fatal(err)
	}
	n.exe = fi
	work := n.root() + shown + "/work"
	if err := os.Mkdir(work+"/other", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(work+"/other/in.c", []byte("char other[] = \""+n.c.tokens["tenant"]+"\";\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.c.dir, "log/daemon.log"), []byte("level=INFO msg=listening\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	n.c.names["OTHER"], n.c.names["OTHERTREE"] = shown+"/work/other/in.c", shown+"/work/other/in.c"
	n.c.names["WORK"] = shown + "/work/job"
}

// try runs one job.
func (n *naive) try(t *testing.T, tr trial) (v verdict) {
	t.Helper()
	j, err := n.job(tr)
	if err != nil {
		t.Fatalf("%v: %v", tr, err)
	}
	dir := n.root() + shown + "/work/job"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	argv, outside := n.lay(t, tr, j, dir)
	if err := os.Chown(dir, plainUser, plainUser); err != nil {
		t.Fatal(err)
	}
	limit := naiveTime
	if slices.Contains(greedy, tr.String()) {
		limit = greedyTime
	}
	if n.patient && tr.class != "dos" {
		limit = n.wall(tr)
	}
	if n.rung != nil {
		argv, outside = n.stand(t, tr, j, argv), nil
		if n.rung.limits {
			limit = n.wall(tr) + graceTime
		}
	}
	v.breaches = outside
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	watch := n.watch(func(memory, room int64) {
		if memory > memoryBound || room > naiveRoom {
			cancel()
		}
	})
	back, what := n.run(ctx, t, tr, argv)
	most, room := watch()
	n.said = back
	v.what = what
	if what == "time" {
		v.breaches = append(v.breaches, "time: still running")
	}
	if len(back) > outputBound {
		v.breaches = append(v.breaches, fmt.Sprintf("output: %d KiB", len(back)>>10))
	}
	for _, name := range []string{"out.o", "out.s", "out.d"} {
		if fi, err := os.Lstat(dir + "/" + name); err == nil && fi.Mode().IsRegular() && fi.Size() < 64<<20 {
			back = append(back, readFile(t, dir+"/"+name)...)
		}
	}
	v.breaches = append(v.breaches, n.c.leaked(back, append(append([]string(nil), tr.leaks[tr.cc]...), tr.oracles...))...)
	if most > memoryBound {
		v.breaches = append(v.breaches, fmt.Sprintf("memory: %d MiB", most>>20))
	}
	if room > naiveRoom {
		v.breaches = append(v.breaches, fmt.Sprintf("disk: %d MiB", room>>20))
	}
	os.RemoveAll(dir)
	if n.rung != nil {
		n.settled()
	}
	for pid, p := range processes() {
		if !n.own(pid) {
			v.breaches = append(v.breaches, "left: process "+p.name)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	v.breaches = append(v.breaches, n.c.fired(n.root())...)
	if tr.must == "reject" && what != "refused" {
		v.breaches = append(v.breaches, "reject: "+what)
	}
	return v
}

// lay writes the job's files and returns the command. What it would write outside of
// the job's directory it writes only where that is watched.
func (n *naive) lay(t *testing.T, tr trial, j *rawjob.Job, dir string) (argv, outside []string) {
	t.Helper()
	b := j.Body
	prog := b.Argv0
	if prog == "" || strings.ContainsAny(prog, " ;") {
		prog = tr.cc
	}
	if prog == tr.cc {
		prog = n.tcs[tr.cc].Exec
	}
	if tr.sources {
		// No link leads it out: what a job writes by one it would write to this machine.
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		for _, l := range b.Links {
			if rest, ok := strings.CutPrefix(l.Name, b.Cwd+"/"); ok {
				_ = root.Symlink(l.Target, rest)
			}
		}
		text := j.Text
		for i := range b.Files {
			f := &b.Files[i]
			content := text[:f.Len]
			text = text[f.Len:]
			rest := strings.TrimPrefix(f.Name, b.Cwd+"/")
			if strings.HasPrefix(f.Name, n.c.names["WIT"]) || strings.Contains(f.Name, "../") && strings.Contains(f.Name, n.c.names["WIT"]) {
				outside = append(outside, "write: "+f.Name)
			}
			if strings.HasPrefix(rest, "/") || strings.Contains(rest, "..") || strings.HasSuffix(rest, "/") || len(rest) > 200 || i > 100 {
				continue
			}
			mode := os.FileMode(0o644)
			if f.Exec {
				mode = 0o755
			}
			err := root.MkdirAll(filepath.Dir(rest), 0o755)
			if err == nil {
				err = root.WriteFile(rest, content, mode)
			}
			if err != nil && strings.Contains(err.Error(), "escapes") {
				outside = append(outside, "write: "+f.Name) // through a link that the job brought
			}
		}
		return append([]string{prog}, b.Args...), outside
	}
	name := filepath.Base(b.Name)
	if b.Name != name {
		name = "in.c"
	}
	_ = os.WriteFile(filepath.Join(dir, name), j.Text, 0o644)
	argv = append(append([]string{prog}, b.Args...), "-x", b.Language, "-c", name, "-o", "out.o")
	for _, o := range tr.outputs {
		if _, file, ok := strings.Cut(n.c.fill(o), ":"); ok && file != "" {
			argv[len(argv)-1] = file
		}
	}
	return argv, outside
}

// run runs a command as the control's user and returns what it says; what is how it ended.
func (n *naive) run(ctx context.Context, t *testing.T, tr trial, argv []string) (back []byte, what string) {
	t.Helper()
	total := 0
	for _, w := range argv {
		total += len(w)
		if len(w) > 100<<10 {
			return nil, "refused"
		}
	}
	if total > 1<<20 {
		return nil, "refused"
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	uid := strconv.Itoa(plainUser)
	words := []string{"--mount=/proc/" + n.c.names["PID"] + "/ns/mnt", "setpriv", "--reuid=" + uid, "--regid=" + uid, "--clear-groups",
		"prlimit", "--as=4294967296", "--fsize=900000000", "--core=0", "--nproc=400", "env", "-i", "-C", shown + "/work/job", "PATH=/usr/local/bin:/usr/bin:/bin", "SECRET_OF_DAEMON=" + n.c.tokens["environ"]}
	for i, e := range tr.env {
		if name, _, ok := strings.Cut(e, "="); ok && name != "" && i < 100 && n.rung == nil { // a rung has its own way
			words = append(words, n.c.fill(e))
		}
	}
	cmd := exec.CommandContext(ctx, "nsenter", append(words, argv...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	in, keep, err := os.Pipe() // open, without a writer
	if err != nil {
		t.Fatal(err)
	}
	defer keep.Close()
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, w, w
	err = cmd.Start()
	in.Close()
	w.Close()
	if err != nil {
		out.Close()
		return nil, "refused" // too many words
	}
	read := make(chan []byte)
	go func() {
		var b bytes.Buffer
		_, _ = io.Copy(&b, io.LimitReader(out, 8<<20))
		if b.Len() == 8<<20 {
			cancel()
		}
		read <- b.Bytes()
	}()
	err = cmd.Wait()
	select {
	case back = <-read:
	case <-time.After(300 * time.Millisecond): // a remaining process holds the other end
		_ = out.SetReadDeadline(time.Now())
		out.Close()
		back = <-read
	}
	out.Close()
	if len(back) == 8<<20 {
		return back, "cut"
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return back, "time"
	case errors.As(err, &exit):
		return back, "ran, " + exit.String()
	}
	return back, "ran"
}
