package probe

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
)

// TestMain is also where the processes begin that a test starts of this program.
func TestMain(m *testing.M) {
	switch os.Args[0] {
	case Arg0:
		Main()
	case hostArg0:
		var h Host
		if err := h.sleeper(); err != nil {
			panic(err)
		}
		fmt.Println(h.t.Process)
		select {}
	}
	os.Exit(m.Run())
}

// hostArg0 makes this program one that has targets until it is killed.
const hostArg0 = "probe-host"

// TestKilledHostLeavesNoProcess: what a canary is to reach ends with the daemon, even if that is killed.
func TestKilledHostLeavesNoProcess(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args[0] = hostArg0
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	_, err = fmt.Fscan(out, &pid)
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Kill(pid, unix.SIGKILL) }()
	for range 3000 { // its new parent may take a while to wait for it
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if _, after, ok := strings.Cut(string(stat), ") "); err != nil || ok && after[0] == 'Z' {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %d lives on", pid)
}

// unconfined runs the probe, which this program is too, with nothing around it.
func unconfined(t *testing.T, targets *Targets) Report {
	t.Helper()
	return unconfinedIn(t, "/proc/self/exe", targets)
}

func unconfinedIn(t *testing.T, program string, targets *Targets) Report {
	t.Helper()
	cmd := exec.Command(program, targets.Args()...)
	cmd.Args[0] = Arg0
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"TMPDIR=" + t.TempDir()}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("probe: %v\n%s", err, errs.Bytes())
	}
	r, err := Parse(out)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, dir := range []string{cmd.Dir, cmd.Env[0][len("TMPDIR="):]} {
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("the probe left %v in %s", left, dir)
		}
	}
	return r
}

func testHost(t *testing.T) (*Host, *Targets) {
	t.Helper()
	h, err := NewHost(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	targets := h.Targets()
	targets.Toolchain, targets.Program = "/bin/ls", "/bin/ls"
	return h, targets
}

// everywhere is what an ordinary user reaches on any Linux where nothing confines it.
var everywhere = strings.Fields(`read-secret read-secret-upwards read-secret-through-link read-secret-hard-link read-other-runner list-other-runner list-area
	read-passwd read-process-environ read-process-maps read-process-mem read-process-root read-process-cwd read-process-descriptors
	write-secret write-tmp write-var-tmp write-area write-other-runner truncate-secret touch-secret write-process-mem
	watch-secret exec-shell exec-env exec-own-file exec-own-file-by-descriptor exec-own-script exec-memfd load-own-file
	tcp-connect tcp-bind udp-send udp-bind unix-connect unix-connect-abstract unix-bind-abstract unix-datagram
	ptrace process-vm-readv process-vm-writev signal-none signal-continue signal-group signal-thread signal-by-descriptor
	read-limits set-limits set-priority set-affinity see-process new-session new-group set-id-bit personality list-sys`)

// tracers are what Yama keeps from ordinary users where it is set to.
var tracers = []string{"ptrace", "process-vm-readv", "process-vm-writev", "read-process-mem", "write-process-mem"}

// TestUnconfined: what a sandbox is to prevent does happen without one, else its
// prevention would prove nothing.
func TestUnconfined(t *testing.T) {
	h, targets := testHost(t)
	r := unconfined(t, targets)
	if err := r.Works(); err != nil {
		t.Error(err)
	}
	reached := r.Reachable()
	yama, _ := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	kept := os.Getuid() != 0 && len(yama) > 0 && yama[0] != '0'
	for _, name := range everywhere {
		if kept && slices.Contains(tracers, name) {
			continue
		}
		if !slices.Contains(reached, name) {
			l, _ := r.Result(name)
			t.Errorf("%s is refused (%s) where nothing confines it", name, l.Why)
		}
	}
	if os.Getuid() == 0 {
		for _, name := range []string{"write-root", "write-etc", "write-beside-toolchain", "set-uid-root"} {
			if !slices.Contains(reached, name) {
				t.Errorf("%s is refused to root where nothing confines it", name)
			}
		}
	}
	for _, l := range r {
		if !l.Reachable {
			t.Logf("not here as user %d: %s (%s)", os.Getuid(), l.Name, l.Why)
		}
	}
	t.Logf("user %d: %d of %d attempts reach something", os.Getuid(), len(reached), len(r))
	if len(h.Touched()) == 0 {
		t.Error("the host has noticed nothing")
	}
}

// TestAsLinked: the probe of the daemon as `make` links it, without cgo, finds what that of this program does. Some calls
// of packages syscall and unix wait there for the process's other threads, and a forked one has none.
func TestAsLinked(t *testing.T) {
	if testing.Short() {
		t.Skip("links the daemon")
	}
	bin := farmtest.Programs(t)
	_, targets := testHost(t)
	want, got := unconfined(t, targets), unconfinedIn(t, filepath.Join(bin, "rdistccd"), targets)
	for _, name := range []string{"set-uid-root", "capability", "set-priority", "set-limits", "raise-priority", "new-session", "new-group"} {
		w, _ := want.Result(name)
		if g, _ := got.Result(name); g != w {
			t.Errorf("%+v, want %+v", g, w)
		}
	}
}

// TestNoDamage: what the probe has changed is as it was.
func TestNoDamage(t *testing.T) {
	h, targets := testHost(t)
	unconfined(t, targets)
	for _, what := range h.Touched() {
		if !strings.Contains(what, "connections") {
			t.Error(what)
		}
	}
	state, err := os.ReadFile("/proc/" + strconv.Itoa(targets.Process) + "/stat")
	if err != nil || !bytes.Contains(state, []byte(") S ")) {
		t.Errorf("the other process is not as it was: %.40s, %v", state, err)
	}
}

func TestAttempts(t *testing.T) {
	names := map[string]bool{}
	classes := map[string]int{}
	for _, a := range Attempts() {
		if names[a.Name] || a.Name == "" || a.Do == nil || strings.ContainsAny(a.Name, " \t\n") {
			t.Errorf("attempt %q", a.Name)
		}
		names[a.Name] = true
		classes[a.Class]++
	}
	for _, c := range []string{Read, Write, Exec, Net, Process, Privilege, Kernel, Info, Need} {
		if classes[c] == 0 {
			t.Errorf("no attempt of class %s", c)
		}
	}
	if n := len(names) - classes[Need] - classes[Oracle]; n < 33 {
		t.Errorf("%d attempts", n)
	}
}

func TestTargetsTravel(t *testing.T) {
	want := Targets{Token: "a=b", Secret: "/x y/z", Process: 7, ShmKey: -3, Program: "/bin/x"}
	got, err := ParseTargets(want.Args())
	if err != nil || *got != want {
		t.Errorf("%q became %+v, %v", want.Args(), got, err)
	}
	for _, bad := range []string{"Nobody=1", "", "Process=x", "t=1"} {
		if _, err := ParseTargets([]string{bad}); err == nil {
			t.Errorf("target %q is taken", bad)
		}
	}
}

// TestPrivateDirectories: what has a name of the host's and is not the host's is no way
// out.
func TestPrivateDirectories(t *testing.T) {
	_, targets := testHost(t)
	targets.Root, targets.Etc, targets.Beside = "1:1", "1:1", "1:1"
	r := unconfined(t, targets)
	for _, name := range []string{"write-root", "write-etc", "write-beside-toolchain"} {
		if l, _ := r.Result(name); l.Reachable || l.Why != "ENODEV" {
			t.Errorf("%s in another directory than the host's: %+v", name, l)
		}
	}
}

// whole is a report in which everything is as why says.
func whole(reach func(*Attempt) bool) []byte {
	var b bytes.Buffer
	all := Attempts()
	for i := range all {
		word := "refused EPERM"
		if reach(&all[i]) {
			word = "reachable -"
		}
		b.WriteString(all[i].Name + " " + all[i].Class + " " + word + "\n")
	}
	b.WriteString("end " + strconv.Itoa(len(all)) + "\n")
	return b.Bytes()
}

func TestReports(t *testing.T) {
	parse := func(out []byte) Report {
		t.Helper()
		r, err := Parse(out)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	good := parse(whole(func(a *Attempt) bool { return a.Class == Need || a.Class == Oracle }))
	if err := good.Works(); err != nil || len(good.Reachable()) != 0 {
		t.Errorf("a good sandbox: %v, %v", err, good.Reachable())
	}
	if r := parse(whole(func(*Attempt) bool { return false })); r.Works() == nil {
		t.Error("a sandbox in which nothing works is good")
	}
	if r := parse(whole(func(*Attempt) bool { return true })); len(r.Reachable()) < 33 {
		t.Errorf("without a sandbox there is %v", r.Reachable())
	}
	out := whole(func(*Attempt) bool { return false })
	cut := bytes.LastIndexByte(out[:len(out)-1], '\n') + 1
	for _, bad := range [][]byte{nil, out[:cut], out[:cut/2], []byte("end 0\n"), []byte("x\n"), append([]byte("fatal error: out of memory\n"), out...)} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%.40q... is a report", bad)
		}
	}
}

