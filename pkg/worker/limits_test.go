package worker

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/pkg/worker/capture"
)

// residentSet returns this process's resident memory, in bytes.
func residentSet(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(b))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// TestHungryCompiles: a compiler that takes all it can get is ended, with a cause that distinguishes it from
// a host in trouble. Another job at the same time is not affected, and nothing of it is left.
func TestHungryCompiles(t *testing.T) {
	part.Skip(t)
	if testing.Short() {
		t.Skip("takes seconds")
	}
	confined(t, func(t *testing.T, on func(*Options)) {
		ts := startServer(t, func(o *Options) {
			on(o)
			o.JobMemory, o.Processes, o.File, o.Output = 192<<20, 12, 8<<20, 64<<10
		})
		ts.needLevel(sandbox.Confined)
		// A compiler that does what its source says.
		id := ts.fake("gcc-13", ". ./a.c\n")
		good := ts.tool("gcc")
		want := local(t, "gcc", "cpp-output", "a.c", hello, "-O2")
		c := dial(t, ts.addr, &job.Hello{})
		for _, q := range []struct {
			name, script string
			timeout      time.Duration
			cause        job.Cause
			denied       string
		}{
			{"memory", "s=0123456789abcdef; while :; do s=$s$s; done", 0, job.CauseMemory, "memory"},
			{"file", "s=0123456789abcdef; s=$s$s$s$s; s=$s$s$s$s; while :; do echo $s$s$s$s; done >$out", 0, job.CauseTooBig, "file"},
			{"time", "while :; do :; done", 700 * time.Millisecond, job.CauseTimeout, "time"},
			{"descendants", "(while :; do :; done) & (while :; do :; done) & wait", 700 * time.Millisecond, job.CauseTimeout, "time"},
		} {
			before := gathered(t, ts, "rdistccd_sandbox_denials_total", q.denied)
			bad := c.start(id, request{body: compileBody("cpp-output", "a.c"), text: q.script + "\n", timeout: q.timeout})
			r := c.do(good, request{body: compileBody("cpp-output", "a.c", "-O2"), text: hello})
			if r.Exit != 0 || len(r.Files) != 1 || !bytes.Equal(r.bytes(r.Files[0].Segment), want) {
				t.Errorf("%s: the job beside it: %+v", q.name, r.Result)
			}
			if r := c.result(bad); r.Status != job.StatusFailed || r.Cause != q.cause {
				t.Errorf("%s: %+v\n%s", q.name, r.Result, r.bytes(r.Stderr))
			}
			if got := gathered(t, ts, "rdistccd_sandbox_denials_total", q.denied); got != before+1 {
				t.Errorf("%s: %v denials, want %v", q.name, got, before+1)
			}
		}
		// A bomb: either it is ended, or it gets no more processes and fails by itself.
		r := c.do(id, request{body: compileBody("cpp-output", "a.c"), text: "f() { f & f & wait; }; f\n", timeout: 3 * time.Second})
		// Its shell may call that a success, but says that it could not fork.
		if r.Status == job.StatusRan && !bytes.Contains(r.bytes(r.Stderr), []byte("fork")) {
			t.Errorf("a bomb: %+v\n%.300s", r.Result, r.bytes(r.Stderr))
		}
		// What one left would be in the next one's way.
		r = c.do(id, request{body: compileBody("cpp-output", "a.c"), text: "echo *; echo ../*/*; read x && exit 3; echo x >$out; echo $$; exit 0\n"})
		if s := string(r.bytes(r.Stdout)); r.Exit != 0 || !strings.HasPrefix(s, "a.c\n../src/a.c\n") {
			t.Errorf("after them: %+v\n%s", r.Result, s)
		}
	})
}

// TestFloodOfWords: a compiler's messages are cut at the limit, take no memory beyond it, and do not change
// how the job ends.
func TestFloodOfWords(t *testing.T) {
	part.Skip(t)
	if testing.Short() {
		t.Skip("takes seconds")
	}
	confined(t, func(t *testing.T, on func(*Options)) {
		ts := startServer(t, func(o *Options) { on(o); o.Output = 64 << 10 })
		ts.needLevel(sandbox.Confined)
		id := ts.fake("gcc-13", ". ./a.c\n")
		c := dial(t, ts.addr, &job.Hello{})
		const script = "s=0123456789abcdef; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do s=$s$s; done\n" + // 64 KiB
			"i=0; while [ $i -lt 768 ]; do echo $s || exit 7; echo $s >&2 || exit 8; i=$((i+1)); done; echo object >$out\n"
		before := residentSet(t)
		r := c.do(id, request{body: compileBody("cpp-output", "a.c"), text: script, sink: 1 << 20})
		if r.Status != job.StatusRan || r.Exit != 0 || r.Signal != 0 || len(r.Files) != 1 || string(r.bytes(r.Files[0].Segment)) != "object\n" {
			t.Fatalf("%+v\n%.200s", r.Result, r.bytes(r.Stderr))
		}
		for _, s := range []job.Segment{r.Stdout, r.Stderr} {
			if b := r.bytes(s); len(b) != 64<<10+len(capture.Note(64<<10)) || !strings.HasPrefix(string(b), "0123456789abcdef0") || !strings.HasSuffix(string(b), capture.Note(64<<10)) {
				t.Errorf("%d bytes came back, the last %q", len(b), b[max(0, len(b)-80):])
			}
		}
		if grown := residentSet(t) - before; grown > 32<<20 {
			t.Errorf("96 MiB of words took %d MiB of memory", grown>>20)
		}
		if got := gathered(t, ts, "rdistccd_sandbox_denials_total", "output"); got != 1 {
			t.Errorf("%v denials for output, want 1", got)
		}
		// The next command's pipe is as new, whatever this one did to its own.
		r = c.do(id, request{body: compileBody("cpp-output", "a.c"), text: "echo out; echo err >&2; echo x >$out\n"})
		if string(r.bytes(r.Stdout)) != "out\n" || string(r.bytes(r.Stderr)) != "err\n" {
			t.Errorf("after it: %q, %q", r.bytes(r.Stdout), r.bytes(r.Stderr))
		}
	})
}
