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

// edges is the package map: which package may import which, outside tests. A commit that needs a new edge
// adds it here and argues for it.
var edges = map[string][]string{
	// the programs
	"cmd/rdistcc":    {"pkg/connmgr/typed", "pkg/connmgr/quick", "internal/driver", "internal/entrypoint", "internal/job", "internal/jobserver", "internal/reason", "internal/sources", "internal/unit", "pkg/compile", "pkg/connmgr/ipc"},
	"cmd/rdistcc-cm": {"pkg/iwarp/capture", "internal/buildpage", "internal/builds", "internal/config", "internal/ctl", "internal/discover", "internal/entrypoint", "internal/figure", "internal/hostlist", "internal/identity", "internal/identity/psk", "internal/job", "internal/reason", "internal/release", "internal/spans", "internal/storage", "internal/streams", "internal/telemetry", "internal/textfile", "internal/tiers", "pkg/connmgr", "pkg/connmgr/ipc", "pkg/connmgr/lists", "pkg/connmgr/machine", "pkg/connmgr/report", "pkg/connmgr/socket", "pkg/iwarp"},
	"cmd/rdistccd":   {"internal/executor", "pkg/worker/cluster", "pkg/iwarp/capture", "internal/cgroup", "internal/config", "internal/discover", "internal/identity", "internal/job", "internal/release", "internal/sandbox", "internal/store", "internal/tcpaddr", "internal/telemetry", "pkg/compile", "pkg/iwarp", "pkg/iwarp/ibverbs", "pkg/worker", "pkg/worker/auditlog", "pkg/worker/distcc", "pkg/worker/received", "pkg/worker/workdir"}, // compile: which variables are about languages

	// the stack: verbs over sockets, and other providers of them
	"pkg/iwarp":         {"internal/spin", "internal/tcpaddr", "pkg/iwarp/ddp", "pkg/iwarp/mpa", "pkg/iwarp/rdmap"},
	"pkg/iwarp/capture": {"pkg/iwarp/ddp", "pkg/iwarp/mpa", "pkg/iwarp/rdmap"},
	"pkg/iwarp/ddp":     {},
	"pkg/iwarp/ibverbs": {"internal/spin", "pkg/iwarp"}, // with its build tag: libibverbs and librdmacm too
	"pkg/iwarp/mpa":     {},
	"pkg/iwarp/rdmap":   {"pkg/iwarp/ddp", "pkg/iwarp/mpa"},

	// streams over verbs
	"pkg/stream":     {"pkg/iwarp", "pkg/stream/exs"},
	"pkg/stream/exs": {},

	// what the product is made of, from the build host to the compile host
	"pkg/compile":               {"internal/compdb", "internal/driver", "internal/job", "internal/modules", "internal/reason", "internal/unit"}, // which modules a command reads, its files tell
	"pkg/connmgr":               {"internal/checkout", "internal/costs/journal", "internal/driver/recipes", "internal/figure", "internal/hostlist", "internal/identity/psk", "internal/inputs", "internal/job", "internal/modules", "internal/outputs", "internal/reason", "internal/toolchain", "internal/unit", "internal/wholefile", "pkg/connmgr/attempt", "pkg/connmgr/compilers", "pkg/connmgr/farm", "pkg/connmgr/history", "pkg/connmgr/holdings", "pkg/connmgr/ipc", "pkg/connmgr/ipc/ipcserver", "pkg/connmgr/known", "pkg/connmgr/lists", "pkg/connmgr/machine", "pkg/connmgr/metrics", "pkg/connmgr/outfit", "pkg/connmgr/paired", "pkg/connmgr/plain", "pkg/connmgr/report", "pkg/connmgr/results", "pkg/connmgr/shelved", "pkg/connmgr/slots", "pkg/connmgr/socket", "pkg/connmgr/trust", "pkg/connmgr/underway", "pkg/iwarp", "pkg/resultcache", "pkg/resultcache/crsh", "pkg/resultcache/move", "pkg/scheduler"},
	"pkg/connmgr/attempt":       {"internal/compress", "internal/digest", "internal/hostlist", "internal/inputs", "internal/job", "internal/modules", "internal/outputs", "internal/reason", "internal/unit", "pkg/connmgr/farm", "pkg/connmgr/history", "pkg/connmgr/holdings", "pkg/connmgr/ipc", "pkg/connmgr/known", "pkg/connmgr/link", "pkg/connmgr/metrics", "pkg/connmgr/slots", "pkg/connmgr/trust", "pkg/iwarp", "pkg/resultcache", "pkg/scheduler"},
	"pkg/connmgr/compilers":     {"internal/driver/recipes", "internal/toolchain", "pkg/compile"},
	"pkg/connmgr/farm":          {"internal/hostlist", "internal/identity/psk", "internal/job", "internal/sandbox", "internal/unit", "pkg/connmgr/holdings", "pkg/connmgr/link", "pkg/connmgr/purse", "pkg/connmgr/report", "pkg/iwarp", "pkg/resultcache", "pkg/scheduler"},
	"pkg/connmgr/history":       {"internal/wholefile", "pkg/scheduler"},              // for what it predicts, a Cost
	"pkg/connmgr/holdings":      {"internal/inputs", "internal/job", "internal/unit"}, // of which sets it counts what is there
	"pkg/connmgr/ipc":           {"internal/wire"},
	"pkg/connmgr/ipc/ipcserver": {"internal/inflight", "pkg/connmgr/ipc"},
	"pkg/connmgr/known":         {"internal/driver/recipes", "internal/inputs", "internal/job", "internal/lookups", "internal/modules", "internal/outputs", "internal/reason", "internal/sources", "internal/stamp", "internal/unit", "internal/vigil", "pkg/compile", "pkg/connmgr/compilers", "pkg/connmgr/ipc", "pkg/connmgr/known/made", "pkg/connmgr/known/watched"}, // makes jobs of commands
	"pkg/connmgr/known/made":    {"internal/stamp", "internal/unit", "internal/wholefile", "internal/wire"},                                                                                                                                                                                                                                                               // a file
	"pkg/connmgr/known/watched": {"internal/wholefile"},
	"pkg/connmgr/link":          {"internal/hostlist", "internal/identity", "internal/identity/psk", "internal/job", "internal/rdmaread", "internal/unit", "pkg/connmgr/purse", "pkg/iwarp", "pkg/resultcache", "pkg/resultcache/shelf"},
	"pkg/connmgr/lists":         {"internal/hostlist", "pkg/connmgr/ipc", "pkg/scheduler"}, // ipc: the mark of a list of distcc's
	"pkg/connmgr/machine":       {"internal/cgroup"},
	"pkg/connmgr/metrics":       {"internal/reason", "pkg/connmgr/report"},
	"pkg/connmgr/paired":        {},
	"pkg/connmgr/plain":         {"internal/unit", "pkg/compile", "pkg/connmgr/ipc", "pkg/connmgr/typed"},
	"pkg/connmgr/quick":         {"pkg/connmgr/ipc"},                 // constants, and the Conn that it leaves; and by assembly internal/entrypoint
	"pkg/connmgr/purse":         {"internal/job"},                    // credits as messages carry them
	"pkg/connmgr/report":        {"internal/job", "internal/reason"}, // a host's load
	"pkg/connmgr/outfit":        {"internal/compress", "internal/streams", "internal/toolchain", "internal/toolchain/parcel", "internal/unit"},
	"pkg/connmgr/results":       {"pkg/resultcache"},
	"pkg/resultcache":           {"internal/compress", "internal/job", "internal/unit", "internal/wire"},
	"pkg/resultcache/crsh":      {},
	"pkg/resultcache/disk":      {"pkg/resultcache"},
	"pkg/resultcache/helper":    {"internal/secret", "pkg/resultcache", "pkg/resultcache/crsh"},
	"pkg/resultcache/reapi":     {"internal/cas", "internal/secret", "pkg/resultcache"},
	"pkg/resultcache/redis":     {"internal/secret", "pkg/resultcache"},
	"pkg/resultcache/s3":        {"pkg/resultcache"},
	"pkg/resultcache/move":      {"internal/job", "internal/outputs", "internal/unit"},
	"pkg/resultcache/shelf":     {"internal/wire", "pkg/resultcache"},
	"pkg/connmgr/shelved":       {"internal/identity", "pkg/connmgr/farm", "pkg/connmgr/link", "pkg/resultcache", "pkg/scheduler"},
	"pkg/connmgr/slots":         {"internal/shm", "pkg/iwarp"},
	"pkg/connmgr/socket":        {"internal/reason", "pkg/connmgr/ipc", "pkg/connmgr/ipc/ipcserver"}, // a successor's two questions
	"pkg/connmgr/trust":         {"internal/job", "internal/modules", "internal/outputs", "internal/unit", "pkg/connmgr/ipc"},
	"pkg/connmgr/typed":         {"internal/driver", "internal/unit", "pkg/compile", "pkg/connmgr/ipc"},
	"pkg/connmgr/underway":      {"pkg/connmgr/report"},
	"pkg/scheduler":             {"internal/reason"},
	"pkg/worker":                {"internal/cgroup", "internal/digest", "internal/identity/psk", "internal/job", "internal/privatetree", "internal/rdmaread", "internal/sandbox", "internal/sandbox/probe", "internal/shm", "internal/store", "internal/streams", "internal/toolchain", "internal/unit", "pkg/iwarp", "pkg/resultcache", "pkg/resultcache/move", "pkg/resultcache/shelf", "pkg/stream", "pkg/worker/auditlog", "pkg/worker/cluster", "pkg/worker/files", "pkg/worker/images", "pkg/worker/large", "pkg/worker/lend", "pkg/worker/offered", "pkg/worker/policy", "pkg/worker/received", "pkg/worker/run", "pkg/worker/shelves", "pkg/worker/users", "pkg/worker/workdir"},
	"pkg/worker/cluster":        {"internal/cas", "internal/job", "internal/secret", "internal/toolchain", "internal/toolchain/parcel", "internal/unit"},
	"pkg/worker/files":          {"internal/compress", "internal/digest", "internal/driver", "internal/job", "internal/stamp", "internal/store", "internal/toolchain", "internal/unit", "internal/wire", "pkg/resultcache"}, // sums up what a job shows as the manager does
	"pkg/worker/images":         {},
	"pkg/worker/large":          {"internal/job", "internal/shm"}, // job: a refusal says why there is no room
	"pkg/worker/offered":        {"internal/job", "internal/toolchain", "internal/unit"},
	"pkg/worker/policy":         {"internal/job", "internal/reason", "internal/unit", "pkg/compile"},
	"pkg/worker/run":            {"internal/compress", "internal/digest", "internal/driver", "internal/driver/recipes", "internal/entrypoint", "internal/job", "internal/privatetree", "internal/sandbox", "internal/shm", "internal/store", "internal/toolchain", "internal/unit", "pkg/compile", "pkg/resultcache", "pkg/worker/capture", "pkg/worker/cluster", "pkg/worker/files", "pkg/worker/images", "pkg/worker/large", "pkg/worker/policy", "pkg/worker/workdir"},
	"pkg/worker/auditlog":       {"internal/job"},
	"pkg/worker/capture":        {"internal/shm"},
	"pkg/worker/distcc":         {"internal/job", "internal/rawjob", "internal/reason", "internal/toolchain", "internal/unit", "pkg/compile", "pkg/iwarp", "pkg/worker/distcc/proto"}, // a client of the worker's, in the same process
	"pkg/worker/distcc/lzo":     {},
	"pkg/worker/distcc/proto":   {"pkg/worker/distcc/lzo"},
	"pkg/worker/lend":           {"internal/job", "pkg/worker/shares"}, // job: a refusal, and pressure as it is told
	"pkg/worker/shares":         {},
	"pkg/worker/received":       {"internal/compress", "internal/toolchain/parcel", "internal/unit"},
	"pkg/worker/shelves":        {"internal/wire", "pkg/resultcache", "pkg/resultcache/shelf"},
	"pkg/worker/users":          {"internal/sandbox"},
	"pkg/worker/workdir":        {"internal/sandbox/probe"}, // names what it removes

	// parts of the programs that nobody outside imports
	"internal/buildpage":          {"internal/builds", "internal/comparison", "internal/costs", "internal/figure", "internal/reason", "pkg/connmgr/report"},
	"internal/builds":             {"internal/gain", "pkg/connmgr/report"}, // what a manager tells of commands is what is kept of them
	"internal/cas":                {"internal/secret"},
	"internal/cgroup":             {}, // what memory and processors there are: for the daemon's places and admission, and the manager's own compiles
	"internal/comparison":         {"internal/builds", "internal/costs", "internal/figure", "pkg/connmgr/report"},
	"internal/compdb":             {},
	"internal/compress":           {},
	"internal/config":             {"internal/hostlist", "internal/textfile", "pkg/iwarp"},
	"internal/costs":              {"internal/figure", "internal/costs/journal", "internal/unit"}, // which headers are the system's
	"internal/costs/journal":      {},
	"internal/costs/trial":        {"internal/figure", "pkg/compile"},                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                        // response files
	"internal/ctl":                {"internal/buildpage", "internal/builds", "internal/comparison", "internal/compdb", "internal/config", "internal/costs", "internal/costs/journal", "internal/costs/trial", "internal/executor", "internal/figure", "internal/gain", "internal/hostlist", "internal/identity", "internal/identity/authority", "internal/identity/psk", "internal/job", "internal/migrate", "internal/rawjob", "internal/reason", "internal/sandbox", "internal/spans", "internal/spans/otlp", "internal/streams", "internal/textfile", "internal/tiers", "internal/toolchain", "internal/toolchain/parcel", "internal/top", "internal/top/display", "internal/unit", "pkg/compile", "pkg/connmgr/ipc", "pkg/connmgr/report", "pkg/connmgr/socket", "pkg/iwarp", "pkg/resultcache", "pkg/resultcache/disk"}, // what doctor asks by itself
	"internal/digest":             {},
	"internal/discover":           {"internal/hostlist"},
	"internal/driver":             {},
	"internal/driver/recipes":     {"internal/driver", "internal/modules"}, // compilers show what their compiled modules say
	"internal/entrypoint":         {},
	"internal/executor":           {"internal/config", "internal/secret", "internal/tlsfiles", "pkg/worker/cluster"},
	"internal/figure":             {},
	"internal/gain":               {"internal/reason", "pkg/connmgr/report"}, // which reasons are those of compiles
	"internal/hostlist":           {"pkg/scheduler"},
	"internal/identity":           {"internal/identity/psk", "internal/tcpaddr"},
	"internal/identity/authority": {"internal/identity"}, // whose roles a certificate is for
	"internal/identity/psk":       {},
	"internal/inflight":           {},
	"internal/inputs":             {"internal/vigil", "internal/job", "internal/sources", "internal/stamp", "internal/unit", "pkg/resultcache"}, // looks through texts as the wrapper does; sums up what it finds as a host does
	"internal/lookups":            {},
	"internal/job":                {"internal/unit", "internal/wire"},
	"internal/jobserver":          {}, // what the wrapper asks of a make above it
	"internal/outputs":            {"internal/modules"},
	"internal/privatetree":        {"internal/entrypoint", "internal/inflight", "internal/lookups", "internal/sandbox", "internal/wire"}, // lookups: names in the memory of commands
	"internal/rawjob":             {"internal/identity/psk", "internal/job", "internal/unit", "pkg/iwarp"},
	"internal/rdmaread":           {"pkg/iwarp"},
	"internal/reason":             {},
	"internal/release":            {}, // not the wrapper: runtime/debug brings fmt
	"internal/sandbox":            {"internal/cgroup"},
	"internal/sandbox/probe":      {}, // what an attacker inside would try
	"internal/secret":             {"internal/textfile"},
	"internal/shm":                {},
	"internal/migrate":            {},
	"internal/modules":            {},
	"internal/sources":            {"internal/unit"},
	"internal/spans":              {"pkg/connmgr/report"},
	"internal/spans/otlp":         {"internal/spans", "pkg/connmgr/report"},
	"internal/spin":               {}, // what the providers of verbs share
	"internal/checkout":           {},
	"internal/stamp":              {},
	"internal/storage":            {"internal/reason", "pkg/connmgr/ipc", "pkg/connmgr/ipc/ipcserver", "pkg/resultcache/crsh"}, // a manager's client; ipcserver: the directory of its socket
	"internal/vigil":              {},
	"internal/streams":            {"internal/identity", "internal/identity/psk", "internal/job", "internal/wire", "pkg/iwarp", "pkg/stream"},
	"internal/store":              {}, // contents by their sums, whoever names them
	"internal/tcpaddr":            {},
	"internal/telemetry":          {"internal/tcpaddr", "internal/telemetry/feed", "pkg/iwarp"},
	"internal/telemetry/feed":     {},
	"internal/textfile":           {},
	"internal/wholefile":          {},
	"internal/tiers":              {"internal/identity", "internal/tlsfiles", "internal/cas", "internal/config", "internal/secret", "pkg/connmgr/results", "pkg/resultcache", "pkg/resultcache/crsh", "pkg/resultcache/disk", "pkg/resultcache/helper", "pkg/resultcache/reapi", "pkg/resultcache/redis", "pkg/resultcache/s3"},
	"internal/tlsfiles":           {},
	"internal/toolchain":          {"internal/driver", "internal/unit"},
	"internal/toolchain/parcel":   {"internal/compress", "internal/toolchain", "internal/unit", "internal/wire"},
	"internal/top":                {"internal/figure", "internal/reason", "pkg/connmgr/report"},
	"internal/top/display":        {"internal/top"},
	"internal/unit":               {},
	"internal/wire":               {},

	// the laboratory: measurements, experiments, and users of the stack that compile nothing; the product imports none of it
	"lab/9p":            {"lab/9p/export", "pkg/iwarp"},
	"lab/9p/export":     {"lab/9p/p9"},
	"lab/9p/p9":         {},
	"lab/az":            {"pkg/iwarp", "pkg/stream"}, // iwarp: for an error, that a queue is full
	"lab/exp":           {"lab/plot"},
	"lab/exp/all":       {"lab/exp", "lab/exp/jobs", "lab/exp/memory", "lab/exp/offload", "lab/exp/peer", "lab/exp/streams", "lab/exp/wire"},
	"lab/exp/end":       {"pkg/iwarp"},
	"lab/exp/jobs":      {"lab/exp", "lab/exp/end", "lab/exp/load", "lab/exp/peer", "lab/netlab", "pkg/iwarp"},
	"lab/exp/load":      {},
	"lab/exp/memory":    {"lab/exp", "lab/exp/peer", "pkg/iwarp", "lab/grant", "lab/regcache"},
	"lab/exp/offload":   {"lab/exp", "internal/identity/psk", "internal/job", "internal/rawjob", "internal/unit", "pkg/iwarp"}, // sends jobs as they are
	"lab/exp/peer":      {},
	"lab/exp/streams":   {"lab/exp", "lab/exp/peer", "lab/netlab", "pkg/iwarp", "pkg/stream", "lab/az", "pkg/stream/exs"},
	"lab/exp/wire":      {"lab/exp", "lab/exp/end", "lab/exp/load", "lab/exp/peer", "pkg/iwarp"},
	"lab/grant":         {"pkg/iwarp"},
	"lab/netlab":        {}, // a network with delay, which experiments need as tests do
	"lab/plot":          {},
	"lab/rdistcc-perf":  {"lab/exp", "lab/exp/all", "lab/exp/peer", "internal/identity", "internal/identity/psk", "internal/job", "internal/rawjob", "internal/release", "internal/tcpaddr", "internal/toolchain", "internal/unit", "pkg/iwarp", "pkg/iwarp/capture"}, // a raw job is also what the hostile ones are sent by
	"lab/regcache":      {"pkg/iwarp"},
	"lab/rsocket":       {"pkg/iwarp", "lab/rsocket/proto"},
	"lab/rsocket/proto": {},

	// tests: kits, suites, programs; nothing above imports them
	"deploy":                               {},
	"deploy/packaging":                     {}, // tests only
	"deploy/packaging/image":               {},
	"internal/test/kit/alone":              {},
	"internal/test/kit/browser":            {"internal/test/kit/need"},
	"internal/test/kit/daemontest":         {"internal/compress", "internal/digest", "internal/identity/psk", "internal/job", "internal/unit", "pkg/iwarp", "internal/test/kit/iwarptest"}, // for tests
	"internal/test/kit/debsrc":             {},
	"internal/test/kit/explore":            {},
	"internal/test/kit/farm":               {},
	"internal/test/kit/farmtest":           {"internal/test/kit/farm", "internal/test/kit/need", "internal/test/kit/standin"},
	"internal/test/kit/honest":             {},
	"internal/test/kit/inproc":             {"internal/spin", "pkg/iwarp"},
	"internal/test/kit/iwarptest":          {"pkg/iwarp", "pkg/iwarp/ddp", "pkg/iwarp/mpa", "pkg/iwarp/rdmap"},
	"internal/test/kit/need":               {},
	"internal/test/kit/part":               {},
	"internal/test/kit/reapiserver":        {},
	"internal/test/kit/engine":             {"internal/test/kit/debsrc", "internal/test/kit/farm"},
	"internal/test/kit/relay":              {},
	"internal/test/kit/reporttest":         {"internal/job", "pkg/connmgr/report"}, // for tests
	"internal/test/kit/sandboxtest":        {},
	"internal/test/kit/standin":            {},
	"internal/test/kit/storetest":          {"internal/identity", "internal/identity/authority", "internal/test/kit/need", "internal/test/kit/relay", "pkg/resultcache"},                                                                                                                                                                                                                                                                                  // certificates for servers
	"internal/test/program/bench":          {"internal/identity", "internal/identity/psk", "internal/job", "internal/rawjob", "lab/netlab", "internal/test/kit/debsrc", "internal/test/kit/engine", "internal/test/kit/relay", "internal/test/kit/standin", "internal/test/suite/attacks/corpus", "internal/toolchain", "internal/unit", "pkg/connmgr/ipc", "pkg/connmgr/ipc/ipcserver", "pkg/connmgr/plain", "pkg/iwarp", "internal/test/kit/iwarptest"}, // and the programs, as processes; the hostile client of S7 is its own
	"internal/test/program/contained":      {},
	"internal/test/program/demo":           {"internal/reason", "internal/test/kit/farm"}, // the same
	"internal/test/program/evilcc":         {"internal/sandbox/probe"},
	"internal/test/program/harvest":        {"internal/test/kit/debsrc", "internal/test/kit/honest", "pkg/compile"}, // response files are read as the wrapper does
	"internal/test/program/nemesis":        {"internal/test/kit/farm", "internal/test/kit/relay"},                   // and the programs, as processes
	"internal/test/program/offload":        {"lab/exp/offload", "internal/test/kit/farm", "internal/test/kit/standin", "pkg/iwarp"},
	"internal/test/program/simfarm":        {"pkg/connmgr/history", "pkg/scheduler", "pkg/worker/lend"},
	"internal/test/program/simfarm/record": {},
	"internal/test/program/simfarm/report": {"internal/test/program/simfarm"},
	"internal/test/program/tests":          {"internal/test/kit/part"},
	"internal/test/suite/attacks":          {}, // tests only
	"internal/test/suite/attacks/corpus":   {},
	"internal/test/suite/clusters":         {}, // tests only
	"internal/test/suite/credits":          {}, // tests only
	"internal/test/suite/images":           {}, // tests only
	"internal/test/suite/ccache":           {}, // tests only
	"internal/test/suite/toolchains":       {}, // tests only
	"internal/test/suite/upgrade":          {}, // tests only
	"internal/test/suite/distcc":           {}, // tests only
	"internal/test/suite/equal":            {}, // tests only
	"internal/test/suite/faults":           {}, // tests only
	"internal/test/suite/network":          {}, // tests only
	"internal/test/suite/pages":            {"internal/test/kit/farm", "internal/test/kit/farmtest"},
	"internal/test/suite/caches":           {"internal/test/kit/farm", "internal/test/kit/farmtest", "internal/test/kit/need", "pkg/resultcache", "pkg/resultcache/crsh"},
	"internal/test/suite/wireattacks":      {}, // tests only
	"interop":                              {}, // tests only
}

