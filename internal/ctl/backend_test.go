package ctl

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc/ipcserver"
)

// answers is a manager that answers each command as a case says.
type answers struct {
	t      *testing.T
	answer func(sink *os.File, w *ipc.Whole) []byte // frames; nil: hangs up

	mu    sync.Mutex
	asked []ipc.Whole
	done  int // Finish has come

	stop func() // returns when all connections have ended
}

// serve has the manager listen where the shell's commands look for it.
func (a *answers) serve(s *shell) {
	l, err := ipcserver.Listen(filepath.Join(s.env["RDISTCC_DIR"], ipc.SocketName), false)
	if err != nil {
		a.t.Fatal(err)
	}
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			c, err := l.AcceptConn()
			if err != nil {
				return
			}
			wait.Go(func() { a.one(c) })
		}
	})
	a.stop = func() { _ = l.Close(); wait.Wait() }
	a.t.Cleanup(a.stop)
}

func (a *answers) one(c *ipcserver.Conn) {
	defer c.Close()
	for {
		k, fields, err := c.Recv()
		if err != nil {
			return
		}
		switch k {
		case ipc.KindWhole:
			var w ipc.Whole
			if err := w.Parse(fields); err != nil {
				a.t.Error(err)
			}
			a.mu.Lock()
			a.asked = append(a.asked, w)
			a.mu.Unlock()
			sink, err := os.CreateTemp(a.t.TempDir(), "")
			if err != nil {
				a.t.Error(err)
				return
			}
			frames := a.answer(sink, &w)
			if frames == nil || c.Send(frames, int(sink.Fd())) != nil {
				sink.Close()
				return
			}
			sink.Close()
		case ipc.KindFinish:
			var f ipc.Finish
			if err := f.Parse(fields); err != nil || f.Where != ipc.WhereRemote || f.Exit != 0 || !f.Closed {
				a.t.Errorf("%+v, %v", f, err)
			}
			a.mu.Lock()
			a.done++
			a.mu.Unlock()
			return
		case ipc.KindControl: // how many places there are
			_ = c.Send((&ipc.Reply{Data: []byte(`{"hosts":1}`)}).Append(nil))
		default:
			return
		}
	}
}

// placed answers that the last word of a command is to be content.
func placed(how uint8, content string) func(*os.File, *ipc.Whole) []byte {
	return func(sink *os.File, w *ipc.Whole) []byte {
		_, _ = sink.WriteString(" " + content)
		words := strings.Split(strings.TrimSuffix(w.Words, "\x00"), "\x00")
		name := words[len(words)-1]
		p := ipc.Place{Report: "remote:h\n", Files: []ipc.Placed{{How: how, Name: name, Dir: filepath.Dir(name) + "/.",
			Segment: ipc.Segment{Off: 1, Len: uint64(len(content))}}}}
		if how == ipc.PlacedRenamed {
			p.Files[0].Temp = name + ".tmp"
		}
		return (&ipc.Leased{Known: true}).Append(p.Append(ipc.AppendBare(nil, ipc.KindWait)))
	}
}

// TestDistributedByTheManager: what the manager answers with a result in its places takes no wrapper.
func TestDistributedByTheManager(t *testing.T) {
	for how, before := range map[uint8]string{ipc.PlacedInPlace: "an older one", ipc.PlacedUnlinked: "", ipc.PlacedRenamed: "an older one"} {
		s := newShell(t)
		a := &answers{t: t, answer: placed(how, "object")}
		a.serve(s)
		s.env["_RDISTCC_SAFEGUARD"], s.env["RDISTCC_REPORT"], s.env["RDISTCC_HOSTS"] = "1", filepath.Join(s.dir, "report"), "localhost/2"
		file := s.distributed("exit 9", 5)
		s.file("m 1.native.o", before)
		other := filepath.Join(s.dir, "other name")
		if err := os.Link(filepath.Join(s.dir, "m 1.native.o"), other); err != nil {
			t.Fatal(err)
		}
		s.want(0, "", "", "dtlto", file)
		a.stop()
		for i := range 5 {
			name := filepath.Join(s.dir, fmt.Sprintf("m %d.native.o", i))
			if b, err := os.ReadFile(name); err != nil || string(b) != "object" {
				t.Errorf("%s: %q, %v", name, b, err)
			}
		}
		want := before
		if how != ipc.PlacedRenamed { // an empty file is written into, as clang does
			want = "object"
		}
		if b, err := os.ReadFile(other); err != nil || string(b) != want {
			t.Errorf("how %d: the file's other name has %q, want %q", how, b, want)
		}
		if left, _ := filepath.Glob(filepath.Join(s.dir, "*.tmp")); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
		if b, err := os.ReadFile(s.env["RDISTCC_REPORT"]); err != nil || string(b) != strings.Repeat("remote:h\n", 5) {
			t.Errorf("report: %q, %v", b, err)
		}
		if len(a.asked) != 5 || a.done != 5 {
			t.Fatalf("asked %d times, finished %d", len(a.asked), a.done)
		}
		w := a.asked[0]
		if want := filepath.Join(s.dir, "bin/rdistcc") + "\x00cl ang\x00-c\x00m "; !strings.HasPrefix(w.Words, want) {
			t.Errorf("words %q, want first %q", w.Words, want)
		}
		if strings.Contains(w.Environ, "SAFEGUARD") || !strings.Contains(w.Environ, "\x00"+ipc.PartVariable+"=/") || w.View != ipc.Look(".") || w.SelfIno == 0 {
			t.Errorf("%+v", w)
		}
	}
}

