package ctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/reporttest"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc/ipcserver"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// version is that of the build under test.
const version = "1.2.3"

// shell is where subcommands are typed in a test: an environment of its own.
type shell struct {
	t   *testing.T
	dir string
	env map[string]string

	terminal bool // its output is one

	tools *toolchain.Cache // see ctl
}

func newShell(t *testing.T) *shell {
	t.Helper()
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	return &shell{t: t, dir: dir, env: map[string]string{"RDISTCC_DIR": state, "HOME": dir}}
}

func (s *shell) file(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// ctl returns a run of a subcommand that prints nowhere yet.
func (s *shell) ctl() *ctl {
	return &ctl{
		version:  version,
		terminal: s.terminal, tools: s.tools,
		lookup: func(k string) (string, bool) { v, ok := s.env[k]; return v, ok },
		environ: func() (kv []string) {
			for k, v := range s.env {
				kv = append(kv, k+"="+v)
			}
			slices.Sort(kv)
			return kv
		},
		self: filepath.Join(s.dir, "bin", "rdistcc-cm"), cores: 6,
	}
}

// run types a subcommand.
func (s *shell) run(args ...string) (code int, out, errOut string) {
	s.t.Helper()
	var o, e printed
	c := s.ctl()
	c.out, c.err = &o, &e
	code = c.run(args)
	return code, o.text.String(), e.text.String()
}

// printed is what several programs print at a time.
type printed struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

// want types a subcommand, and holds exit code and the texts against it.
func (s *shell) want(code int, out string, errOut string, args ...string) string {
	s.t.Helper()
	gotCode, gotOut, gotErr := s.run(args...)
	if gotCode != code || !strings.Contains(gotOut, out) || !strings.Contains(gotErr, errOut) || errOut == "" && gotErr != "" {
		s.t.Errorf("rdistcc %q: exit %d\nstdout: %s\nstderr: %s\nwant exit %d, %q, %q", args, gotCode, gotOut, gotErr, code, out, errOut)
	}
	return gotOut
}

// manager answers questions until the test ends, or until it was told to stop.
func (s *shell) manager(answer func(*ipc.Control) *ipc.Reply) {
	s.t.Helper()
	l, err := ipcserver.Listen(filepath.Join(s.env["RDISTCC_DIR"], ipc.SocketName), false)
	if err != nil {
		s.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.AcceptConn()
			if err != nil {
				return
			}
			kind, fields, err := c.Recv()
			var q ipc.Control
			if err == nil && kind == ipc.KindControl && q.Parse(fields) == nil {
				c.Send(answer(&q).Append(nil))
				if q.Args[0] == "stop" {
					l.Close()
				}
			}
			c.Close()
		}
	}()
	s.t.Cleanup(func() { l.Close(); <-done })
}

func reply(t *testing.T, v any) *ipc.Reply {
	data, err := json.Marshal(v)
	if err != nil {
		t.Error(err)
	}
	return &ipc.Reply{Data: data}
}

func TestWithoutManager(t *testing.T) {
	s := newShell(t)
	s.want(100, "", "rdistcc: no connection manager runs at "+s.env["RDISTCC_DIR"]+"/cm.sock; the first compile starts one\n", "status")
	s.want(100, "", "no connection manager runs", "status", "--json")
	s.want(0, "no connection manager runs\n", "", "stop")
	s.env["RDISTCC_HOSTS"] = ""
	s.want(0, "no hosts configured", "", "hosts")
	s.want(0, "6\n", "", "-j") // the cores
	s.env["RDISTCC_HOSTS"] = "build7/8 [::1]:8000,zstd old,down mdns+/4 localhost/3"
	if out := s.want(0, "hosts of RDISTCC_HOSTS", "", "hosts"); !strings.Contains(out, "[::1]:8000") || !strings.Contains(out, "mdns+/4 ") || strings.Contains(out, "old") {
		t.Errorf("hosts are\n%s", out)
	}
	s.want(0, "build7/8\n[::1]:8000,zstd\nold,down\nmdns+/4\nlocalhost/3\n", "", "--show-hosts")
	s.want(0, "15\n", "", "-j") // 8 + 4 assumed + 3
	s.env["RDISTCC_HOSTS"] = "build7:x"
	for _, cmd := range []string{"hosts", "--show-hosts", "-j"} {
		s.want(106, "", `rdistcc: host list RDISTCC_HOSTS: "build7:x"`, cmd)
	}
	// What distcc takes and rdistcc does not is shown as distcc shows it, with our word for it.
	s.env["RDISTCC_HOSTS"] = "localhost joe@build7/3,lzo # home\nlocalhost/2 --localslots=3"
	s.want(106, "localhost\njoe@build7/3,lzo\nlocalhost/2\n", `host list RDISTCC_HOSTS line 1: "joe@build7/3,lzo": hosts behind ssh`, "--show-hosts")
	s.env["RDISTCC_HOSTS"] = "--randomize a b c d e f g h"
	out := strings.Fields(s.want(0, "", "", "--show-hosts"))
	if slices.Sort(out); strings.Join(out, " ") != "a b c d e f g h" {
		t.Errorf("in random order: %q", out)
	}
}

