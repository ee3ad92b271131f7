package privatetree

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/sandbox"
)

const between = "/tmp/between"

// runPair runs two scripts with a file between them, at the same time or in turn, and returns what came of it: outcome,
// standard output and error.
func runPair(t *testing.T, tr *Tree, together bool, first, second string, limits sandbox.Limits) (Outcome, string, string) {
	t.Helper()
	dir := t.TempDir()
	out, err := os.Create(filepath.Join(dir, "out"))
	must(t, err)
	defer out.Close()
	words, err := os.Create(filepath.Join(dir, "words"))
	must(t, err)
	defer words.Close()
	c := &Command{
		Argv: []string{"/bin/sh", "-c", first}, Then: []Program{{Argv: []string{"/bin/sh", "-c", second}}},
		Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/tmp", Stdin: int(null(t).Fd()), Stdout: int(out.Fd()), Stderr: int(words.Fd()), Limits: limits,
	}
	if together {
		c.Between = between
	}
	r, err := tr.Start(c)
	must(t, err)
	if together != (r.between != "") {
		t.Errorf("together %v, but the FIFO is %q", together, r.between)
	}
	o, err := r.Wait()
	must(t, err)
	a, err := os.ReadFile(out.Name())
	must(t, err)
	b, err := os.ReadFile(words.Name())
	must(t, err)
	return o, string(a), string(b)
}

// TestPair runs two programs at the same time: the outcome is the same as in turn, or is reported as one to drop.
func TestPair(t *testing.T) {
	const seq = "i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done"
	for _, test := range []struct {
		name, first, second string
		apart               bool
	}{
		{"both end well", "echo said; echo text >between; echo more >&2", "read x <between; echo got $x; echo and >&2", false},
		{"much text", "(" + seq + ") >between", "wc -c <between", false},
		{"no text", ": >between", "wc -c <between", false},
		{"the second one fails", "echo text >between; echo first >&2", "cat between; echo no >&2; exit 3", false},
		{"the second one is killed", "echo text >between", "cat between >/dev/null; kill -SEGV $$", false},
		{"the second one fails long before the first one ends", "echo text >between; sleep 0.2; echo first >&2", "cat between; exit 3", false},
		{"the first one fails", "echo part >between; echo wrong >&2; exit 1", "cat between; echo unheard >&2", false},
		{"the first one fails later", "echo part >between; sleep 0.2; echo wrong >&2; exit 1", "cat between; echo unheard >&2", false},
		{"the first one fails and the second one never ends", "echo part >between; exit 1", "cat between; sleep 60", false},
		{"the first one fails before it writes", "exit 5", "cat between", false},
		{"the first one is killed", "echo part >between; kill -SEGV $$", "cat between", false},
		{"the second one does not read", "(" + seq + ") >between; echo first", "sleep 0.1; exit 0", true},
		{"the second one does not read and fails", "(" + seq + ") >between; echo first", "exit 4", true},
		{"the second one reads a part", "exec 3>&1 >between; " + seq + "; echo first >&3", "read x <between; exit 2", true},
		{"the second one has much to say", "echo text >between", "cat between; " + seq, true},
		{"the second one has much to say and does not read", "(" + seq + ") >between", seq + "; cat between >/dev/null", true},
	} {
		t.Run(strings.ReplaceAll(test.name, " ", "-"), func(t *testing.T) {
			tr := shell(t, "/usr/bin/cat", "/usr/bin/sleep", "/usr/bin/wc")
			a, aout, aerr := runPair(t, tr, false, test.first, test.second, sandbox.Limits{})
			must(t, tr.Clean())
			b, bout, berr := runPair(t, tr, true, test.first, test.second, sandbox.Limits{})
			if b.Apart != test.apart {
				t.Errorf("apart: %v, want %v (%+v, %q, %q)", b.Apart, test.apart, b, bout, berr)
			}
			if !b.Apart && (a.Exit != b.Exit || a.Signal != b.Signal || aout != bout || aerr != berr) {
				t.Errorf("in turn %+v %q %q\nat once %+v %q %q", a, aout, aerr, b, bout, berr)
			}
			if a.Apart || a.Killed || b.Killed || b.CPU <= 0 || b.MaxRSS < 4096 {
				t.Errorf("in turn %+v, at once %+v", a, b)
			}
			// Nothing of it is left.
			if found, err := tr.Unexpected(func() error { return nil }); err != nil || len(found) > 0 {
				t.Errorf("left: %q, %v", found, err)
			}
			must(t, tr.Clean())
			if o, out := runIn(t, tr, "/tmp", "/bin/sh", "-c", "echo *"); o.Exit != 0 || out != "*\n" {
				t.Errorf("the next command: %+v, and finds %q", o, out)
			}
		})
	}
}

