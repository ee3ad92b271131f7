//go:build amd64 && linux && !race

package quick

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc/ipcserver"
	"github.com/rdistcc/rdistcc/pkg/connmgr/plain"
)

var rdistcc string

func TestMain(m *testing.M) {
	dir, err := farmtest.Build(context.Background(), nil, "rdistcc")
	if err != nil {
		panic(err)
	}
	rdistcc = filepath.Join(dir, "rdistcc")
	os.Exit(m.Run())
}

// allowed are functions of the runtime that need nothing of it, or are never called: those that panic, as indexes are checked before;
// those that grow a stack (see start); and those for a garbage collection that is under way.
var allowed = regexp.MustCompile(`^runtime\.(mem(move|equal|clrNoHeapPointers)|duff(zero|copy)|morestack(_noctxt)?(\.abi0)?|panic(Index|Slice|Bounds|Extend|divide|shift).*|goPanic.*|gcWriteBarrier\d)$`)

// TestCallsNothing follows the calls from run, as the compiler lists them: they lead to functions of this package only, and to those
// that are allowed.
func TestCallsNothing(t *testing.T) {
	build := exec.Command("go", "build", "-trimpath", "-gcflags=-S", ".")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const own = "github.com/rdistcc/rdistcc/pkg/connmgr/quick."
	calls, function := map[string][]string{own + "system": nil}, "" // it is in assembly
	begins := regexp.MustCompile(`^(\S+) STEXT`)
	target := regexp.MustCompile(`\t(?:CALL|JMP)\t(\S+)\(SB\)`)
	for line := range strings.Lines(string(out)) {
		if m := begins.FindStringSubmatch(line); m != nil {
			function = m[1]
			calls[function] = nil
		} else if m := target.FindStringSubmatch(line); m != nil {
			calls[function] = append(calls[function], m[1])
		} else if strings.Contains(line, "\tCALL\t") {
			t.Errorf("%s calls what only the runtime of the program tells: %s", function, strings.TrimSpace(line))
		}
	}
	seen, next := map[string]bool{}, []string{own + "run"}
	for len(next) > 0 {
		f := next[0]
		next = next[1:]
		if seen[f] {
			continue
		}
		seen[f] = true
		if _, ok := calls[f]; !ok && !allowed.MatchString(f) {
			t.Errorf("%s is called, which may need the runtime", f)
		}
		next = append(next, calls[f]...)
	}
	if len(calls[own+"run"]) == 0 {
		t.Error("the compiler lists no calls of run")
	}
}

// manager answers one wrapper as a case says.
type manager struct {
	t     *testing.T
	dir   string // RDISTCC_DIR
	work  string
	asked chan string // kinds of what has come, in a line; closed with the connection
	whole ipc.Whole
}

// answer is what a case sends: first, then a Place of the files, if there are any, and the same as a Result.
type answer struct {
	first   []byte
	files   []placed
	place   bool
	exit    uint8
	hangsUp bool
	after   time.Duration
}

type placed struct {
	ipc.Placed
	content string
}

func newManager(t *testing.T, a *answer) *manager {
	t.Helper()
	m := &manager{t: t, dir: filepath.Join(t.TempDir(), "state"), work: t.TempDir(), asked: make(chan string, 8)}
	if err := ipcserver.MakeDir(m.dir); err != nil {
		t.Fatal(err)
	}
	l, err := ipcserver.Listen(filepath.Join(m.dir, ipc.SocketName), false)
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			c, err := l.AcceptConn()
			if err != nil {
				return
			}
			wait.Go(func() { m.serve(c, a) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); wait.Wait() })
	return m
}

func (m *manager) serve(c *ipcserver.Conn, a *answer) {
	defer c.Close()
	said := ""
	defer func() { m.asked <- strings.TrimSpace(said) }()
	for {
		k, fields, err := c.Recv()
		if err != nil {
			return
		}
		var frame []byte
		switch k {
		case ipc.KindWhole:
			said += "whole "
			if err := m.whole.Parse(fields); err != nil {
				m.t.Error(err)
			}
			if a.hangsUp {
				return
			}
			frame = a.first
			time.Sleep(a.after)
		case ipc.KindLease:
			said += "lease "
		case ipc.KindFinish:
			var f ipc.Finish
			if err := f.Parse(fields); err != nil || f.Exit != a.exit || !f.Closed {
				m.t.Errorf("Finish %+v, %v", f, err)
			}
			said += "finish"
			return
		case ipc.KindLocal:
			said += "local "
			_ = c.Send(ipc.AppendBare(nil, ipc.KindGo))
			continue
		default:
			said += "? "
			continue
		}
		if len(frame) > 0 && ipc.Kind(frame[4]) == ipc.KindAsk {
			_ = c.Send(frame)
			continue
		}
		m.send(c, frame, a)
	}
}