// TestListsThatAreNone: each is one line that names the file and the line in it.
func TestListsThatAreNone(t *testing.T) {
	s := newShell(t)
	list := s.file(".config/rdistcc/hosts", "a\n# b\nc,zst\n")
	s.want(106, "", "rdistcc: host list "+list+`:3: "c,zst": unknown option "zst"; known are zstd, plain, down; lzo, cpp and auth are ignored; hosts are separated by blanks`+"\n", "hosts")
	cfg := s.file(".config/rdistcc/config.yaml", "fallback:\n  allow: true\nhosts: [a,\n  'b:x']\n")
	for _, cmd := range []string{"hosts", "--show-hosts", "-j", "config"} {
		s.want(101, "", "rdistcc: "+cfg+`:4: hosts: "b:x": "x" is not a port`, cmd)
	}
	if err := os.Remove(cfg); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(cfg, 0o700); err != nil {
		t.Fatal(err)
	}
	s.want(101, "", "rdistcc: "+cfg+": is a directory\n", "hosts")
}

func TestOwnListInItsOrder(t *testing.T) {
	s := newShell(t)
	s.file(".distcc/hosts", "distccs")
	s.want(0, "distccs\n", "", "--show-hosts")
	s.file(".config/rdistcc/hosts", "mine # comment\n")
	s.want(0, "mine\n", "", "--show-hosts")
	s.file(".config/rdistcc/config.yaml", "hosts: [configured/2]\n")
	s.want(0, "configured/2\n", "", "--show-hosts")
	s.env["DISTCC_HOSTS"] = "env"
	s.want(0, "env\n", "", "--show-hosts")
}

