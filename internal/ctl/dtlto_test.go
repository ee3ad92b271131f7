package ctl

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// distributed writes a file for a distributor with compiles by a script in place of the wrapper, and returns its name.
func (s *shell) distributed(script string, jobs int) string {
	s.file("bin/rdistcc", "#!/bin/sh\n"+script)
	var b strings.Builder
	for i := range jobs {
		s.file(fmt.Sprintf("m %d.o", i), strings.Repeat("x", i))
		fmt.Fprintf(&b, `,{"args":["m %[1]d.o","-fthinlto-index=m %[1]d.bc","-o","%[2]s/m %[1]d.native.o"],"inputs":["%[2]s/m %[1]d.o","m %[1]d.bc"],"outputs":["%[2]s/m %[1]d.native.o"]}`, i, s.dir)
	}
	text, _ := strings.CutPrefix(b.String(), ",")
	return s.file("link.json", `{"common":{"linker_output":"p","args":["cl ang","-c"],"inputs":[]},"jobs":[`+text+"]}")
}

// TestDistributed: every compile of a link runs through the wrapper, the largest module first, with the words that lld has written; not
// as work of the link's own.
func TestDistributed(t *testing.T) {
	s := newShell(t)
	s.env["_RDISTCC_SAFEGUARD"], s.env["DIR"], s.env["RDISTCC_HOSTS"] = "1", s.dir, "localhost/1"
	file := s.distributed(`echo "$1,$2,$3,$4,$5,$_RDISTCC_SAFEGUARD" >> "$DIR/log"; echo object > "$6"`, 5)
	s.want(0, "", "", "dtlto", file)
	b, err := os.ReadFile(filepath.Join(s.dir, "log"))
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if err != nil || len(lines) != 5 || lines[0] != "cl ang,-c,m 4.o,-fthinlto-index=m 4.bc,-o," || !strings.Contains(lines[4], "m 0.o") {
		t.Errorf("%v, %q", err, lines)
	}
}

// TestDistributedTrouble: a compile that fails has the link fail with its status; what has made nothing is no success; and nothing that
// is empty is left for lld, which would take it.
func TestDistributedTrouble(t *testing.T) {
	for script, want := range map[string]struct {
		code int
		says string
	}{
		`echo "error: $3" >&2; exit 3`:     {3, "error: m 0.o"},
		`true`:                             {0, "m 0.native.o: no such file or directory: cl ang -c m 0.o"},
		`: > "$6"`:                         {0, "m 0.native.o: made empty"},
		`: > "$6"; exit 4`:                 {4, ""},
		`kill -9 $$`:                       {128 + 9, ""},
		`echo object > "$6"; mkdir "$6.d"`: {0, ""},
	} {
		s := newShell(t)
		code, _, errOut := s.run("dtlto", s.distributed(script, 1))
		if want.says != "" && want.code == 0 {
			want.code = int(reason.ExitIO)
		}
		if code != want.code || !strings.Contains(errOut, want.says) {
			t.Errorf("%s: %d, %s", script, code, errOut)
		}
		if fi, err := os.Stat(filepath.Join(s.dir, "m 0.native.o")); err == nil && fi.Size() == 0 {
			t.Errorf("%s: an empty file was left", script)
		}
	}
	s := newShell(t)
	good := s.distributed("true", 1)
	b, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for what, text := range map[string]string{
		"want what lld writes": text[:len(text)-9], "names no compiler": strings.Replace(text, `"cl ang","-c"`, "", 1), "has no outputs": strings.Replace(text, `"outputs"`, `"made"`, 1),
		"cannot unmarshal": strings.Replace(text, `"inputs":[]`, `"args":7`, 1),
	} {
		s.want(101, "", what, "dtlto", s.file("bad.json", text))
	}
	s.want(int(reason.ExitIO), "", "no such file", "dtlto", filepath.Join(s.dir, "none"))
	s.want(101, "", "needs a FILE", "dtlto")
}