// send sends the result of a compile.
func (m *manager) send(c *ipcserver.Conn, frame []byte, a *answer) {
	sink, err := os.CreateTemp(m.t.TempDir(), "")
	if err != nil {
		m.t.Error(err)
		return
	}
	defer sink.Close()
	r, p := ipc.Result{Host: "h", Exit: a.exit}, ipc.Place{}
	at := uint64(0)
	for i, f := range a.files {
		_, _ = sink.WriteString(f.content)
		f.Segment = ipc.Segment{Off: at, Len: uint64(len(f.content))}
		at += f.Len
		r.Files = append(r.Files, ipc.File{Index: uint8(i), Segment: f.Segment})
		p.Files = append(p.Files, f.Placed)
	}
	if a.place {
		p = ipc.Place{Report: quickLine}
		for i, f := range a.files {
			f.Segment = r.Files[i].Segment
			p.Files = append(p.Files, f.Placed)
		}
		frame = p.Append(frame)
	}
	frame = (&ipc.Leased{Job: 1, Family: "gcc", Major: 12, Tree: true, Known: true}).Append(frame)
	if err := c.Send(r.Append(frame), int(sink.Fd())); err != nil {
		m.t.Error(err)
	}
}

// quickLine is what the beginning of the process writes to a report. The rest of it goes by the Result.
const quickLine = "remote:quick\n"

// TestReport: a report alone does not need the rest of the wrapper, unless something is wrong with it.
func TestReport(t *testing.T) {
	for _, c := range []struct{ name, file, want, says string }{
		{"usual", "report", "remote:before\n" + quickLine, ""},
		{"of another directory", "none/report", "", "RDISTCC_REPORT=none/report: no such file or directory"},
		{"full", "/dev/full", "", "RDISTCC_REPORT=/dev/full: no space left on device"},
		{"none", "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newManager(t, &answer{place: true, files: []placed{object(ipc.PlacedUnlinked, "", "new")}})
			for name, text := range map[string]string{"a.c": "int a;\n", "report": "remote:before\n"} {
				if err := os.WriteFile(m.path(name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			cmd := m.command("-c", "a.c")
			cmd.Env = append(cmd.Env, "RDISTCC_REPORT="+c.file, "RDISTCC_VERBOSE=1", "_RDISTCC_PART_OF=/a")
			out, err := cmd.CombinedOutput()
			if err != nil || c.says == "" && len(out) > 0 || !strings.Contains(string(out), c.says) {
				t.Errorf("%v: %s", err, out)
			}
			if got, _ := os.ReadFile(m.path("report")); c.want != "" && string(got) != c.want {
				t.Errorf("the report is %q, want %q", got, c.want)
			}
			if got, err := os.ReadFile(m.path("a.o")); err != nil || string(got) != "new" {
				t.Errorf("a.o: %.40q, %v", got, err)
			}
			if asks := <-m.asked; asks != "whole finish" {
				t.Errorf("the manager was sent %s", asks)
			}
		})
	}
}

// TestRecords: what the rest of the wrapper records begins when the process does, not with the runtime.
func TestRecords(t *testing.T) {
	const after = 300 * time.Millisecond
	m := newManager(t, &answer{place: true, after: after, files: []placed{object(ipc.PlacedUnlinked, "", "new")}})
	if err := os.WriteFile(m.path("a.c"), []byte("int a;\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := m.command("-c", "a.c")
	cmd.Env = append(cmd.Env, "RDISTCC_TRACE="+m.path("trace"))
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(m.path("trace"))
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ MS struct{ Total float64 } }
	if err := json.Unmarshal(text, &got); err != nil || got.MS.Total < float64(after.Milliseconds()) {
		t.Errorf("%v: total %v ms, of which the manager took %v", err, got.MS.Total, after)
	}
}

// run runs gcc by the wrapper, with the source a.c.
func (m *manager) run(words ...string) (code int, out string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.work, "a.c"), []byte("int a;\n"), 0o644); err != nil {
		m.t.Fatal(err)
	}
	cmd := m.command(words...)
	b, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		m.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(b)
}

// command returns the wrapper with gcc and words.
func (m *manager) command(words ...string) *exec.Cmd {
	cmd := exec.Command(rdistcc, slices.Concat([]string{"gcc"}, words)...)
	cmd.Dir = m.work
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "PWD=" + m.work, "HOME=" + m.dir, "RDISTCC_DIR=" + m.dir, "ODD=", "=x"}
	return cmd
}

