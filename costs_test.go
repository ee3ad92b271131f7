package rdistcc

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/costs"
	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// costsFarm is a farm for tests of `rdistcc costs`: a manager, and a daemon that has the stand-in and this machine's compilers.
type costsFarm struct {
	*testing.T
	*farm.Farm
	dir, standin string
}

func newCostsFarm(t *testing.T) *costsFarm {
	t.Helper()
	if testing.Short() {
		t.Skip("builds for seconds")
	}
	root := farmtest.Dir(t)
	f := &costsFarm{t, farmtest.New(t, root), filepath.Join(root, "src"), farmtest.StandIn(t)}
	if err := os.Mkdir(f.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	settings := filepath.Join(root, "daemon.yaml")
	if err := os.WriteFile(settings, []byte("toolchains: {dirs: [/usr/bin, "+filepath.Dir(f.standin)+"]}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d, err := f.StartDaemon(t.Context(), "d1", "--config", settings, "--jobs", "2")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.StartManager(t.Context(), "--hosts", d.Addr); err != nil {
		t.Fatal(err)
	}
	f.Vars = append(f.Vars, "RDISTCC_MODE=remote", "RDISTCC_CACHE=on", "RDISTCC_HOSTS="+d.Addr)
	return f
}

func (f *costsFarm) write(name, text string) {
	f.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o644); err != nil {
		f.Fatal(err)
	}
}

// run runs rdistcc and returns what it prints.
func (f *costsFarm) run(args ...string) []byte {
	f.Helper()
	cmd := exec.CommandContext(f.Context(), f.Wrapper, args...)
	cmd.Env, cmd.Dir = f.Env(), f.dir
	var errOut strings.Builder
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		f.Fatalf("rdistcc %q: %v: %s", args, err, errOut.String())
	}
	return out
}

// build compiles u0.c and so on, as a build; those from rules on write rules for make too.
func (f *costsFarm) build(cc string, units, rules int) {
	f.Helper()
	f.run("build", "--", "sh", "-c", fmt.Sprintf(`i=0; while [ $i -lt %d ]; do md=; [ $i -lt %d ] || md=-MD; "$0" "$1" $md -c u$i.c -o u$i.o || exit 1; i=$((i+1)); done`, units, rules),
		f.Wrapper, cc)
}

// costs returns what rdistcc costs says.
func (f *costsFarm) costs(args ...string) *costs.Report {
	f.Helper()
	r := new(costs.Report)
	if err := json.Unmarshal(f.run(append([]string{"costs", "--json"}, args...)...), r); err != nil {
		f.Fatal(err)
	}
	return r
}

// needTrees skips the test where hosts have no private trees: then nobody knows what compiles read.
func (f *costsFarm) needTrees() {
	f.Helper()
	var hosts []report.HostStatus
	if err := json.Unmarshal(f.run("hosts", "--json"), &hosts); err != nil || len(hosts) != 1 {
		f.Fatalf("%d hosts, %v", len(hosts), err)
	}
	if !hosts[0].Tree {
		need.Skipf(f, need.Sandbox, "no private trees here")
	}
}

// says returns what is said of a header; nil: nothing.
func (f *costsFarm) says(r *costs.Report, name string) *costs.Header {
	name = filepath.Join(f.dir, name)
	for i := range r.Headers {
		if slices.ContainsFunc(r.Headers[i].Files, func(x costs.HeaderFile) bool { return x.Name == name }) {
			return &r.Headers[i]
		}
	}
	return nil
}

// header does the same of one of which something must be said.
func (f *costsFarm) header(r *costs.Report, name string) *costs.Header {
	f.Helper()
	h := f.says(r, name)
	if h == nil {
		f.Fatalf("nothing is said of %s", name)
	}
	return h
}