// TestDistributedHere: what a later lld may mean otherwise, and jobs that make the same file, run here, the latter in their order; one line
// says so.
func TestDistributedHere(t *testing.T) {
	for what, text := range map[string]string{
		`unknown field "env"`:          `{"common":{"args":["cc"],"env":{}},"jobs":[{"args":["1","d/x.o"],"outputs":["d/x.o"]},{"args":["2","d/y.o"],"outputs":["d/y.o"]}],"v":2}`,
		`two jobs make d/./x.o`:        `{"common":{"args":["cc"]},"jobs":[{"args":["1","d/x.o"],"outputs":["d/x.o"]},{"args":["2","d/x.o"],"outputs":["d/./x.o"]}]}`,
		`unknown field "dependencies"`: `{"common":{"args":["cc"]},"jobs":[{"args":["2","d/x.o"],"outputs":["d/x.o"],"dependencies":[]}]}`,
	} {
		s := newShell(t)
		s.file("bin/rdistcc", "#!/bin/sh\n[ \"$RDISTCC_MODE\" = local ] && echo $2 > \"$3\"\n")
		text = strings.ReplaceAll(text, "d/", s.dir+"/")
		code, _, errOut := s.run("dtlto", s.file("link.json", text))
		if what = strings.ReplaceAll(what, "d/", s.dir+"/"); code != 0 || strings.Count(errOut, "\n") != 1 || !strings.Contains(errOut, what+"; compiled here") {
			t.Errorf("%s: exit %d, %s", what, code, errOut)
		}
		if b, err := os.ReadFile(filepath.Join(s.dir, "x.o")); strings.HasPrefix(what, "two") && string(b) != "2\n" {
			t.Errorf("%s: %v, made %q, want what the second one makes", what, err, b)
		}
	}
}

// TestDistributedMany: all of 5,000 compiles run, as many at a time as there are places; of 500 where a part runs.
func TestDistributedMany(t *testing.T) {
	if testing.Short() {
		t.Skip("starts 5,000 programs")
	}
	part.Skip(t)
	s := newShell(t)
	s.env["RDISTCC_HOSTS"] = "localhost/8"
	copies, err := exec.LookPath("cp") // in place of the wrapper: a shell takes ten times as long
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(s.dir, "bin"), 0o777), os.Symlink(copies, filepath.Join(s.dir, "bin/rdistcc"))); err != nil {
		t.Fatal(err)
	}
	jobs := 5000
	if !part.Of(t).Whole() {
		jobs = 500
	}
	module := s.file("m.o", "module")
	var b strings.Builder
	for i := range jobs {
		fmt.Fprintf(&b, `,{"args":["%[2]s/%[1]d.native.o"],"inputs":[%[3]q],"outputs":["%[2]s/%[1]d.native.o"]}`, i, s.dir, module)
	}
	s.want(0, "", "", "dtlto", s.file("many.json", fmt.Sprintf(`{"common":{"args":[%q]},"jobs":[%s]}`, module, b.String()[1:])))
	if made, err := filepath.Glob(filepath.Join(s.dir, "*.native.o")); err != nil || len(made) != jobs {
		t.Errorf("%v, %d outputs", err, len(made))
	}
}

// TestLinkerGone: compiles end when the linker has.
func TestLinkerGone(t *testing.T) {
	if dir := os.Getenv("RDISTCC_TEST_LINKER"); dir != "" { // the distributor
		s := &shell{t: t, dir: dir, env: map[string]string{"RDISTCC_DIR": filepath.Join(dir, "state"), "HOME": dir, "DIR": dir, "RDISTCC_HOSTS": "localhost/2"}}
		s.run("dtlto", filepath.Join(dir, "link.json"))
		s.file("ended", "")
		return
	}
	s := newShell(t)
	s.distributed(`echo $$ > "$DIR/$3.tmp"; mv "$DIR/$3.tmp" "$DIR/$3.pid"; exec sleep 1000`, 2)
	linker := exec.Command("sh", "-c", `"$0" -test.run '^TestLinkerGone$' & wait`, os.Args[0])
	linker.Env = append(os.Environ(), "RDISTCC_TEST_LINKER="+s.dir)
	if err := linker.Start(); err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(2 * time.Minute)
	var pids []int
	for i := range 2 {
		for len(pids) == i {
			b, err := os.ReadFile(filepath.Join(s.dir, fmt.Sprintf("m %d.o.pid", i)))
			if err != nil {
				if time.Now().After(end) {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond)
				continue
			}
			pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	if err := linker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = linker.Wait() // killed
	for {
		_, err := os.Stat(filepath.Join(s.dir, "ended"))
		if err == nil && syscall.Kill(pids[0], 0) != nil && syscall.Kill(pids[1], 0) != nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%v; compiles %v still run", err, pids)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
