package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rawjob"
	"github.com/rdistcc/rdistcc/internal/test/kit/reporttest"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/worker"
)

// doctorShell is a shell with gcc on its PATH, alone.
func doctorShell(t *testing.T) *shell {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skipf("needs gcc: %v", err)
	}
	s := newShell(t)
	bin := filepath.Join(s.dir, "tools")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(gcc, filepath.Join(bin, "gcc")); err != nil {
		t.Fatal(err)
	}
	s.env["PATH"] = bin
	s.tools = &toolchain.Cache{Home: s.dir, File: s.known()}
	return s
}

// known is a file that remembers gcc: without it each server, and each doctor, reads 90 MB of it.
func (s *shell) known() string {
	s.t.Helper()
	name := filepath.Join(s.t.TempDir(), "compilers")
	if err := os.WriteFile(name, knownCompilers(), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return name
}

var knownCompilers = sync.OnceValue(func() []byte {
	dir, err := os.MkdirTemp("", "rdistcc-cm-test-")
	if err != nil {
		return nil
	}
	defer os.RemoveAll(dir)
	c := toolchain.Cache{File: filepath.Join(dir, "compilers")}
	if path, err := exec.LookPath("gcc"); err == nil {
		_, _ = c.Identify(context.Background(), path)
	}
	text, _ := os.ReadFile(c.File) // without it all is done as without
	return text
})

// server is a daemon that has the compilers of the directories; change and config may
// be nil.
func (s *shell) server(config *iwarp.Config, change func(*worker.Options), dirs ...string) (addr string) {
	s.t.Helper()
	if config == nil {
		config = &iwarp.Config{}
	}
	dev, err := iwarp.Open(*config)
	if err != nil {
		s.t.Fatal(err)
	}
	o := worker.Options{
		Device: dev, Log: slog.New(slog.DiscardHandler), Program: version, Jobs: 1, Clients: 4, Slot: 1 << 20, WorkBase: s.t.TempDir(), Compilers: s.known(),
		Heartbeat: time.Second, Silence: time.Minute, Grace: time.Millisecond, Settings: worker.Settings{JobTimeout: time.Minute, Dirs: dirs},
	}
	if change != nil {
		change(&o)
	}
	w, err := worker.New(context.Background(), o)
	if err != nil {
		s.t.Fatal(err)
	}
	l, err := dev.Listen(context.Background(), "127.0.0.1:0", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	w.Serve(l)
	s.t.Cleanup(func() {
		w.Close()
		dev.Close()
	})
	return l.Addr().String()
}

// examine runs doctor for a host, and gives its findings by their checks.
func (s *shell) examine(addr string, code int) map[string]finding {
	s.t.Helper()
	got, out, errOut := s.run("doctor", "--json", "--timeout", "5s", addr)
	if got != code {
		s.t.Errorf("doctor %s: exit status %d, want %d\n%s%s", addr, got, code, out, errOut)
	}
	var all []finding
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		s.t.Fatalf("%v in %s", err, out)
	}
	by := make(map[string]finding)
	for _, f := range all {
		by[f.Check] = f
		if strings.Contains(f.Text+f.Remedy, "\n") || f.Status != doctorOK && f.Status != doctorWarn && f.Status != doctorFail {
			s.t.Errorf("finding %+v", f)
		}
	}
	return by
}

// wantFinding holds a finding against what it should say.
func wantFinding(t *testing.T, by map[string]finding, check, status, text string) {
	t.Helper()
	f, ok := by[check]
	if !ok || f.Status != status || !strings.Contains(f.Text, text) || status == doctorFail && f.Remedy == "" {
		t.Errorf("%s: %+v, want %s with %q; all: %+v", check, f, status, text, by)
	}
}

// TestDoctorOfAGoodHost: every check has a line, and none fails.
func TestDoctorOfAGoodHost(t *testing.T) {
	s := doctorShell(t)
	s.tools = nil // as in the program
	addr := s.server(nil, nil, s.env["PATH"])
	by := s.examine(addr, 0)
	for check, text := range map[string]string{"tcp": addr, "identity": "on this machine", "wire": "neither authenticated nor encrypted", "version": version, "clock": "within", "toolchains": "gcc",
		"places": "1 job at a time", "round trip": "s", "compile": "gcc gives the same object as here"} {
		wantFinding(t, by, check, doctorOK, text)
	}
	for _, check := range []string{"sandbox", "trees"} {
		if by[check].Status == doctorFail || by[check].Text == "" {
			t.Errorf("%s: %+v", check, by[check])
		}
	}
	s.env["RDISTCC_HOSTS"] = addr
	out := s.want(0, "\n"+addr+"\n  ok    tcp ", "", "doctor")
	for _, want := range []string{"this machine\n  ok    config      none: defaults\n", "  ok    manager     none runs", "  ok    hosts       1 host of RDISTCC_HOSTS\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("doctor lacks %q:\n%s", want, out)
		}
	}
}