// TestDistributedReport: a report that cannot be written costs a line, not the link.
func TestDistributedReport(t *testing.T) {
	s := newShell(t)
	a := &answers{t: t, answer: placed(ipc.PlacedInPlace, "object")}
	a.serve(s)
	file := s.distributed("exit 9", 1)
	for report, want := range map[string]string{"/dev/full": "no space left on device", filepath.Join(s.dir, "none/report"): "no such file or directory"} {
		s.env["RDISTCC_REPORT"] = report
		s.want(0, "", "rdistcc: RDISTCC_REPORT="+report+": "+want+"\n", "dtlto", file)
	}
}

// TestDistributedByTheWrapperAfterAll: whatever the manager does not answer with a result, or cannot be placed, is the wrapper's; if the
// manager leaves a command to the wrapper, it is not asked about the others.
func TestDistributedByTheWrapperAfterAll(t *testing.T) {
	const jobs = 8
	nowhere := func(sink *os.File, w *ipc.Whole) []byte { // in a directory that is not there
		return (&ipc.Leased{Known: true}).Append((&ipc.Place{Files: []ipc.Placed{{Name: "none/x.o", Dir: "none/."}}}).Append(nil))
	}
	leased := (&ipc.Result{Stderr: ipc.Segment{Len: 1}}).Append((&ipc.Leased{Known: true}).Append(nil))
	answer := func(frames []byte) func(*os.File, *ipc.Whole) []byte {
		return func(*os.File, *ipc.Whole) []byte { return frames }
	}
	for name, c := range map[string]struct {
		answer func(*os.File, *ipc.Whole) []byte
		env    string
		most   int // times that it is asked
	}{
		"left to it":     {answer(ipc.AppendBare(nil, ipc.KindAsk)), "", 1},
		"says something": {answer(leased), "", 1},
		"no host":        {answer((&ipc.GoLocal{Reason: "no-place"}).Append(nil)), "", jobs},
		"hangs up":       {answer(nil), "", jobs},
		"damaged":        {answer([]byte{2, 0, 0, 0, byte(ipc.KindPlace), 7}), "", jobs},
		"no room":        {nowhere, "", jobs},
		"traced":         {placed(ipc.PlacedInPlace, "object"), "RDISTCC_TRACE", 0},
		"logged":         {placed(ipc.PlacedInPlace, "object"), "RDISTCC_LOG", 0},
		"made empty":     {placed(ipc.PlacedInPlace, ""), "", -1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShell(t)
			a := &answers{t: t, answer: c.answer}
			a.serve(s)
			if c.env != "" {
				s.env[c.env] = filepath.Join(s.dir, "records")
			}
			file := s.distributed(`echo local > "$6"`, jobs)
			code, _, errOut := s.run("dtlto", file)
			a.stop()
			if c.most < 0 { // no compiler makes that
				if code == 0 || !strings.Contains(errOut, "made empty") {
					t.Errorf("exit %d, %s", code, errOut)
				}
				return
			}
			if code != 0 || errOut != "" || len(a.asked) > c.most || len(a.asked) == 0 && c.most > 0 || a.done != 0 {
				t.Errorf("exit %d, %q; asked %d times, want up to %d", code, errOut, len(a.asked), c.most)
			}
			for i := range jobs {
				if b, err := os.ReadFile(filepath.Join(s.dir, fmt.Sprintf("m %d.native.o", i))); err != nil || string(b) != "local\n" {
					t.Errorf("module %d: %q, %v", i, b, err)
				}
			}
		})
	}
}