func TestStatusForPeople(t *testing.T) {
	s := newShell(t)
	s.manager(func(*ipc.Control) *ipc.Reply { return reply(t, reporttest.Sample()) })
	out := s.want(0, "", "", "status")
	var lines []string
	for _, l := range strings.Split(out, "\n") {
		lines = append(lines, strings.Join(strings.Fields(l), " "))
	}
	for _, want := range []string{
		"connection manager v1, process 42, up 1h30m",
		"3 commands under way, 2 of 64 slots taken; 1 wait for a host",
		"host list of its own: /etc/rdistcc/hosts",
		"a:7632 up 2 8 6 120 0 3.0MiB 4.9KiB 1.50 - 0.3 s ago, board",
		"b:7632 down 0 - 0 0 0 0B 0B - - - connection refused",
		"c:7632 up 0 4 0 0 0 0B 0B 0.00 - 0.0 s ago, welcome shows no private trees",
		"remote a:7632 120 77% 0",
		"local diagnostics 25 16% 5",
		"local link 10 6% 0",
		"INPUTS JOBS SHARE", "scan 112 90% known from the files", "memo 3 2% known, as the compiler has listed them before",
		"list 10 8% listed by the compiler here", "why the compiler here was asked: command 6, asked 4, time 4",
		"5s ago x.c host-lost b:7632 lost (reset)",
		"z.c compiles a:7632, c:7632 1.5 s", "prog runs here 1m5s", "w.c waits - 0.0 s",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("status lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "no hosts") || strings.Contains(out, "y.c") || strings.Contains(out, "preprocessed here") {
		t.Errorf("status says too much:\n%s", out)
	}

	many := reporttest.Sample()
	for range 30 {
		many.Underway = append(many.Underway, report.Underway{Source: "m.c"})
	}
	if text := string(statusText(&many, time.Now())); strings.Count(text, "m.c") != maxUnderway-3 || !strings.Contains(text, "\nand 13 more\n") {
		t.Errorf("with 33 commands under way it says\n%s", text)
	}

	st := reporttest.Sample()
	st.Hosts, st.NoHosts, st.Inputs = nil, 7, report.InputCounts{}
	st.Jobs = []report.JobCount{{Place: "local", Reason: "no-hosts", OK: 7}}
	if out = string(statusText(&st, time.Now())); strings.Count(out, "no hosts configured") != 1 || strings.Contains(out, "INPUTS") {
		t.Errorf("without hosts it says\n%s", out)
	}
	st.ListError = "host list /etc/rdistcc/hosts: bad"
	out = string(statusText(&st, time.Now()))
	if strings.Contains(out, "no hosts configured") || !strings.Contains(out, "host list cannot be used: host list /etc/rdistcc/hosts: bad\n") {
		t.Errorf("without hosts it says\n%s", out)
	}
}

func TestStatusForPrograms(t *testing.T) {
	s := newShell(t)
	s.manager(func(*ipc.Control) *ipc.Reply { return reply(t, reporttest.Sample()) })
	out := s.want(0, "", "", "status", "--json")
	var got report.Status
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.PID != 42 || len(got.Hosts) != 3 || got.Inputs.Scan != 112 {
		t.Errorf("JSON is %v, %+v", err, got)
	}
}

func TestHostsOfTheAskingSide(t *testing.T) {
	s := newShell(t)
	s.env["RDISTCC_HOSTS"] = "a/3 b c d/5 localhost/1"
	s.manager(func(q *ipc.Control) *ipc.Reply {
		if q.Hosts != s.env["RDISTCC_HOSTS"] {
			t.Errorf("asked %q with list %q", q.Args, q.Hosts)
		}
		if q.Args[0] == "places" {
			return reply(t, report.Places{Hosts: 11, Guess: 5, Local: 1})
		}
		return reply(t, []report.HostStatus{
			{Addr: "a:7632", State: "up", Tools: 2, Jobs: 8, Running: 3, Credits: 2, RTTUS: 1500, Rate: 12 << 20, Speed: 1.25, HeldFiles: 42, Load: &job.Load{LoadAvg: 150}, Tree: true, Sandbox: "full", Version: "1.4", Out: 5 << 20, In: 300, Group: "team"},
			{Addr: "b:7632", State: "up", Tools: 2, Jobs: 8, Drained: true, Group: "team"}, {Addr: "c:7632", State: "down", Error: "refused", PauseMS: 2100},
			{Addr: "d:7632", State: "unused"}, {Addr: "e:7632", State: "up", Tools: 2, Jobs: 2, Tree: true, DoubtMS: 600000, Doubt: "another object"},
			{Addr: "f:7632", State: "up", Tools: 2, Jobs: 2, Tree: true, OnTrial: true}})
	})
	out := s.want(0, "", "", "hosts")
	var lines []string
	for _, l := range strings.Split(out, "\n") {
		lines = append(lines, strings.Join(strings.Fields(l), " "))
	}
	for _, want := range []string{
		"HOST STATE JOBS RUNNING CREDITS RTT RATE SPEED LOAD TREE SANDBOX VERSION HOLDS SENT RECEIVED NOTE",
		"a:7632 up 8 3 2 1.5 ms 12.0MiB/s 1.25 1.50 yes full 1.4 42 5.0MiB 300B",
		"b:7632 drained 8 0 0 - - - - no - - - 0B 0B drained by hand: rdistcc undrain ends that",
		"c:7632 down - 0 0 - - - - - - - - 0B 0B refused; again in 3s",
		"d:7632 unused - 0 0 - - - - - - - - 0B 0B",
		"e:7632 quarantined 2 0 0 - - - - yes - - - 0B 0B in quarantine for 10m0s: another object",
		"f:7632 up 2 0 0 - - - - yes - - - 0B 0B on trial, one job at a time: its jobs failed",
		"results are shared with the clients of group team on a:7632, b:7632",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("hosts lacks %q:\n%s", want, out)
		}
	}
	s.want(0, `"addr": "a:7632"`, "", "hosts", "--json")
	s.want(0, "17\n", "", "-j")
}