func (m *manager) path(name string) string { return filepath.Join(m.work, name) }

func object(how uint8, temp, content string) placed {
	return placed{ipc.Placed{How: how, Name: "a.o", Dir: ".", Temp: temp}, content}
}

// TestPlaces: the wrapper puts files in their places as compile.Place does, without a lease.
func TestPlaces(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(m *manager) error
		file   placed
		keeps  bool // the file that was there is written in place
	}{
		{name: "missing", file: object(ipc.PlacedUnlinked, "", "new")},
		{name: "there, unlinked", file: object(ipc.PlacedUnlinked, "", "new"), before: func(m *manager) error { return os.WriteFile(m.path("a.o"), []byte("long before"), 0o600) }},
		{name: "empty, unlinked", keeps: true, file: object(ipc.PlacedUnlinked, "", "new"), before: func(m *manager) error { return os.WriteFile(m.path("a.o"), nil, 0o600) }},
		{name: "there, in place", keeps: true, file: object(ipc.PlacedInPlace, "", "new"), before: func(m *manager) error { return os.WriteFile(m.path("a.o"), []byte("long before"), 0o600) }},
		{name: "renamed", file: object(ipc.PlacedRenamed, "a-rd1.0.tmp", "new"), before: func(m *manager) error { return os.WriteFile(m.path("a.o"), []byte("long before"), 0o600) }},
		{name: "renamed, temporary file exists", file: object(ipc.PlacedRenamed, "a-rd1.0.tmp", "new"), before: func(m *manager) error { return os.WriteFile(m.path("a-rd1.0.tmp"), nil, 0o600) }},
		{name: "a link", keeps: true, file: object(ipc.PlacedInPlace, "", "new"), before: func(m *manager) error { return os.Symlink("b.o", m.path("a.o")) }},
		{name: "a wait first", file: object(ipc.PlacedUnlinked, "", "new")},
		{name: "large", file: object(ipc.PlacedUnlinked, "", strings.Repeat("content ", 1<<18))},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &answer{place: true, files: []placed{c.file}}
			if c.name == "a wait first" {
				a.first = ipc.AppendBare(ipc.AppendBare(nil, ipc.KindWait), ipc.KindWait)
			}
			m := newManager(t, a)
			if c.before != nil {
				if err := c.before(m); err != nil {
					t.Fatal(err)
				}
			}
			was, _ := os.Lstat(m.path("a.o"))
			code, out := m.run("-c", "a.c")
			if code != 0 || out != "" {
				t.Fatalf("exit %d: %s", code, out)
			}
			if got, err := os.ReadFile(m.path("a.o")); err != nil || string(got) != c.file.content {
				t.Errorf("a.o: %.40q, %v", got, err)
			}
			if is, err := os.Lstat(m.path("a.o")); err == nil && was != nil && (is.Mode() == was.Mode()) != c.keeps {
				t.Errorf("mode %v, before %v", is.Mode(), was.Mode())
			}
			if asks := <-m.asked; asks != "whole finish" {
				t.Errorf("the manager was sent %s", asks)
			}
		})
	}
}

// TestWholeOrNothing: a signal that comes while a file is written waits until all of it is there.
func TestWholeOrNothing(t *testing.T) {
	content := strings.Repeat("content ", 1<<24)
	m := newManager(t, &answer{place: true, files: []placed{object(ipc.PlacedUnlinked, "", content)}})
	if err := os.WriteFile(m.path("a.c"), []byte("int a;\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := m.command("-c", "a.c")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		if fi, err := os.Stat(m.path("a.o")); err == nil && fi.Size() > 0 {
			_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("no file: %v", err)
		default:
		}
	}
	if err := <-ended; err != nil {
		t.Errorf("the wrapper was killed in the middle: %v", err)
	}
	if fi, err := os.Stat(m.path("a.o")); err != nil || fi.Size() != int64(len(content)) {
		t.Errorf("%d bytes, want %d: %v", fi.Size(), len(content), err)
	}
}