// TestDoctorTellsOfSearches: of compilers that look for files in ways of their own, with a name, and not of others.
func TestDoctorTellsOfSearches(t *testing.T) {
	s := doctorShell(t)
	var here atomic.Int32
	s.manager(func(q *ipc.Control) *ipc.Reply {
		if q.Args[0] == "stats" {
			return reply(t, &report.Stats{})
		}
		st := reporttest.Sample()
		st.Version = version
		st.Known.Searches = report.Searches{Watched: 9, Here: int(here.Load()), Because: "/opt/sdk/x.h"}
		return reply(t, st)
	})
	if _, out, _ := s.run("doctor"); strings.Contains(out, "searches") {
		t.Errorf("doctor tells of nothing:\n%s", out)
	}
	here.Store(2)
	want := "  warn  searches    2 of 9 combinations of compiler, options and sources stay here, because a compiler looks for \"/opt/sdk/x.h\"\n"
	if _, out, _ := s.run("doctor"); !strings.Contains(out, want) {
		t.Errorf("doctor lacks %q:\n%s", want, out)
	}
	want = "searches: 2 of 9 combinations of compiler, options and sources stay here, because a compiler looks for \"/opt/sdk/x.h\"\n"
	if _, out, _ := s.run("status"); !strings.Contains(out, want) {
		t.Errorf("status lacks %q:\n%s", want, out)
	}
}

// TestStatusTellsOfDirectories: where the kernel watches no more of them, and not elsewhere.
func TestStatusTellsOfDirectories(t *testing.T) {
	for want, d := range map[string]report.Directories{
		"directories: the kernel watches 12, as many as it may (a quarter of fs.inotify.max_user_watches); the others are looked at for each job\n": {Watched: 12, Most: 12, Short: true},
		"directories: the kernel watches none (fs.inotify.max_user_instances, max_user_watches); they are looked at for each job\n":                 {Short: true},
		"": {Watched: 11, Most: 12},
	} {
		if got := string(knownLine(&report.Known{Commands: 1, Directories: d})); !strings.HasSuffix(got, want) || want == "" && strings.Contains(got, "directories:") {
			t.Errorf("%+v: %q, want %q", d, got, want)
		}
	}
}