func TestMigrate(t *testing.T) {
	s := newShell(t)
	s.env["DISTCC_HOSTS"], s.env["DISTCC_IO_TIMEOUT"] = "a b:3632", "60"
	out := s.want(0, "NOW                   WITH RDISTCC           NOTE\n", "", "migrate", "distcc")
	if !strings.Contains(out, "\nb:3632                b                      3632 is distccd's port") || !strings.Contains(out, "\n- in builds: ") {
		t.Error(out)
	}
	s.want(0, "No settings of sccache are in force here.\n\n- in builds: ", "", "migrate", "sccache")
	s.want(101, "", "rdistcc: migrate: goma is not known; the programs are distcc, icecream, sccache\n", "migrate", "goma")
	s.want(101, "", "rdistcc: migrate needs a PROGRAM, as in: rdistcc migrate distcc\n", "migrate")
}

func TestManagersObjection(t *testing.T) {
	s := newShell(t)
	s.manager(func(*ipc.Control) *ipc.Reply { return &ipc.Reply{Code: 106, Data: []byte("host list: bad")} })
	s.want(106, "", "rdistcc: host list: bad\n", "hosts")
}

func TestManagerThatAnswersNonsense(t *testing.T) {
	s := newShell(t)
	s.manager(func(*ipc.Control) *ipc.Reply { return &ipc.Reply{Data: []byte("{")} })
	s.want(109, "", "cm.sock", "status")
}

// TestOpenDirectoryIsNotBelieved: a directory that others can write to could hold anyone's socket.
func TestOpenDirectoryIsNotBelieved(t *testing.T) {
	s := newShell(t)
	s.manager(func(*ipc.Control) *ipc.Reply { return reply(t, reporttest.Sample()) })
	if err := os.Chmod(s.env["RDISTCC_DIR"], 0o777); err != nil {
		t.Fatal(err)
	}
	s.want(113, "", "other users can write to it", "status")
}

func TestStopWaitsForTheEnd(t *testing.T) {
	s := newShell(t)
	s.manager(func(q *ipc.Control) *ipc.Reply {
		if q.Args[0] != "stop" {
			return &ipc.Reply{Code: 101}
		}
		return reply(t, struct{}{})
	})
	s.want(0, "the connection manager has stopped\n", "", "stop")
	s.want(100, "", "no connection manager runs", "status")
}

func TestConfigWithOrigins(t *testing.T) {
	s := newShell(t)
	path := s.file(".config/rdistcc/config.yaml", "# mine\nlocal:\n  slots: 3\n")
	out := s.want(0, "", "", "config", "--origins")
	for _, want := range []string{"slots: 3 # " + path + ":3", "preprocess: 0 # default", "job-timeout: 10m # default"} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("config lacks %q:\n%s", want, out)
		}
	}
	// What it prints is a configuration file.
	cfg, err := config.Parse("printed", []byte(s.want(0, "", "", "config")))
	if err != nil || cfg.Local.Slots != 3 {
		t.Errorf("printed configuration: %v", err)
	}
	if _, err := config.Parse("printed", []byte(out)); err != nil {
		t.Errorf("printed configuration with origins: %v", err)
	}
	s.env["RDISTCC_CONFIG"] = s.file("bad.yaml", "slots: 3\n")
	s.want(101, "", `bad.yaml:1: unknown key "slots" (did you mean "local.slots"?)`, "config")

	// A manager knows its flags.
	delete(s.env, "RDISTCC_CONFIG")
	s.manager(func(*ipc.Control) *ipc.Reply {
		return reply(t, []config.Setting{{Key: "local.slots", Value: "9", Origin: "--x"}})
	})
	s.want(0, "# in force in the connection manager that runs\nlocal:\n  slots: 9  # --x\n", "", "config", "--origins")
	s.want(0, `"origin": "--x"`, "", "config", "--json")
}

