package rdistcc

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/rdistcc/rdistcc/"

// edges is the package map: who may import whom, outside tests. A commit that
// needs a new edge adds it here and argues for it.
var edges = map[string][]string{
	"cmd/rdistcc":      {"pkg/compile", "pkg/connmgr/ipc", "pkg/driver", "pkg/entrypoint", "pkg/job", "pkg/jobserver", "pkg/reason", "pkg/sources"},
	"cmd/rdistcc-cm":   {"internal/ctl", "internal/figure", "internal/release", "pkg/config", "pkg/connmgr", "pkg/connmgr/ipc", "pkg/connmgr/lists", "pkg/connmgr/report", "pkg/connmgr/socket", "pkg/discover", "pkg/entrypoint", "pkg/hostlist", "pkg/identity", "pkg/iwarp", "pkg/job", "pkg/reason", "pkg/telemetry", "pkg/textfile"},
	"cmd/rdistccd":     {"internal/release", "pkg/cgroup", "pkg/config", "pkg/discover", "pkg/identity", "pkg/iwarp", "pkg/iwarp/ibverbs", "pkg/job", "pkg/sandbox", "pkg/store", "pkg/telemetry", "pkg/worker", "pkg/worker/auditlog", "pkg/worker/workdir"},
	"cmd/rdistcc-perf": {"internal/rawjob", "internal/release", "pkg/identity", "pkg/identity/psk", "pkg/iwarp", "pkg/job", "pkg/toolchain"}, // a raw job is also what the hostile ones are sent by

	"pkg/iwarp":           {"pkg/iwarp/ddp", "pkg/iwarp/mpa", "pkg/iwarp/rdmap"},
	"pkg/iwarp/mpa":       {},
	"pkg/iwarp/ddp":       {},
	"pkg/iwarp/rdmap":     {"pkg/iwarp/ddp", "pkg/iwarp/mpa"},
	"pkg/iwarp/ibverbs":   {"pkg/iwarp"}, // with its build tag: libibverbs and librdmacm too
	"pkg/iwarp/iwarptest": {"pkg/iwarp", "pkg/iwarp/ddp", "pkg/iwarp/mpa", "pkg/iwarp/rdmap"},
	"pkg/iwarp/inproc":    {"pkg/iwarp"},

	"pkg/sandbox":             {"pkg/cgroup"},
	"pkg/sandbox/sandboxtest": {},
	"pkg/sandbox/probe":       {}, // what an attacker inside would try
	"pkg/arena":               {},
	"pkg/cgroup":              {}, // what memory and processors there are: for the daemon's places and admission, and the manager's own compiles
	"pkg/digest":              {},
	"pkg/entrypoint":          {},
	"pkg/inflight":            {},
	"pkg/fetch":               {"pkg/iwarp"},
	"pkg/identity/psk":        {},
	"pkg/job":                 {"internal/wire"},
	"pkg/pack":                {},
	"pkg/jobserver":           {}, // what the wrapper asks of a make above it
	"pkg/discover":            {"pkg/hostlist"},
	"pkg/hostlist":            {"pkg/scheduler"},
	"pkg/reason":              {},
	"pkg/scheduler":           {"pkg/reason"},
	"pkg/history":             {"pkg/scheduler"}, // for what it predicts, a Cost
	"pkg/compile":             {"pkg/driver", "pkg/job", "pkg/reason"},
	"pkg/policy":              {"pkg/compile", "pkg/job", "pkg/reason"},
	"pkg/driver":              {},
	"pkg/sources":             {"pkg/job"},
	"pkg/inputs":              {"pkg/job", "pkg/sources", "pkg/stamp"}, // looks through texts as the wrapper does
	"pkg/driver/recipes":      {"pkg/driver"},
	"pkg/stamp":               {},
	"pkg/store":               {}, // contents by their sums, whoever names them
	"pkg/toolchain":           {"pkg/job"},
	"pkg/tree":                {"internal/wire", "pkg/entrypoint", "pkg/inflight", "pkg/sandbox"},
	"pkg/config":              {"pkg/hostlist", "pkg/textfile"},
	"pkg/textfile":            {},
	"pkg/telemetry":           {"pkg/iwarp"},
	"pkg/artifact":            {},
	"pkg/connmgr":             {"pkg/artifact", "pkg/connmgr/attempt", "pkg/connmgr/compilers", "pkg/connmgr/farm", "pkg/connmgr/ipc", "pkg/connmgr/ipc/ipcserver", "pkg/connmgr/known", "pkg/connmgr/lists", "pkg/connmgr/machine", "pkg/connmgr/metrics", "pkg/connmgr/report", "pkg/connmgr/slots", "pkg/connmgr/socket", "pkg/connmgr/trust", "pkg/connmgr/underway", "pkg/driver/recipes", "pkg/history", "pkg/hostlist", "pkg/identity/psk", "pkg/inputs", "pkg/iwarp", "pkg/job", "pkg/reason", "pkg/scheduler", "pkg/toolchain"},
	// hostlist: names of hosts that people type; sandbox: words for a host's measures
	"pkg/connmgr/farm":              {"pkg/connmgr/holdings", "pkg/connmgr/link", "pkg/connmgr/report", "pkg/hostlist", "pkg/identity/psk", "pkg/iwarp", "pkg/job", "pkg/sandbox", "pkg/scheduler"},
	"pkg/connmgr/attempt":           {"pkg/artifact", "pkg/connmgr/farm", "pkg/connmgr/holdings", "pkg/connmgr/ipc", "pkg/connmgr/known", "pkg/connmgr/link", "pkg/connmgr/metrics", "pkg/connmgr/slots", "pkg/connmgr/trust", "pkg/digest", "pkg/history", "pkg/hostlist", "pkg/inputs", "pkg/iwarp", "pkg/job", "pkg/pack", "pkg/reason", "pkg/scheduler"},
	"pkg/connmgr/machine":           {"pkg/cgroup"},
	"pkg/connmgr/known":             {"pkg/compile", "pkg/connmgr/compilers", "pkg/connmgr/ipc", "pkg/driver/recipes", "pkg/inputs", "pkg/job", "pkg/reason"}, // makes jobs of commands
	"pkg/connmgr/compilers":         {"pkg/driver/recipes", "pkg/toolchain"},
	"pkg/connmgr/daemontest":        {"pkg/digest", "pkg/identity/psk", "pkg/iwarp", "pkg/iwarp/iwarptest", "pkg/job", "pkg/pack"}, // for tests
	"pkg/connmgr/holdings":          {"pkg/inputs", "pkg/job"},                                                                     // of which sets it counts what is there
	"pkg/connmgr/link":              {"pkg/fetch", "pkg/identity", "pkg/identity/psk", "pkg/iwarp", "pkg/job"},
	"pkg/connmgr/lists":             {"pkg/connmgr/ipc", "pkg/hostlist", "pkg/scheduler"}, // ipc: the mark of a list of distcc's
	"pkg/connmgr/metrics":           {"pkg/connmgr/report", "pkg/reason"},
	"pkg/connmgr/report":            {"pkg/job", "pkg/reason"},         // a host's load
	"pkg/connmgr/report/reporttest": {"pkg/connmgr/report", "pkg/job"}, // for tests
	"pkg/connmgr/slots":             {"pkg/arena", "pkg/iwarp"},
	"pkg/connmgr/socket":            {"pkg/connmgr/ipc", "pkg/connmgr/ipc/ipcserver", "pkg/reason"}, // a successor's two questions
	"pkg/connmgr/trust":             {"pkg/artifact", "pkg/connmgr/ipc", "pkg/job"},
	"pkg/connmgr/underway":          {"pkg/connmgr/report"},
	"pkg/connmgr/ipc":               {"internal/wire"},
	"pkg/connmgr/ipc/ipcserver":     {"pkg/connmgr/ipc", "pkg/inflight"},
	"pkg/worker":                    {"pkg/arena", "pkg/cgroup", "pkg/compile", "pkg/digest", "pkg/driver", "pkg/driver/recipes", "pkg/entrypoint", "pkg/fetch", "pkg/identity/psk", "pkg/iwarp", "pkg/job", "pkg/pack", "pkg/policy", "pkg/sandbox", "pkg/sandbox/probe", "pkg/stamp", "pkg/store", "pkg/toolchain", "pkg/tree", "pkg/worker/auditlog", "pkg/worker/capture", "pkg/worker/lend", "pkg/worker/users", "pkg/worker/workdir"},
	"pkg/worker/capture":            {"pkg/arena"},
	"pkg/worker/auditlog":           {"pkg/job"},
	"pkg/worker/workdir":            {"pkg/sandbox/probe"},            // names what it removes
	"pkg/worker/lend":               {"pkg/job", "pkg/worker/shares"}, // job: a refusal, and pressure as it is told
	"pkg/worker/shares":             {},
	"pkg/worker/users":              {"pkg/sandbox"},

	"pkg/identity":           {"pkg/identity/psk"},
	"pkg/identity/authority": {"pkg/identity"}, // whose roles a certificate is for

	"deploy":                  {},
	"interop":                 {}, // tests only
	"internal/attacks/corpus": {},
	"internal/attacks":        {},                                                                                                                                                                                                                                                                                      // tests only
	"internal/bench":          {"internal/attacks/corpus", "internal/debsrc", "internal/netlab", "internal/rawjob", "pkg/connmgr/ipc", "pkg/connmgr/ipc/ipcserver", "pkg/identity", "pkg/identity/psk", "pkg/iwarp", "pkg/iwarp/iwarptest", "pkg/job", "pkg/toolchain"},                                                // and the programs, as processes; the hostile client of S7 is its own
	"internal/ctl":            {"internal/figure", "internal/rawjob", "pkg/config", "pkg/connmgr/ipc", "pkg/connmgr/report", "pkg/connmgr/socket", "pkg/hostlist", "pkg/identity", "pkg/identity/authority", "pkg/identity/psk", "pkg/iwarp", "pkg/job", "pkg/reason", "pkg/sandbox", "pkg/textfile", "pkg/toolchain"}, // what doctor asks by itself
	"internal/debsrc":         {},
	"internal/demo":           {"internal/farm"}, // the same
	"internal/equal":          {},                // tests only
	"internal/farm":           {},
	"internal/faults":         {}, // tests only
	"internal/figure":         {},
	"internal/honest":         {},
	"internal/honest/harvest": {"internal/debsrc", "internal/honest", "pkg/compile"}, // response files are read as the wrapper does
	"internal/nemesis":        {"internal/farm", "internal/relay"},                   // and the programs, as processes
	"internal/rawjob":         {"pkg/identity/psk", "pkg/iwarp", "pkg/job"},
	"internal/relay":          {},
	"internal/release":        {}, // not the wrapper: runtime/debug brings fmt

	"internal/wire":        {},
	"internal/wireattacks": {}, // tests only

	"internal/simfarm":        {"pkg/history", "pkg/scheduler", "pkg/worker/lend"},
	"internal/simfarm/record": {},
	"internal/simfarm/report": {"internal/simfarm"},
	"internal/netlab":         {},
	"internal/need":           {},
	"internal/plot":           {},
}