// TestCostsOfKnownCompilers builds a tree on a farm whose compilers use as much CPU time as the headers of a source are said to take, and
// compares what `rdistcc costs` says with that.
func TestCostsOfKnownCompilers(t *testing.T) {
	part.Skip(t)
	f := newCostsFarm(t)
	const units = 30
	headers := []int{90, 60, 40, 0, 0, 0} // ms
	random := rand.New(rand.NewPCG(1, 1))
	for h := range headers {
		f.write(fmt.Sprintf("h%d.h", h), strings.Repeat("/* of the same length as others */\n", 50))
	}
	readBy := make([]int, len(headers)) // units
	for u := range units {
		text, cpu := "", 10
		for h, cost := range headers {
			if random.IntN(2) == 0 {
				text += fmt.Sprintf("#include \"h%d.h\"\n", h)
				cpu += cost
				readBy[h]++
			}
		}
		text = fmt.Sprintf("/* stand-in: cpu %d memory %d output 2000 */\n%sint unit_%d;\n", cpu, 3000+10*u, text, u) // more memory would take more time
		f.write(fmt.Sprintf("u%d.c", u), fmt.Sprintf("%-2000s\n", text))                                              // of one length: none has more work of its own
	}
	f.build(f.standin, units, units)
	f.needTrees()
	r := f.costs()
	if r.Compiles != units || r.OnHosts != units || r.Known != units {
		t.Fatalf("%d compiles, %d on hosts, %d known", r.Compiles, r.OnHosts, r.Known)
	}
	// The compilers end when they have used that much; their start comes on top.
	for h, cost := range headers {
		x := f.header(r, fmt.Sprintf("h%d.h", h))
		truth := time.Duration(cost*readBy[h]) * time.Millisecond
		t.Logf("%s: %v ± %v, in truth %v", filepath.Base(x.Name()), x.CPU, x.Error, truth)
		if x.Units != readBy[h] {
			t.Errorf("%s is said to be read by %d units, in truth %d", x.Name(), x.Units, readBy[h])
		}
		if cost > 0 && (x.CPU-truth).Abs() > truth/5 {
			t.Errorf("%s is said to take %v, in truth %v", x.Name(), x.CPU, truth)
		}
	}
	for _, u := range r.Units {
		if u.Memory < 3000<<10 || u.Memory > 60_000<<10 {
			t.Errorf("%s took %d bytes", u.Source, u.Memory)
		}
	}
}

// TestCostsOfEdits: what an edit of a header costs, and which misses are its, is told right, whatever its name is. The journal outlives the
// manager, and what is damaged in it costs a line.
func TestCostsOfEdits(t *testing.T) {
	part.Skip(t)
	f := newCostsFarm(t)
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		need.Skipf(t, need.Tools, "no gcc")
	}
	if r := f.costs(); r.Compiles != 0 || r.Units == nil || r.Headers == nil {
		t.Errorf("before any: %+v", r)
	}
	if text := string(f.run("costs")); text != "no compiles of the last 7 days are noted\n" {
		t.Errorf("before any: %q", text)
	}
	const units, edited = 6, 4
	const odd, printable = "h\x01\xff.h", `h\x01\xff.h`
	f.write(odd, "#define H 1\n")
	f.write("all.h", "extern int all;\n")
	f.write("never.h", "int never;\n")
	for u := range units {
		text := "#include \"all.h\"\n"
		if u < edited {
			text += "#include \"" + odd + "\"\n"
		} else {
			text += "#ifdef NEVER\n#include \"never.h\"\n#endif\n"
		}
		f.write(fmt.Sprintf("u%d.c", u), text+fmt.Sprintf("int unit_%d;\n", u))
	}
	f.build(gcc, units, edited)
	f.needTrees()
	r := f.costs()
	if r.Compiles != units || r.OnHosts != units || r.Known != units || r.Cache.Asked != units || r.Cache.Missed[0].Cause != costs.CauseFirst {
		t.Fatalf("%+v", r)
	}
	if x := f.header(r, printable); x.Units != edited || x.Changes != 0 {
		t.Errorf("%+v", x)
	}
	if f.says(r, "never.h") != nil {
		t.Error("a header is said to be read, and the condition of its include does not hold")
	}
	f.write(odd, "#define H 2\n")
	f.build(gcc, units, edited)
	r = f.costs("2")
	if r.Compiles != units || r.Cached != units-edited || r.OnHosts != edited {
		t.Errorf("after the edit: %d compiles, %d cached, want %d, %d", r.Compiles, r.Cached, units, units-edited)
	}
	if m := r.Cache.Missed; len(m) != 1 || m[0].Cause != costs.CauseChanged || m[0].File != filepath.Join(f.dir, printable) || m[0].Compiles != edited {
		t.Errorf("of the second build alone, misses are %+v", m)
	}
	r = f.costs()
	at := slices.IndexFunc(r.Cache.Missed, func(m costs.Miss) bool { return m.Cause == costs.CauseChanged })
	if at < 0 || r.Cache.Missed[at].File != filepath.Join(f.dir, printable) || r.Cache.Missed[at].Compiles != edited || r.Cache.Hits != units-edited {
		t.Errorf("misses are %+v", r.Cache)
	}
	if f.says(r, "never.h") != nil {
		t.Error("a header that no compile has read is said to be read by hits")
	}
	if x := f.header(r, printable); x.Changes != 1 || r.Edited()[0].Name() != x.Name() {
		t.Errorf("%+v", x)
	}
	text := string(f.run("costs", "--top", "3"))
	for _, want := range []string{"12 compiles of 6 units in the last 7 days", "\n  " + printable + " ", printable + " has changed ", "\n  u"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if err := f.Manager.Stop(); err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(f.Dir, "*", "costs", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("journals are %q, %v", logs, err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(logs[0]), "99.log"), []byte("something that is no journal"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := f.costs(); r.Compiles != 2*units || len(r.Notes) != 1 {
		t.Errorf("without a manager: %d compiles, notes %q", r.Compiles, r.Notes)
	}
}