// TestDoctorTellsOfCompilesDoneTwice: of more than a few, with a reason and a file.
func TestDoctorTellsOfCompilesDoneTwice(t *testing.T) {
	s := doctorShell(t)
	var stats atomic.Pointer[report.Stats]
	s.manager(func(q *ipc.Control) *ipc.Reply {
		if q.Args[0] == "stats" {
			return reply(t, stats.Load())
		}
		st := reporttest.Sample()
		st.Version = version
		return reply(t, st)
	})
	stats.Store(&report.Stats{Remembered: 100, Again: []report.TwiceCount{{Reason: "doubt:dependency-file", Jobs: fewTwice, Source: "x.c"}}})
	if _, out, _ := s.run("doctor"); strings.Contains(out, "twice") {
		t.Errorf("doctor tells of a few:\n%s", out)
	}
	stats.Store(&report.Stats{Remembered: 100, Again: []report.TwiceCount{{Reason: "doubt:dependency-file", Jobs: fewTwice, Source: "x.c"}, {Reason: "diagnostics", Jobs: 1, Source: "w.c"}}})
	_, out, _ := s.run("doctor")
	for _, want := range []string{
		"  warn  twice       5 commands of the last 100 ran on a host and then here again: doubt:dependency-file 4 (x.c), diagnostics 1 (w.c)\n",
		"-> docs/troubleshooting.md says what that means; please report it, with what `rdistcc why x.c` prints\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("doctor lacks %q:\n%s", want, out)
		}
	}
}

// TestDoctorOfAHostThatIsNotThere: which of the ways it is not.
func TestDoctorOfAHostThatIsNotThere(t *testing.T) {
	s := doctorShell(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	l.Close()
	wantFinding(t, s.examine(closed, 100), "tcp", doctorFail, "refuses")
	wantFinding(t, s.examine("nosuch.invalid", 100), "name", doctorFail, "nosuch.invalid")

	code, out, _ := s.run("doctor", "--timeout", "300ms", blackHole(t))
	if code != 100 || !strings.Contains(out, "no answer from") || !strings.Contains(out, "firewall") {
		t.Errorf("a host that drops what comes: exit status %d\n%s", code, out)
	}
	// A reserved network: whatever this machine's network says to it.
	code, out, _ = s.run("doctor", "--timeout", "300ms", "192.0.2.1")
	if code != 100 || !strings.Contains(out, "FAIL  tcp") {
		t.Errorf("TEST-NET: exit status %d\n%s", code, out)
	}
	// One that takes connections, and is something else.
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	code, out, _ = s.run("doctor", "--timeout", "300ms", mute.Addr().String())
	if code != 100 || !strings.Contains(out, "FAIL  service") || !strings.Contains(out, "says nothing") {
		t.Errorf("a mute host: exit status %d\n%s", code, out)
	}
	s.want(101, "", "is no host", "doctor", "a b")
	s.want(101, "", "no time to wait", "doctor", "--timeout", "-1s")
}

// TestDoctorOfDistccsPort: a host that hangs up, or is not there, at distccd's port is said to be at that port.
func TestDoctorOfDistccsPort(t *testing.T) {
	s := doctorShell(t)
	const addr = "127.0.36.32:3632" // as good as never taken
	wantFinding(t, s.examine(addr, 100), "tcp", doctorFail, "distccd's port")
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skip(err)
	}
	defer l.Close()
	go func() { // ends with l
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			_ = c.Close()
		}
	}()
	wantFinding(t, s.examine(addr, 100), "service", doctorFail, "distccd's port")
}

// TestDoctorOfOneHostShowsSettings: what is wrong with the configuration, or with the host list, is shown also when one host is asked for.
func TestDoctorOfOneHostShowsSettings(t *testing.T) {
	s := doctorShell(t)
	addr := s.server(nil, nil, s.env["PATH"])
	if _, some := s.examine(addr, 0)["config"]; some {
		t.Error("shown although it is well")
	}
	s.configure("nonsense: true\n")
	by := s.examine(addr, 100)
	wantFinding(t, by, "config", doctorFail, "nonsense")
	wantFinding(t, by, "compile", doctorOK, "same object")
	delete(s.env, "RDISTCC_CONFIG")
	s.env["RDISTCC_HOSTS"] = "a:b:c"
	wantFinding(t, s.examine(addr, 100), "hosts", doctorFail, "too many colons")
	delete(s.env, "RDISTCC_HOSTS")
	// A file that cannot be looked at: a link that leads to itself fails for root too.
	home := filepath.Join(s.dir, "loop")
	if err := os.Symlink(home, home); err != nil {
		t.Fatal(err)
	}
	s.env["XDG_CONFIG_HOME"] = home
	wantFinding(t, s.examine(addr, 100), "config", doctorFail, "loop")
}

