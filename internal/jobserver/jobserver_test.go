package jobserver

import (
	"fmt"
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
)

// asCommand makes the test binary a command of a makefile: it takes as many places as
// its value says and shows in a directory what runs.
const asCommand = "RDISTCC_JOBSERVER_COMMAND"

func TestMain(m *testing.M) {
	if n := os.Getenv(asCommand); n != "" {
		os.Exit(command(n))
	}
	os.Exit(m.Run())
}

// patience ends a test that waits for what does not happen.
const patience = 2 * time.Minute

// peak is what has been seen of as many things at a time as the test wants, or of
// anything where it does not say.
func peak() (names []string) {
	want := os.Getenv("PEAK")
	if want == "" {
		return []string{""}
	}
	all, _ := filepath.Glob("seen/*")
	for _, name := range all {
		if text, err := os.ReadFile(name); err == nil && string(text) == want {
			names = append(names, name)
		}
	}
	return names
}

// command runs n things, the first one in the place of its own, each for a while.
func command(text string) int {
	n, _ := strconv.Atoi(text)
	c := Open(os.Getenv("MAKEFLAGS"))
	defer c.Close()
	ended := make(chan bool, n)
	run := func() {
		f, err := os.CreateTemp("running", "")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		now, _ := os.ReadDir("running")
		_ = os.WriteFile(filepath.Join("seen", filepath.Base(f.Name())), []byte(strconv.Itoa(len(now))), 0o600)
		time.Sleep(5 * time.Millisecond) // so that others come while this one runs
		for end := time.Now().Add(patience); len(peak()) == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		}
		_ = os.Remove(f.Name())
		ended <- true
	}
	go run()
	n--
	granted := make(chan bool)
	go func() {
		for c.Acquire() {
			granted <- true
		}
		close(granted)
	}()
	running := 1
	for n > 0 || running > 0 {
		select {
		case _, ok := <-granted:
			switch {
			case !ok:
				granted = nil
			case n == 0: // it came with the last one's start
				c.Release()
			default:
				n--
				running++
				go run()
				if n == 0 {
					c.Enough()
				}
			}
		case <-ended:
			if n > 0 {
				n--
				go run()
				if n == 0 {
					c.Enough()
				}
				continue
			}
			if running--; running > 0 {
				c.Release()
			}
		}
	}
	if os.Getenv("PANIC") != "" {
		c.Acquire()
		panic("as asked for")
	}
	return 0
}

// build runs a makefile of commands that want five places each, and returns how many
// things ran at a time at most. peak, if not 0, is what each thing waits for.
func build(t *testing.T, commands, peak int, flags ...string) (most int, out string) {
	t.Helper()
	mk, err := exec.LookPath("make")
	if err != nil {
		t.Skip("no make")
	}
	dir := t.TempDir()
	for _, d := range []string{"running", "seen"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	targets := strings.Join(strings.Split("abcd"[:commands], ""), " ")
	text := "all: " + targets + "\n" + targets + ":\n\t@+" + asCommand + "=5 " + self + "\n"
	if err := os.WriteFile(filepath.Join(dir, "Makefile"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(mk, flags...)
	cmd.Dir = dir
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { // of a make that runs the tests
		return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS=")
	})
	if peak > 0 {
		cmd.Env = append(cmd.Env, "PEAK="+strconv.Itoa(peak))
	}
	b, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("make %v: %v\n%s", flags, err, b)
	}
	seen, err := os.ReadDir(filepath.Join(dir, "seen"))
	if err != nil || len(seen) != 5*commands {
		t.Errorf("%d of %d things ran, %v\n%s", len(seen), 5*commands, err, b)
	}
	for _, e := range seen {
		text, err := os.ReadFile(filepath.Join(dir, "seen", e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		n, _ := strconv.Atoi(string(text))
		most = max(most, n)
	}
	return most, string(b)
}

// TestMake: a real make's places are used and none is lost, of which make itself
// complains at its end ("Exiting with N jobserver tokens available; should be M").
func TestMake(t *testing.T) {
	for _, c := range []struct{ commands, jobs, peak int }{{4, 1, 0}, {4, 2, 0}, {4, 9, 0}, {1, 3, 3}, {1, 9, 5}} {
		most, out := build(t, c.commands, c.peak, "-j"+strconv.Itoa(c.jobs))
		if most > c.jobs || c.peak > 0 && most != c.peak {
			t.Errorf("%+v: %d things at a time", c, most)
		}
		if out != "" {
			t.Errorf("%+v: make says\n%s", c, out)
		}
	}
}

// TestFIFO: the same of a make of version 4.4, played by a FIFO that has the bytes.
func TestFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "GMfifo 1")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte("xyz")); err != nil {
		t.Fatal(err)
	}
	c := Open(` -j4 --jobserver-auth=3,4 --jobserver-auth=fifo:` + strings.ReplaceAll(path, " ", `\ `) + ` -- CC=--jobserver-auth=5,6`)
	if c == nil {
		t.Fatal("not found")
	}
	for i := range 3 {
		if !c.Acquire() {
			t.Fatalf("token %d is not to be had", i)
		}
	}
	got := make(chan bool)
	go func() { got <- c.Acquire() }()
	c.Release()
	if !<-got {
		t.Error("a token that came back was not taken")
	}
	go func() { got <- c.Acquire() }()
	c.Enough()
	if <-got {
		t.Error("a fourth token of three")
	}
	c.Close()
	c.Close()
	left := make([]byte, 16)
	n, err := unix.Read(fd, left)
	if err != nil || n != 3 || strings.Trim(string(left[:n]), "xyz") != "" {
		t.Errorf("given back: %q, %v", left[:max(n, 0)], err)
	}
	for _, c := range "xyz" {
		if !strings.ContainsRune(string(left[:n]), c) {
			t.Errorf("token %q came back as another one: %q", c, left[:n])
		}
	}
	if c.Acquire() {
		t.Error("a token after Close")
	}
}

