package attacks

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/rawjob"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/sandboxtest"
)

// rungArg0 is how this program is called when it is to run one job under some of the measures.
const rungArg0 = "attacks-rung"

// ladder is which part of the corpus TestLadder takes.
var ladder = flag.Int("ladder", 0, "TestLadder: one attack in so many; 0: none")

// rung is a part of what holds jobs: some measures around whatever command is asked for.
type rung struct {
	name    string
	without []string // by sandboxtest
	apart   bool     // a tree in namespaces; else a directory of the host takes its place
	confine bool
	limits  bool
	want    sandbox.Set // what it has to be held by
}

const spaces = sandbox.Tree | sandbox.Processes | sandbox.Network | sandbox.IPC

var rungs = []rung{
	{name: "tree and namespaces", apart: true, want: spaces},
	{name: "landlock", without: []string{"seccomp"}, confine: true, want: sandbox.Landlock},
	{name: "seccomp and limits", without: []string{"landlock"}, confine: true, limits: true, want: sandbox.Seccomp},
	{name: "all measures", apart: true, confine: true, limits: true, want: spaces | sandbox.Landlock | sandbox.Seccomp},
}

// rungJob is the task of a rung's process.
type rungJob struct {
	Without []string
	Spec    privatetree.Spec
	Argv    []string
	Env     []string
	Body    *job.Body
	Text    string // name of the file with the text
	Limits  sandbox.Limits
	Wall    time.Duration // 0: no limit
	Want    sandbox.Set
}

// runRung runs the job that a file describes. What the job makes follows what it says.
func runRung(file string) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "RUNG BROKEN:", err)
		return 99
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return fail(err)
	}
	var j rungJob
	if err = json.Unmarshal(b, &j); err != nil {
		return fail(err)
	}
	text, err := os.ReadFile(j.Text)
	if err != nil {
		return fail(err)
	}
	if err := sandboxtest.Without(j.Without...); err != nil {
		return fail(err)
	}
	unix.Umask(0o022)
	tr, err := privatetree.New(context.Background(), j.Spec)
	if err != nil {
		return fail(err)
	}
	defer tr.Close()
	if held := tr.Measures() &^ (sandbox.NoNewPrivs | sandbox.Bounds); held != j.Want {
		return fail(fmt.Errorf("held by %v, and not by %v", held, j.Want))
	}
	layRung(tr, j.Body, text)
	if !slices.ContainsFunc(j.Env, func(e string) bool { return strings.HasPrefix(e, "TMPDIR=") }) {
		j.Env = append(j.Env, "TMPDIR="+tr.Path("/tmp"))
	}
	r, err := tr.Start(&privatetree.Command{Argv: j.Argv, Env: j.Env, Dir: tr.Path(j.Body.Cwd), Stdin: 0, Stdout: 1, Stderr: 2, Limits: j.Limits})
	if err != nil {
		return fail(err)
	}
	if j.Wall > 0 {
		defer time.AfterFunc(j.Wall, r.Kill).Stop()
	}
	o, err := r.Wait()
	if err != nil {
		return 1 // there is no such program
	}
	for _, name := range []string{"out.o", "out.s", "out.d"} {
		if f, err := tr.Open(j.Body.Cwd + "/" + name); err == nil {
			out := os.NewFile(uintptr(f.FD), name)
			_, _ = io.CopyN(os.Stdout, out, 4<<20)
			out.Close()
		}
	}
	return o.Exit
}

// layRung makes a job's files, as far as they can be made.
func layRung(tr *privatetree.Tree, b *job.Body, text []byte) {
	at := func(name string) string {
		if strings.HasPrefix(name, "/") {
			return name
		}
		return b.Cwd + "/" + name
	}
	_ = tr.Mkdirs(b.Cwd)
	if len(b.Files) == 0 {
		_ = tr.Write(at(b.Name), text, 1e18, false)
		return
	}
	for _, l := range b.Links {
		_ = tr.Symlink(l.Target, l.Name)
	}
	for _, d := range append([]string{"/usr/include"}, b.Dirs...) {
		_ = tr.Mkdirs(at(d))
	}
	for i := range b.Files {
		f := &b.Files[i]
		if f.Same != 0 {
			_ = tr.Hardlink(at(b.Files[f.Same-1].Name), at(f.Name))
			continue
		}
		_ = tr.Write(at(f.Name), text[:f.Len], f.MTime, f.Exec)
		text = text[f.Len:]
	}
}