// TestOriginsOfTheEnvironment: variables override settings, say which files count, or are read by nothing.
func TestOriginsOfTheEnvironment(t *testing.T) {
	s := newShell(t)
	list := s.file(".distcc/hosts", "a\n")
	origins := func(want ...string) {
		t.Helper()
		out := strings.Join(strings.Fields(s.want(0, "", "", "config", "--origins")), " ")
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("origins lack %q:\n%s", w, out)
			}
		}
	}
	origins("hosts: [] # default; they are those of "+list+" discovery:", "socket: \"\" # default; overridden here by RDISTCC_DIR=")
	path := s.file("other.yaml", "limits: {io-timeout: 1m}\n")
	for k, v := range map[string]string{"RDISTCC_CONFIG": path, "RDISTCC_HOSTS": "x/3\ty", "DISTCC_HOSTS": "z", "RDISTCC_IO_TIMEOUT": "9", "RDISTCC_MODE": "remote",
		"RDISTCC_FALLBAK": "0", "DISTCC_FALLBACK": "0", "DISTCC_SSH": "ssh", "RDISTCC_SKIP_LOCAL_RETRY": "0"} {
		s.env[k] = v
	}
	origins("# configuration file: "+path+", by RDISTCC_CONFIG #", "hosts: [] # default; overridden here by RDISTCC_HOSTS=x/3 y discovery:",
		"io-timeout: 1m # "+path+":1; overridden here by RDISTCC_IO_TIMEOUT=9", "allow: true # default; overridden here by RDISTCC_MODE=remote",
		"# RDISTCC_FALLBAK=0 is not read; did you mean RDISTCC_FALLBACK?", "# DISTCC_FALLBACK=0 is not read; it is distcc's, rdistcc has RDISTCC_FALLBACK",
		"# DISTCC_SSH=ssh is not read; it is distcc's", "diagnostics: exact # default auth:")
	s.want(0, `"environment": "RDISTCC_HOSTS=x/3\ty"`, "", "config", "--json")
	if _, err := config.Parse("printed", []byte(s.want(0, "", "", "config", "--origins"))); err != nil {
		t.Errorf("what it prints is no configuration: %v", err)
	}
}