// TestTargetsThatCannotBeMade: that is an error, and leaves nothing.
func TestTargetsThatCannotBeMade(t *testing.T) {
	shared := func() []string {
		var all []string
		for _, place := range []string{"/tmp", "/var/tmp", "/dev/shm"} {
			found, _ := filepath.Glob(place + "/" + Shared + "*")
			all = append(all, found...)
		}
		return all
	}
	if h, err := NewHost(filepath.Join(t.TempDir(), "missing")); h != nil || err == nil {
		t.Errorf("below no directory: %v, %v", h, err)
	}
	defer func(self string) { program = self }(program)
	program = "/none"
	before := shared()
	dir := t.TempDir()
	if h, err := NewHost(dir); h != nil || err == nil {
		t.Errorf("without a process: %v, %v", h, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	for _, path := range shared() {
		if !slices.Contains(before, path) && !held(path) { // another test's, which runs beside
			t.Errorf("left %s", path)
		}
	}
}

// TestTargetsWithoutPrograms: a container may have no programs but the daemon.
func TestTargetsWithoutPrograms(t *testing.T) {
	t.Setenv("PATH", "")
	h, err := NewHost(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := unix.Kill(h.t.Process, 0); err != nil {
		t.Errorf("the process that is not to be reached: %v", err)
	}
}

// held reports whether some process holds the lock of a directory.
func held(path string) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true // removed meanwhile
	}
	defer unix.Close(fd)
	return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil
}

// TestSharedDirectoriesAreLocked: what is left over can be told from what is in use.
func TestSharedDirectoriesAreLocked(t *testing.T) {
	h, targets := testHost(t)
	for _, path := range []string{targets.Temp, targets.VarTmp, targets.Shm} {
		if path == "" {
			continue // not on this machine
		}
		if !strings.HasPrefix(filepath.Base(path), Shared) || !held(path) {
			t.Errorf("%s is not locked", path)
		}
	}
	h.Close()
	if targets.Temp != "" {
		if _, err := os.Lstat(targets.Temp); err == nil {
			t.Errorf("%s is still there", targets.Temp)
		}
	}
}