// pure packages do no I/O, start no goroutine and read no clock: the engine can
// be fed byte by byte, the scheduler can be simulated.
var pure = []string{
	"pkg/iwarp/mpa", "pkg/iwarp/ddp", "pkg/iwarp/rdmap", "pkg/job", "pkg/scheduler", "pkg/hostlist", "pkg/policy", "pkg/worker/lend", "pkg/worker/shares", "internal/wire",
}

// only lists what just some packages (or trees, with a final slash) may import
// directly: each dependency stands behind one package of ours.
var only = map[string][]string{
	"gopkg.in/yaml.v3":                   {"pkg/config"},
	"github.com/cespare/xxhash/v2":       {"pkg/digest"},
	"github.com/klauspost/compress/zstd": {"pkg/pack"},
	"github.com/klauspost/crc32":         {"pkg/iwarp/mpa"},
	"hash/crc32":                         {"pkg/iwarp/mpa", "pkg/digest"},
	"github.com/spf13/cobra":             {"internal/ctl", "cmd/rdistcc-cm", "cmd/rdistccd", "cmd/rdistcc-perf"},
}

// heavy packages cost the wrapper start-up time, which is paid once per source
// file: it must not link them, not even through others.
var heavy = []string{
	"crypto/tls", "encoding/json", "html/template", "net", "net/http", "regexp", "text/template",
	"github.com/klauspost/compress/zstd", "github.com/prometheus/client_golang/prometheus", "github.com/spf13/cobra", "gopkg.in/yaml.v3",
	module + "pkg/iwarp",
}