// TestIsLate: a wait that is over is reported as the context's or as the network's end.
func TestIsLate(t *testing.T) {
	for err, want := range map[error]bool{
		context.DeadlineExceeded: true, os.ErrDeadlineExceeded: true, syscall.ETIMEDOUT: true,
		&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}: true, syscall.ECONNREFUSED: false, context.Canceled: false,
	} {
		if got := isLate(fmt.Errorf("dial: %w", err)); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

// blackHole returns an address at which connections get no answer: a listener whose queue is full.
func blackHole(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	a, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", a.(*syscall.SockaddrInet4).Port)
	for range 8 {
		c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Skip("needs a kernel that drops what a full queue cannot take")
	return ""
}

func (s *shell) key(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(strings.Repeat(text, 32)+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

func (s *shell) configure(text string) {
	s.t.Helper()
	path := filepath.Join(s.dir, "config.yaml")
	_ = os.Remove(path) // with a mode that a test gave it
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.env["RDISTCC_CONFIG"] = path
}

// TestDoctorOfTheWire: beyond this machine, doctor warns of all but TLS, and says what helps where there can be none.
func TestDoctorOfTheWire(t *testing.T) {
	s := doctorShell(t)
	key, err := identity.New(identity.Client, identity.Settings{PSKFile: s.key("here", "k")})
	if err != nil {
		t.Fatal(err)
	}
	open, err := identity.New(identity.Client, identity.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	for text, id := range map[string]*identity.Identity{"authenticated at its start only, not encrypted": key, "neither authenticated nor encrypted": open} {
		x := &doctorDial{}
		var far net.Addr = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 7632}
		x.tcp.Store(&far)
		f := &findings{}
		(&doctor{id: id}).wire(f, x)
		if len(f.all) != 1 || f.all[0].Status != doctorWarn || !strings.HasPrefix(f.all[0].Text, text) || !strings.Contains(f.all[0].Remedy, "SECURITY.md") {
			t.Errorf("beyond this machine, %v: %+v, want a warning: %s", id.Mode(), f.all, text)
		}
	}
}

// TestDoctorOfKeys: right, wrong, on one side only.
func TestDoctorOfKeys(t *testing.T) {
	s := doctorShell(t)
	k, err := psk.Load(s.key("there", "k"))
	if err != nil {
		t.Fatal(err)
	}
	with := s.server(nil, func(o *worker.Options) { o.Key = func() *psk.Key { return k } }, s.env["PATH"])
	without := s.server(nil, nil, s.env["PATH"])
	wantFinding(t, s.examine(with, 100), "identity", doctorFail, "wants a pre-shared key")
	s.configure("auth: {psk-file: " + s.key("here", "k") + "}\n")
	by := s.examine(with, 0)
	wantFinding(t, by, "identity", doctorOK, "both sides have the pre-shared key")
	wantFinding(t, by, "wire", doctorOK, "authenticated at its start only, not encrypted")
	wantFinding(t, by, "compile", doctorOK, "same object")
	wantFinding(t, s.examine(without, 100), "identity", doctorFail, "has no pre-shared key")
	s.configure("auth: {psk-file: " + s.key("here", "j") + "}\n")
	wantFinding(t, s.examine(with, 100), "identity", doctorFail, "wrong key")
	if err := os.Chmod(filepath.Join(s.dir, "here"), 0o644); err != nil {
		t.Fatal(err)
	}
	wantFinding(t, s.examine(with, 100), "identity", doctorFail, "chmod 600")
}

// TestDoctorOfCertificates: those of one farm, and of another.
func TestDoctorOfCertificates(t *testing.T) {
	s := doctorShell(t)
	files := func(dir string) (client, daemon identity.Settings) {
		dir = filepath.Join(s.dir, dir)
		if code, _, errOut := s.run("certs", dir); code != 0 {
			t.Fatal(errOut)
		}
		of := func(name string) identity.Settings {
			return identity.Settings{Cert: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key"), CA: filepath.Join(dir, "ca.crt")}
		}
		return of("client"), of("rdistccd")
	}
	ours, theirs := files("farm")
	foreign, _ := files("another")
	id, err := identity.New(identity.Daemon, theirs)
	if err != nil {
		t.Fatal(err)
	}
	addr := s.server(&iwarp.Config{Listen: id.Listen}, nil, s.env["PATH"])
	use := func(i identity.Settings) {
		s.configure(fmt.Sprintf("auth: {tls: {cert: %s, key: %s, ca: %s}}\n", i.Cert, i.Key, i.CA))
	}
	use(ours)
	by := s.examine(addr, 0)
	wantFinding(t, by, "identity", doctorOK, "days left")
	wantFinding(t, by, "wire", doctorOK, "encrypted and authenticated")
	wantFinding(t, by, "compile", doctorOK, "same object")
	// A clock that is an hour off: certificates that are made there are not valid here.
	wrong := &job.Welcome{Jobs: 1, Clock: uint64(time.Now().Add(time.Hour).UnixMilli()), Program: version}
	wantFinding(t, s.examine(fakeHost(t, iwarp.Config{Listen: id.Listen}, 0, wrong), 100), "clock", doctorFail, "certificates")
	use(foreign)
	by = s.examine(addr, 100)
	wantFinding(t, by, "tcp", doctorOK, addr)
	wantFinding(t, by, "identity", doctorFail, "")
	s.configure("auth: {}\n") // no identity, where certificates are wanted
	by = s.examine(addr, 100)
	if by["identity"].Status != doctorFail && by["service"].Status != doctorFail {
		t.Errorf("without certificates: %+v", by)
	}
	// And certificates where there are none.
	use(ours)
	wantFinding(t, s.examine(s.server(nil, nil, s.env["PATH"]), 100), "identity", doctorFail, "")
}

// TestDoctorOfAFake: what a real daemon of this version, on this machine, never says.
func TestDoctorOfAFake(t *testing.T) {
	s := doctorShell(t)
	good := func() *job.Welcome {
		return &job.Welcome{Jobs: 2, MaxBody: 1 << 20, MaxResult: 1 << 20, Clock: uint64(time.Now().UnixMilli()), Program: version, Tree: true}
	}
	for name, q := range map[string]struct {
		change              func(*job.Welcome)
		version             uint16
		code                int
		check, status, text string
	}{
		"other protocol":  {nil, job.Version + 1, 100, "version", doctorFail, "version"},
		"other program":   {func(w *job.Welcome) { w.Program = "v0.1" }, 0, 100, "version", doctorWarn, "v0.1 there"},
		"clock ahead":     {func(w *job.Welcome) { w.Clock += 3600_000 }, 0, 100, "clock", doctorWarn, "ahead of"},
		"clock behind":    {func(w *job.Welcome) { w.Clock -= 30_000 }, 0, 100, "clock", doctorWarn, "behind"},
		"no toolchain":    {nil, 0, 100, "toolchains", doctorFail, "none of the compilers here"},
		"draining":        {func(w *job.Welcome) { w.Load.Draining = true }, 0, 100, "places", doctorWarn, "going down"},
		"no sandbox":      {nil, 0, 100, "sandbox", doctorWarn, "missing: tree or landlock"},
		"half a sandbox":  {func(w *job.Welcome) { w.Sandbox = 1 << 5 }, 0, 100, "sandbox", doctorWarn, "partial"},
		"whole sandbox":   {func(w *job.Welcome) { w.Sandbox = 1<<10 - 1 }, 0, 100, "sandbox", doctorOK, "full"},
		"no trees":        {func(w *job.Welcome) { w.Tree = false }, 0, 100, "trees", doctorWarn, "no private trees"},
		"little memory":   {func(w *job.Welcome) { w.Load.MemoryFree = 1 << 20 }, 0, 100, "places", doctorWarn, "of memory left"},
		"identifying":     {func(w *job.Welcome) { w.Identifying = true }, 0, 0, "toolchains", doctorWarn, "still finding out"},
		"mute after that": {nil, 0, 100, "round trip", doctorFail, "broke"},
	} {
		t.Run(name, func(t *testing.T) {
			w := good()
			if q.change != nil {
				q.change(w)
			}
			s.t = t
			wantFinding(t, s.examine(fakeHost(t, iwarp.Config{}, q.version, w), q.code), q.check, q.status, q.text)
		})
	}
}

// fakeHost says one Welcome, and ends a connection that wants more.
func fakeHost(t *testing.T, config iwarp.Config, version uint16, w *job.Welcome) string {
	t.Helper()
	dev, err := iwarp.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	l, err := dev.Listen(t.Context(), "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			req, err := l.Accept(context.Background())
			if err != nil {
				return
			}
			serveFake(t, dev, req, version, w)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
		dev.Close()
	})
	return l.Addr().String()
}

func serveFake(t *testing.T, dev iwarp.Device, req iwarp.ConnRequest, version uint16, w *job.Welcome) {
	pd, err := dev.AllocPD()
	if err != nil {
		t.Error(err)
		return
	}
	cq, err := dev.CreateCQ(64)
	if err != nil {
		t.Error(err)
		return
	}
	qp, err := pd.CreateQP(iwarp.QPInitAttr{SendCQ: cq, RecvCQ: cq, MaxSend: 8, MaxRecv: 8})
	if err != nil {
		t.Error(err)
		return
	}
	defer qp.Destroy()
	buf := make([]byte, job.MaxMessage)
	mr, err := pd.RegMR(buf, iwarp.LocalWrite, nil)
	if err != nil {
		t.Error(err)
		return
	}
	recv := func() error {
		return qp.PostRecv(&iwarp.RecvWR{SGL: []iwarp.SGE{{Length: job.MaxMessage, LKey: mr.STag()}}})
	}
	if err := recv(); err != nil {
		t.Error(err)
		return
	}
	g := job.Greeting{Version: job.Version}
	if version != 0 {
		g.Version = version
	}
	if err := req.Accept(context.Background(), qp, &iwarp.ConnParam{PrivateData: g.Append(nil)}); err != nil {
		return // it has gone
	}
	go func() { <-qp.Done(); cq.Close() }()
	var wc [4]iwarp.WC
	for messages := 0; ; {
		n := cq.Poll(wc[:])
		if n == 0 {
			if cq.Wait(context.Background()) != nil {
				return
			}
			continue
		}
		for i := range wc[:n] {
			switch {
			case wc[i].Status != iwarp.StatusSuccess:
				return
			case wc[i].Op != iwarp.OpRecv:
				continue
			}
			if messages++; messages == 2 {
				return // a Heartbeat gets no answer
			}
			if err := recv(); err != nil {
				return
			}
			_ = qp.PostSend(&iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Inline, Data: job.Append(nil, w)})
		}
	}
}

// TestDoctorOfAnotherCompiler: the host has one, but not ours.
func TestDoctorOfAnotherCompiler(t *testing.T) {
	s := doctorShell(t)
	s.file("there/gcc", "#!/bin/sh\nexit 1\n") // none that can be identified
	by := s.examine(s.server(nil, nil, filepath.Join(s.dir, "there")), 100)
	wantFinding(t, by, "toolchains", doctorFail, "none of the compilers here")
	if _, tried := by["compile"]; tried {
		t.Error("a compile was tried")
	}
}

// TestDoctorOfThisMachine: what is wrong here.
func TestDoctorOfThisMachine(t *testing.T) {
	s := doctorShell(t)
	local := func(check, status, text string) {
		t.Helper()
		_, out, _ := s.run("doctor", "--json")
		var all []finding
		if err := json.Unmarshal([]byte(out), &all); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		i := slices.IndexFunc(all, func(f finding) bool { return f.Check == check })
		if i < 0 || all[i].Status != status || !strings.Contains(all[i].Text, text) {
			t.Errorf("%s: want %s with %q:\n%s", check, status, text, out)
		}
	}
	local("hosts", doctorWarn, "none: everything is compiled here")
	local("directory", doctorOK, "mode 0700")
	state := s.env["RDISTCC_DIR"]
	if err := os.Chmod(state, 0o777); err != nil {
		t.Fatal(err)
	}
	local("directory", doctorFail, "written by others")
	local("manager", doctorFail, "")
	if err := os.Chmod(state, 0o755); err != nil {
		t.Fatal(err)
	}
	local("directory", doctorWarn, "entered by others")
	if err := os.Chmod(state, 0o700); err != nil {
		t.Fatal(err)
	}
	local("manager", doctorOK, "none runs")
	s.manager(func(q *ipc.Control) *ipc.Reply { return reply(t, report.Status{Version: "v0.0", PID: 7}) })
	local("manager", doctorWarn, "version v0.0")
	s.configure("hosts: ['127.0.0.1:1']\n")
	if err := os.Chmod(s.env["RDISTCC_CONFIG"], 0o620); err != nil {
		t.Fatal(err)
	}
	local("config", doctorFail, "written by others")
	if err := os.Chmod(s.env["RDISTCC_CONFIG"], 0o602); err != nil {
		t.Fatal(err)
	}
	local("config", doctorFail, "written by anyone")
	s.configure("nonsense: true\n")
	local("config", doctorFail, "nonsense")
	s.configure("buffers: {slots: 4096, prefault: 32MiB}\n")
	local("capacity", doctorWarn, "4096 slots")
	delete(s.env, "RDISTCC_CONFIG")

	s.file("bin/rdistcc", "#!/bin/sh\n")
	link := filepath.Join(s.dir, "links")
	if err := errors.Join(os.Mkdir(link, 0o755), os.Symlink(filepath.Join(s.dir, "bin", "rdistcc"), filepath.Join(link, "gcc"))); err != nil {
		t.Fatal(err)
	}
	tools := s.env["PATH"]
	s.env["PATH"] = link + ":" + tools
	local("links", doctorOK, "before the compilers")
	local("compilers", doctorOK, "gcc")
	s.env["PATH"] = tools + ":" + link
	local("links", doctorWarn, "after the compilers")
	if err := os.Remove(filepath.Join(s.dir, "bin", "rdistcc")); err != nil {
		t.Fatal(err)
	}
	local("links", doctorFail, "lead to no rdistcc")
	s.env["PATH"] = filepath.Join(s.dir, "bin")
	local("compilers", doctorFail, "PATH has none of")
}

// TestDoctorStaysConnected: a host keeps a doctor that is busy here for longer than a client may be silent.
func TestDoctorStaysConnected(t *testing.T) {
	s := doctorShell(t)
	addr := s.server(nil, func(o *worker.Options) { o.Heartbeat, o.Silence = 500*time.Millisecond, 2*time.Second })
	dev, err := iwarp.Open(iwarp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	c, err := rawjob.DialWith(t.Context(), dev, addr, rawjob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, _, err := c.Introduced(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := &doctor{timeout: time.Minute}
	d.alongside(t.Context(), c, 50*time.Millisecond, func() { time.Sleep(4 * time.Second) })
	if err := c.Echo(t.Context()); err != nil {
		t.Errorf("after that: %v", err)
	}
}