// TestSharedReaders: a client that loses a race for a token that poll announced goes on waiting, and can be woken.
func TestSharedReaders(t *testing.T) {
	r, w := passedOn(t)
	flags := fmt.Sprintf("w -j --jobserver-fds=%d,%d", r, w)
	var all []*Client
	taken := make(chan bool)
	for range 8 {
		c := Open(flags)
		if c == nil {
			t.Fatal("a pipe is not taken")
		}
		all = append(all, c)
		go func() { taken <- c.Acquire() }()
	}
	if _, err := unix.Write(w, []byte("++")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if !<-taken {
			t.Error("no token for one who waits")
		}
	}
	for _, c := range all {
		c.Enough()
	}
	for range 6 {
		if <-taken {
			t.Error("a token too many")
		}
	}
	for _, c := range all {
		c.Close()
	}
	if n := left(t, r); n != 2 {
		t.Errorf("%d tokens in the pipe, want 2", n)
	}
	if f, err := unix.FcntlInt(uintptr(r), unix.F_GETFL, 0); err != nil || f&unix.O_NONBLOCK != 0 {
		t.Errorf("make's own end does not block any more: %x, %v", f, err)
	}
}

// passedOn is a pipe as a make passes it on.
func passedOn(t *testing.T) (r, w int) {
	t.Helper()
	var p [2]int
	if err := unix.Pipe(p[:]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(p[0]); unix.Close(p[1]) })
	return p[0], p[1]
}

// left is how many bytes a pipe holds.
func left(t *testing.T, r int) int {
	t.Helper()
	n, err := unix.IoctlGetInt(r, unix.TIOCINQ)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestWhatIsNone: descriptors that are closed, broken or in other use are left alone.
func TestWhatIsNone(t *testing.T) {
	r, w := passedOn(t)
	r2, w2 := passedOn(t)
	own := make([]int, 2)
	if err := unix.Pipe2(own, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(own[0])
	defer unix.Close(own[1])
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	pair := func(a, b int) string { return fmt.Sprintf("--jobserver-auth=%d,%d", a, b) }
	for _, flags := range []string{
		"", "k", " -j", " -j1 --", "--jobserver-auth=", "--jobserver-auth=x", "--jobserver-auth=3", "--jobserver-auth=-2,-2",
		"--jobserver-auth=3,", "--jobserver-auth=,4", "--jobserver-auth=99999999999999999999,4",
		pair(900, 901),                       // closed
		pair(w, r),                           // the wrong way round
		pair(r, w2), pair(r2, w), pair(r, r), // not the two ends of one pipe
		pair(own[0], own[1]),                    // the process's own
		pair(int(file.Fd()), int(file.Fd())),    // no pipe
		"-- " + pair(r, w), "X\\ " + pair(r, w), // a variable; a word with a blank in it
		"--jobserver-auth=fifo:", "--jobserver-auth=fifo:/no/such", "--jobserver-auth=fifo:" + file.Name(),
		pair(r, w) + " " + pair(-2, -2), // the last one counts
	} {
		if c := Open(flags); c != nil {
			t.Errorf("%q was taken for a jobserver", flags)
			c.Close()
		}
	}
	var c *Client
	if c.Acquire() {
		t.Error("a place of nobody's")
	}
	c.Release()
	c.Enough()
	c.Close()
}

// TestGivenBackOnPanic: what ends a process by itself lets its deferred calls run.
func TestGivenBackOnPanic(t *testing.T) {
	mk, err := exec.LookPath("make")
	if err != nil {
		t.Skip("no make")
	}
	dir := t.TempDir()
	for _, d := range []string{"running", "seen"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	self, _ := os.Executable()
	if err := os.WriteFile(filepath.Join(dir, "Makefile"), []byte("all:\n\t-+"+asCommand+"=1 PANIC=1 "+self+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(mk, "-j3")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "as asked for") || strings.Contains(string(out), "INTERNAL") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestMakeIsGone: a pipe whose make has ended gives none, and writing to it does no harm.
func TestMakeIsGone(t *testing.T) {
	var p [2]int
	if err := syscall.Pipe(p[:]); err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Write(p[1], []byte("+")); err != nil {
		t.Fatal(err)
	}
	c := Open(fmt.Sprintf("--jobserver-auth=%d,%d", p[0], p[1]))
	if !c.Acquire() {
		t.Fatal("no token")
	}
	syscall.Close(p[0])
	syscall.Close(p[1])
	c.Close()
}