// impure are packages and functions that a pure package must not use.
var impure = map[string][]string{
	"log": nil, "log/slog": nil, "net": nil, "net/http": nil, "os": nil, "os/exec": nil, "os/signal": nil,
	"syscall": nil, "golang.org/x/sys/unix": nil, "context": nil,
	"time": {"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"},
}

type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
	Deps       []string
}

func (p listed) name() string { return strings.TrimPrefix(p.ImportPath, module) }

// packages asks the go command for all packages of the module, for Linux and
// without cgo, as they are built.
func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports,Deps", "./...")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	out, err := cmd.Output()
	if err != nil {
		if e := new(exec.ExitError); errors.As(err, &e) {
			t.Fatalf("go list: %v: %s", err, e.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		if p.ImportPath != strings.TrimSuffix(module, "/") {
			all = append(all, p)
		}
	}
}

func TestImportsFollowTheMap(t *testing.T) {
	for _, p := range packages(t) {
		allowed, ok := edges[p.name()]
		if !ok {
			t.Errorf("%s is not in the package map: give it a line in arch_test.go and ARCHITECTURE.md", p.name())
			continue
		}
		for _, imp := range p.Imports {
			if to, ours := strings.CutPrefix(imp, module); ours && !slices.Contains(allowed, to) {
				t.Errorf("%s imports %s, an edge that the package map does not have", p.name(), to)
			}
			if owners, restricted := only[imp]; restricted && !slices.Contains(owners, p.name()) {
				t.Errorf("%s imports %s, which is for %s only", p.name(), imp, strings.Join(owners, ", "))
			}
		}
	}
}

func TestWrapperStaysSmall(t *testing.T) {
	for _, p := range packages(t) {
		if p.name() != "cmd/rdistcc" {
			continue
		}
		for _, dep := range heavy {
			if slices.Contains(p.Deps, dep) {
				t.Errorf("cmd/rdistcc links %s: it would pay for it at every compile", dep)
			}
		}
	}
}

func TestPurePackagesDoNoIO(t *testing.T) {
	for _, p := range packages(t) {
		if !slices.Contains(pure, p.name()) {
			continue
		}
		for _, file := range p.GoFiles {
			checkPure(t, filepath.Join(p.Dir, file))
		}
	}
}

// checkPure reports what a file of a pure package uses and must not.
func checkPure(t *testing.T, path string) {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	funcs := map[string][]string{} // local name of an imported package: its functions that are not allowed
	for _, imp := range f.Imports {
		name, err := strconv.Unquote(imp.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		banned, listed := impure[name]
		switch {
		case listed && banned == nil:
			t.Errorf("%s: imports %s: this package does no I/O", fset.Position(imp.Pos()), name)
		case listed && imp.Name != nil:
			funcs[imp.Name.Name] = banned
		case listed:
			funcs[name] = banned
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			t.Errorf("%s: starts a goroutine: this package does not", fset.Position(n.Pos()))
		case *ast.SelectorExpr:
			if id, ok := n.X.(*ast.Ident); ok && slices.Contains(funcs[id.Name], n.Sel.Name) {
				t.Errorf("%s: calls %s.%s: this package is told the time", fset.Position(n.Pos()), id.Name, n.Sel.Name)
			}
		}
		return true
	})
}