// TestPairRunsAtOnce proves that the second program does not wait for the first one's end.
func TestPairRunsAtOnce(t *testing.T) {
	tr := shell(t, "/usr/bin/cat")
	must(t, unix.Mknodat(tr.root, "tmp/back", unix.S_IFIFO|0o666, 0))
	must(t, unix.Fchmodat(tr.root, "tmp/back", 0o666, 0))
	o, out, _ := runPair(t, tr, true, "echo go >between; read x <back; echo $x", "read x <between; echo answer to $x >back", sandbox.Limits{})
	if o.Exit != 0 || o.Apart || out != "answer to go\n" {
		t.Errorf("%+v, %q", o, out)
	}
}

// TestPairIsKilled ends both programs, by the caller and by a bound.
func TestPairIsKilled(t *testing.T) {
	tr := shell(t, "/usr/bin/cat")
	fd := int(null(t).Fd())
	sh := func(script string) []string { return []string{"/bin/sh", "-c", script} }
	r, err := tr.Start(&Command{
		Argv: sh("echo >/tmp/1; while :; do :; done"), Then: []Program{{Argv: sh("cat " + between)}},
		Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/", Stdin: fd, Stdout: fd, Stderr: fd, Between: between,
	})
	must(t, err)
	started(t, tr, "/tmp/1")
	r.Kill()
	if o, err := r.Wait(); err != nil || !o.Killed || o.Apart || o.Signal != int(unix.SIGKILL) {
		t.Errorf("killed: got %+v, %v", o, err)
	}
	must(t, tr.Clean())
	if tr.Measures().Has(sandbox.Bounds) {
		o, _, _ := runPair(t, tr, true, "echo >between; while :; do :; done", "cat between; while :; do :; done", sandbox.Limits{CPU: time.Second})
		if o.Excess != sandbox.ExcessCPU || o.Apart {
			t.Errorf("with a second of CPU time: got %+v", o)
		}
		must(t, tr.Clean())
	}
	if o, _ := runIn(t, tr, "/", "/bin/sh", "-c", "exit 7"); o.Exit != 7 {
		t.Errorf("the next command: got %+v", o)
	}
}

// TestPairThatCannotBe runs programs in turn where there can be no FIFO, and tells of a second one that cannot be
// started as it would be in turn.
func TestPairThatCannotBe(t *testing.T) {
	tr := shell(t, "/usr/bin/cat")
	must(t, tr.Write(between, []byte("the job's"), when, false))
	fd := int(null(t).Fd())
	sh := func(script string) []string { return []string{"/bin/sh", "-c", script} }
	run := func(second ...string) (Outcome, error) {
		t.Helper()
		r, err := tr.Start(&Command{
			Argv: sh("echo text >" + between), Then: []Program{{Argv: second}},
			Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/", Stdin: fd, Stdout: fd, Stderr: fd, Between: between,
		})
		must(t, err)
		return r.Wait()
	}
	if o, err := run(sh("read x <" + between + "; [ $x = text ] || exit 3")...); err != nil || o.Exit != 0 || o.Apart {
		t.Errorf("with a file of the job's in its place: %+v, %v", o, err)
	}
	if _, err := tr.Open(between); err != nil {
		t.Errorf("the job's file: %v", err)
	}
	must(t, tr.Clean())
	if o, err := run("/none"); err != nil || !o.Apart {
		t.Errorf("a second program that is not there: %+v, %v", o, err)
	}
	if _, err := tr.Open(between); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the FIFO is left: %v", err)
	}
}