// pure packages do no I/O, start no goroutine and read no clock: the engine can
// be fed byte by byte, the scheduler can be simulated.
var pure = []string{
	"pkg/iwarp/mpa", "pkg/iwarp/ddp", "pkg/iwarp/rdmap", "pkg/stream/exs", "lab/rsocket/proto", "internal/job", "internal/unit", "pkg/scheduler", "pkg/connmgr/purse", "internal/hostlist", "internal/migrate", "internal/top", "pkg/worker/policy", "pkg/worker/distcc/lzo", "pkg/worker/distcc/proto", "pkg/worker/lend", "pkg/worker/shares", "internal/wire", "lab/9p/p9",
}

// only lists what just some packages (or trees, with a final slash) may import directly: each dependency is
// behind one package of ours.
var only = map[string][]string{
	"gopkg.in/yaml.v3":                   {"internal/config"},
	"github.com/cespare/xxhash/v2":       {"internal/digest"},
	"github.com/klauspost/compress/zstd": {"internal/compress"},
	"github.com/klauspost/crc32":         {"pkg/iwarp/mpa"},
	"hash/crc32":                         {"internal/digest", "pkg/iwarp/mpa"},
	// Clients of the stores that users have. Their protocols are other projects' to change, with logins, redirections and
	// signatures that nobody should write twice; each stays behind one package, and a manager without it pays for no start.
	"github.com/redis/go-redis/v9": {"pkg/resultcache/redis"},
	"github.com/minio/minio-go/v7": {"pkg/resultcache/s3"},
	"google.golang.org/grpc":       {"internal/cas", "pkg/resultcache/reapi", "pkg/worker/cluster", "internal/test/kit/reapiserver", "internal/test/kit/engine"},
	// What a terminal sends and understands differs from one to the next. The second has its tables of how wide characters are.
	"charm.land/bubbletea/v2":         {"internal/top/display"},
	"github.com/charmbracelet/x/ansi": {"internal/top"},
	"github.com/spf13/cobra":          {"cmd/rdistcc-cm", "lab/rdistcc-perf", "cmd/rdistccd", "internal/ctl"},
}

// heavy packages cost the wrapper start-up time, which is paid once per source
// file: it must not link them, not even through others.
var heavy = []string{
	"charm.land/bubbletea/v2", "crypto/tls", "encoding/json", "html/template", "net", "net/http", "regexp", "text/template",
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

// TestProductHasNoTestTools holds the table itself: whoever adds an edge sees here that this one has no good argument.
func TestProductHasNoTestTools(t *testing.T) {
	for from, to := range edges {
		if strings.HasPrefix(from, "internal/test/") {
			continue
		}
		for _, to := range to {
			if strings.HasPrefix(to, "lab/") && !strings.HasPrefix(from, "lab/") {
				t.Errorf("%s imports %s, which is of the laboratory", from, to)
			}
			if strings.HasPrefix(to, "internal/test/") {
				t.Errorf("%s imports %s, which is for tests", from, to)
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