// TestLadder counts how many attacks reach something where nothing holds them, where only one half or one
// measure does, and where all do (docs/sandbox.md has the table). What is counted is harm: that
// a command is not refused is none.
func TestLadder(t *testing.T) {
	if *ladder <= 0 {
		t.Skip("takes its time: -ladder N takes one attack in N")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to have the jobs' harm in file systems of their own")
	}
	bin := filepath.Join(farmtest.Programs(t), "rdistccd")
	tcs, have := identify(t)
	list := trials(corpus(t), have)
	n, dos := 0, 0
	list = slices.DeleteFunc(oneEach(list), func(tr trial) bool {
		if !everywhere(tr) || *only != "" && !strings.Contains(tr.id, *only) && tr.class != *only {
			return true
		}
		if tr.class == "dos" { // these take their time
			dos++
			return dos%(3**ladder) != 0
		}
		n++
		return n%*ladder != 0
	})
	var lines []string
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	// run takes a rung's row. One after the other: the judge takes every process for a job's.
	run := func(name string, start func(t *testing.T) func(testing.TB, trial) verdict) {
		if *where != "" && *where != name {
			return
		}
		t.Run(name, func(t *testing.T) {
			try := start(t)
			kinds, jobs, harmed := map[string]int{}, 0, 0
			for _, tr := range list {
				v := try(t, tr)
				count(map[string]*tally{}, kinds, tr, v)
				if jobs++; v.harmed() {
					harmed++
				}
				if *tell {
					t.Logf("%s: %s: %v", tr, v.what, v.breaches)
				}
			}
			line := fmt.Sprintf("| %s | %d of %d |", name, harmed, jobs)
			for _, k := range []string{"exec", "read", "info", "write", "temp", "net", "time", "memory", "disk", "output", "left"} {
				line += fmt.Sprintf(" %d |", kinds[k])
			}
			lines = append(lines, line)
		})
	}
	for _, r := range append([]rung{{name: "nothing"}}, rungs...) {
		run(r.name, func(t *testing.T) func(testing.TB, trial) verdict {
			n := &naive{site: site{c: plant(t, tempDir(t), shown, plainUser), tcs: tcs, daemon: &daemon{}}, patient: true}
			if r.want != 0 {
				n.rung = &r
				self, err := os.Executable()
				if err == nil {
					err = os.MkdirAll(filepath.Join(n.c.dir, "bin"), 0o755)
				}
				if err != nil {
					t.Fatal(err)
				}
				copyFile(t, self, filepath.Join(n.c.dir, "bin", rungArg0))
			}
			n.start(t)
			return func(_ testing.TB, tr trial) verdict {
				v := n.try(t, tr)
				if strings.HasSuffix(v.what, "status 99") {
					t.Errorf("%s: %s", tr, n.said)
				}
				return v
			}
		})
	}
	for _, m := range []mode{
		{name: "allow-list", user: true, sandbox: "off", tree: "off"},
		{name: "both", user: true, sandbox: "strict"},
	} {
		run(m.name, func(t *testing.T) func(testing.TB, trial) verdict {
			s := newSite(t, m, bin, tcs)
			s.honest(t, compilers...)
			return s.try
		})
	}
	t.Log("\n" + strings.Join(lines, "\n"))
}

// everywhere reports whether an attack means the same for all rungs.
func everywhere(tr trial) bool {
	return tr.encoded == nil && tr.toolchain == "" && !tr.tenant && tr.repeat == 1 && tr.cancel == 0
}

// oneEach takes each attack by one compiler, and by another one the next.
func oneEach(list []trial) []trial {
	var all []trial
	for i, n := 0, 0; i < len(list); n++ {
		end := i + 1
		for end < len(list) && list[end].id == list[i].id {
			end++
		}
		all = append(all, list[i+n%(end-i)])
		i = end
	}
	return all
}

// stand writes what the rung's process is to do, and returns the words that start it.
func (n *naive) stand(t *testing.T, tr trial, j *rawjob.Job, argv []string) []string {
	t.Helper()
	tc := n.tcs[tr.cc]
	work := n.root() + shown + "/work"
	if err := errors.Join(os.RemoveAll(work+"/job"), os.Mkdir(work+"/job", 0o700), os.Chown(work+"/job", plainUser, plainUser)); err != nil {
		t.Fatal(err)
	}
	b := *j.Body
	if !tr.sources || !strings.HasPrefix(b.Cwd, "/") {
		b.Cwd = "/src"
	}
	if !tr.sources && (strings.ContainsAny(b.Name, "/") || b.Name == "") {
		b.Name = "in.c"
	}
	rj := rungJob{Without: n.rung.without, Argv: argv, Body: &b, Text: shown + "/work/text", Want: n.rung.want}
	rj.Spec = privatetree.Spec{Files: tc.Files, Dirs: tc.Dirs, Confine: n.rung.confine, Size: 2*fileLimit + 1<<20}
	if !n.rung.apart {
		rj.Spec.Bare = shown + "/work/job"
	}
	rj.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "SECRET_OF_DAEMON=" + n.c.tokens["environ"]}
	for i, e := range tr.env {
		if name, _, ok := strings.Cut(e, "="); ok && name != "" && i < 100 {
			rj.Env = append(rj.Env, n.c.fill(e))
		}
	}
	if n.rung.limits {
		rj.Wall = n.wall(tr)
		rj.Limits = sandbox.Limits{File: fileLimit, Memory: memoryLimit, JobMemory: jobMemoryLimit, Processes: 64, CPU: 2 * rj.Wall}
	}
	enc, err := json.Marshal(rj)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"rung.json": enc, "text": j.Text} {
		if err := os.WriteFile(filepath.Join(work, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return []string{shown + "/bin/" + rungArg0, shown + "/work/rung.json"}
}

// wall is what a rung with limits gives a job.
func (n *naive) wall(tr trial) time.Duration {
	if tr.class == "dos" {
		return dosTime
	}
	return 20 * time.Second
}

// settled waits until the processes of a rung have ended: the first one of a namespace needs a moment after
// its maker is killed. The caller counts those that remain.
func (n *naive) settled() {
	for range 500 {
		busy := false
		for pid := range processes() {
			busy = busy || !n.own(pid)
		}
		if !busy {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