func TestInstallLinks(t *testing.T) {
	s := newShell(t)
	s.want(100, "", "there is no rdistcc beside rdistcc-cm", "install-links", s.dir+"/links")
	rdistcc := s.file("bin/rdistcc", "#!/bin/sh\necho rdistcc as ${0##*/}\n")
	links := s.dir + "/links"
	s.env["PATH"] = s.dir + "/none:" + s.dir + "/cc1:" + s.dir + "/cc2:" + s.dir + "/masquerade"
	s.want(100, "", "PATH has no compiler", "install-links", links)
	for _, name := range []string{"cc1/gcc", "cc1/gcc-12", "cc1/x86_64-linux-gnu-g++-12", "cc2/clang", "cc2/clang++-14", "cc2/c++", "cc2/gcc",
		"cc1/gcc-ar", "cc1/gcc-12-ar", "cc2/clang-format", "cc2/clang-cl", "cc1/afl-gcc", "cc1/gcov", "cc1/x86_64-linux-gnu-gcc-nm"} {
		s.file(name, "")
	}
	if err := os.MkdirAll(s.dir+"/cc1/g++", 0o755); err != nil { // a directory is no compiler
		t.Fatal(err)
	}
	if err := os.Mkdir(s.dir+"/masquerade", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(rdistcc, s.dir+"/masquerade/cc"); err != nil { // ours is none either
		t.Fatal(err)
	}
	made := "c++ clang clang++-14 gcc gcc-12 x86_64-linux-gnu-g++-12"
	s.want(0, "made in "+links+": "+made+"\nnow put it first on PATH: export PATH=\""+links+"\":$PATH\n", "", "install-links", links)
	out, err := exec.Command(links + "/gcc-12").Output()
	if err != nil || string(out) != "rdistcc as gcc-12\n" {
		t.Errorf("link runs %q, %v", out, err)
	}
	s.env["PATH"] = links + ":" + s.env["PATH"]
	if out := s.want(0, "there already: "+made+"\n", "", "install-links", links); strings.Contains(out, "made") || strings.Contains(out, "PATH") {
		t.Errorf("second run says\n%s", out)
	}

	// A compiler goes, and so does its link.
	if err := errors.Join(os.Remove(s.dir+"/cc2/clang++-14"), os.Symlink("/usr/bin/rdistcc", links+"/rdistcc")); err != nil {
		t.Fatal(err)
	}
	made = strings.Replace(made, " clang++-14", "", 1)
	s.want(0, "removed, as PATH has no such compiler: clang++-14\nthere already: "+made+"\n", "", "install-links", links)
	if _, err := os.Lstat(links + "/clang++-14"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the link of a compiler that is gone: %v", err)
	}
	if _, err := os.Lstat(links + "/rdistcc"); err != nil {
		t.Error(err) // nobody takes that for a compiler
	}

	// Someone else's file stays; an old link of ours is moved.
	if err := os.Remove(links + "/gcc"); err != nil {
		t.Fatal(err)
	}
	s.file("links/gcc", "precious")
	os.Remove(links + "/clang")
	os.Symlink("/usr/bin/ccache", links+"/clang")
	os.Remove(links + "/c++")
	os.Symlink("/old/bin/rdistcc", links+"/c++")
	s.want(100, "made in "+links+": c++\n", "left alone in "+links+", as they are not links to rdistcc: clang gcc\n", "install-links", links)
	if text, err := os.ReadFile(links + "/gcc"); err != nil || string(text) != "precious" {
		t.Errorf("the foreign file is %q, %v", text, err)
	}
	if to, err := os.Readlink(links + "/c++"); err != nil || to != rdistcc {
		t.Errorf("c++ leads to %q, %v", to, err)
	}
	s.want(101, "", "rdistcc: install-links needs a DIR, as in: rdistcc install-links ~", "install-links")
}

func TestWrongWords(t *testing.T) {
	s := newShell(t)
	s.want(101, "", `unknown command "nonsense"`, "nonsense")
	s.want(101, "", `no subcommand ""; rdistcc help names them`)
	s.want(101, "", "unknown flag: --jsn", "status", "--jsn")
	s.want(101, "", `unknown command "x"`, "status", "x")
	s.want(101, "", "unknown command", "-j", "4")
	s.want(101, "", `no completion for "tcsh"`, "completion", "tcsh")
}

// Each subcommand explains itself, with an example, under the name that users type.
func TestHelp(t *testing.T) {
	s := newShell(t)
	all := s.want(0, "", "", "--help")
	for _, sub := range []string{"status", "top", "stats", "why", "hosts", "drain", "undrain", "logs", "config", "stop", "install-links", "certs", "migrate", "dtlto", "completion"} {
		if !strings.Contains(all, sub) {
			t.Errorf("help does not name %s", sub)
		}
		out := s.want(0, "Examples:\n", "", sub, "--help")
		if !strings.Contains(out, "rdistcc "+sub) || strings.Contains(out, "ctl") {
			t.Errorf("help of %s is\n%s", sub, out)
		}
	}
}

func TestBashCompletion(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash")
	}
	s := newShell(t)
	script := s.file("completion", s.want(0, "", "", "completion", "bash"))
	complete := func(words ...string) string {
		t.Helper()
		cmd := exec.Command(bash, "--norc", "-c",
			`source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _rdistcc; echo "${COMPREPLY[@]}"`, "bash", script)
		cmd.Args = append(cmd.Args, words...)
		cmd.Dir = s.dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("completion of %q: %v: %s", words, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	for want, words := range map[string][]string{
		"install-links": {"rdistcc", "install-l"},
		"--show-hosts":  {"rdistcc", "--show"},
		"--json":        {"rdistcc", "status", "--j"},
		"--origins":     {"rdistcc", "config", "--o"},
		"bash":          {"rdistcc", "completion", "b"},
		"completion":    {"rdistcc", "gcc", "compl"}, // the file that stands there
		"state":         {"rdistcc", "install-links", "sta"},
		"undrain":       {"rdistcc", "undr"},
	} {
		if got := complete(words...); got != want {
			t.Errorf("completion of %q is %q, want %q", words, got, want)
		}
	}
	for _, shell := range []string{"zsh", "fish"} {
		out := s.want(0, "rdistcc", "", "completion", shell)
		for _, word := range []string{"status", "install-links", "--origins"} {
			if !strings.Contains(out, word) {
				t.Errorf("%s completion lacks %s", shell, word)
			}
		}
	}
}