// TestGoesOn: the wrapper goes on where placing files is not all that is to be done.
func TestGoesOn(t *testing.T) {
	good := []placed{object(ipc.PlacedUnlinked, "", "new")}
	for _, c := range []struct {
		name  string
		a     answer
		words []string
		asks  []string // of each connection
		want  string   // of a.o; "": gcc's own
	}{
		{"the manager leaves it to the wrapper", answer{first: ipc.AppendBare(nil, ipc.KindAsk), files: good}, nil, []string{"whole lease finish"}, "new"},
		{"a result that is not placed", answer{files: good}, nil, []string{"whole finish"}, "new"},
		{"the connection ends", answer{hangsUp: true, files: good}, nil, []string{"whole", "lease finish"}, "new"},
		{"another command", answer{files: good}, []string{"-E", "a.c", "-o", "a.o"}, []string{"lease finish"}, "new"},
		{"a file of words", answer{files: good}, []string{"@words"}, []string{"lease finish"}, "new"},
		{"frames that cannot be read", answer{first: []byte{1, 0, 0, 0, 77}, files: good}, nil, []string{"whole"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newManager(t, &c.a)
			if err := os.WriteFile(m.path("words"), []byte("-c a.c"), 0o644); err != nil {
				t.Fatal(err)
			}
			words := c.words
			if words == nil {
				words = []string{"-c", "a.c"}
			}
			if code, out := m.run(words...); code != 0 {
				t.Fatalf("exit %d: %s", code, out)
			}
			for _, want := range c.asks {
				if got := <-m.asked; got != want {
					t.Errorf("the manager was sent %q, want %q", got, want)
				}
			}
			if got, err := os.ReadFile(m.path("a.o")); err != nil || c.want != "" && string(got) != c.want || c.want == "" && !bytes.HasPrefix(got, []byte("\x7fELF")) {
				t.Errorf("a.o: %.40q, %v", got, err)
			}
		})
	}
}

// TestWhole: what is sent is what the process was started with, and the manager can read it.
func TestWhole(t *testing.T) {
	m := newManager(t, &answer{place: true, files: []placed{object(ipc.PlacedUnlinked, "", "new")}})
	words := []string{"-c", "a.c", "", "-DX=\"a b\"\n"}
	if code, out := m.run(slices.Concat(words[:2], words[3:])...); code != 0 {
		t.Fatalf("exit %d: %s", code, out)
	}
	<-m.asked
	w := &m.whole
	if want := strings.Join([]string{rdistcc, "gcc", "-c", "a.c", words[3], ""}, "\x00"); w.Words != want {
		t.Errorf("words %q, want %q", w.Words, want)
	}
	if want := strings.Join([]string{"PATH=" + os.Getenv("PATH"), "PWD=" + m.work, "HOME=" + m.dir, "RDISTCC_DIR=" + m.dir, "ODD=", "=x", ""}, "\x00"); w.Environ != want {
		t.Errorf("environment %q, want %q", w.Environ, want)
	}
	if v := ipc.Look(m.work); w.View != v {
		t.Errorf("view %+v, want %+v", w.View, v)
	}
	if c := plain.Read(w, 1); c == nil || c.Lease.Cwd != m.work || !slices.Equal(c.Lease.Command.Args, []string{"-c", "a.c", words[3]}) {
		t.Errorf("read as %+v", c)
	}
}

// TestOtherTrust: without a manager in a directory of this user's, the wrapper's usual way decides.
func TestOtherTrust(t *testing.T) {
	m := newManager(t, &answer{place: true, files: []placed{object(ipc.PlacedUnlinked, "", "new")}})
	if err := os.Chmod(m.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	code, out := m.run("-c", "a.c")
	if code != 0 || !strings.Contains(out, ipc.ErrWritable.Error()) {
		t.Errorf("exit %d: %s", code, out)
	}
	select {
	case got := <-m.asked:
		t.Errorf("the manager was sent %q", got)
	default:
	}
}
