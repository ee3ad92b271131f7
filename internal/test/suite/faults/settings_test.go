package faults

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// program runs one of the daemons, which is to refuse its settings.
func (s *site) program(env []string, name string, args ...string) outcome {
	s.t.Helper()
	cmd := s.command(env, append([]string{filepath.Join(filepath.Dir(s.Wrapper), name)}, args...)...)
	var out, err strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &err
	if e := cmd.Start(); e != nil {
		s.t.Fatal(e)
	}
	j := &running{s: s, cmd: cmd, report: os.DevNull}
	o := j.wait()
	o.stdout, o.stderr = out.String(), err.String()
	return o
}

// TestWrongSettings: settings that cannot be used end a daemon with the documented
// status and one line that names what is wrong.
func TestWrongSettings(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().String()
	file := func(name, text string, mode os.FileMode) string {
		path := s.file(name, text)
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	configs := map[string]string{ // file: what the line says of it
		filepath.Join(s.work, "missing.yaml"):   "missing.yaml: no such file or directory",
		s.work:                                  "work: is a directory",
		file("open.yaml", "hosts: []\n", 0o666): `open.yaml: can be written by anyone; use chmod o-w .*`,
		file("key.yaml", "log:\n  level: info\n  colour: red\n", 0o600):     `key.yaml:3: .*colour.*`,
		file("value.yaml", "limits:\n  silence: soon\n", 0o600):             `value.yaml:2: .*soon.*`,
		file("noyaml.yaml", "log: {level: info\nhosts: ]\n", 0o600):         `noyaml.yaml:\d+: .*`,
		file("binary.yaml", "\x00\x01\x02\xff\xfe", 0o600):                  `binary.yaml: .*`,
		file("list.yaml", "- a\n- b\n", 0o600):                              `list.yaml:1: .*`,
		file("huge.yaml", strings.Repeat("# nothing\n", 200_000), 0o600):    `huge.yaml: longer than \d+ bytes`,
		file("two.yaml", "hosts: []\n---\nhosts: []\n", 0o600):              `two.yaml: holds more than one yaml document`,
		file("deep.yaml", "a: "+strings.Repeat("[", 200_000), 0o600):        `deep.yaml: .*`,
		file("hosts.yaml", "log:\n  level: info\nhosts: [\"@a\"]\n", 0o600): `hosts.yaml:3: .*@a.*`,
	}
	if os.Geteuid() != 0 {
		configs[file("secret.yaml", "hosts: []\n", 0)] = "secret.yaml: permission denied"
	}
	type try struct {
		env    []string
		args   []string
		status int
		says   string
	}
	both := []try{
		{nil, []string{"--no-such-option"}, 101, "unknown flag: --no-such-option"},
		{nil, []string{"word"}, 101, ".*word.*"},
		{nil, []string{"--log-level", "loud"}, 101, ".*loud.*"},
		{nil, []string{"--http", "nonsense"}, 101, ".*nonsense.*"},
		{nil, []string{"--http", port}, 102, ".*" + regexp.QuoteMeta(port) + ".*in use.*"},
		{nil, []string{"--log-file", s.work}, 100, ".*" + s.work + ".*directory.*"},
	}
	for path, says := range configs {
		both = append(both,
			try{nil, []string{"--config", path}, 101, ".*" + says},
			try{[]string{"RDISTCC_CONFIG=" + path}, nil, 101, ".*" + says})
	}
	const anyPort = "127.0.0.1:0"
	for name, own := range map[string][]try{
		"rdistccd": {
			{nil, []string{"--listen", port}, 102, ".*" + regexp.QuoteMeta(port) + ".*in use.*--listen.*"},
			{nil, []string{"--listen", "nonsense"}, 101, ".*nonsense.*"},
			{nil, []string{"--listen", "0.0.0.0:0", "--psk-file", "/nowhere/key"}, 101, ".*/nowhere/key.*"}, // without: TestExposedIsRefused
			{nil, []string{"--jobs", "-1"}, 101, ".*-1.*"},
			{nil, []string{"--jobs", "many"}, 101, ".*many.*"},
			{nil, []string{"--allow", "everybody"}, 101, ".*everybody.*"},
			{nil, []string{"--pid-file", filepath.Join(s.work, "nowhere", "pid")}, 100, ".*nowhere.*"},
		},
		"rdistcc-cm": {
			{nil, []string{"--hosts", "@a"}, 101, ".*@a.*"},
			{nil, []string{"--idle-exit", "soon"}, 101, ".*soon.*"},
			{nil, []string{"--socket", filepath.Join(s.work, "key.yaml", "cm.sock")}, 100, ".*key.yaml.*"},
			{nil, []string{"--socket", "/proc/cm.sock"}, 100, ".*/proc.*"},
		},
	} {
		for _, q := range append(own, both...) {
			args := q.args
			if name == "rdistccd" && !strings.Contains(strings.Join(args, " "), "--listen") {
				args = append([]string{"--listen", anyPort}, args...)
			}
			if !strings.Contains(strings.Join(args, " "), "--http") {
				args = append([]string{"--http", anyPort}, args...)
			}
			o := s.program(q.env, name, args...)
			if o.status != q.status || o.stdout != "" {
				t.Errorf("%s %q %q: %+v, want exit status %d", name, q.env, q.args, o, q.status)
			}
			// Warnings that came before are for the log.
			lines := strings.SplitAfter(strings.TrimSuffix(o.stderr, "\n"), "\n")
			last := lines[len(lines)-1] + "\n"
			s.oneLine(last, name+": "+q.says)
			for _, l := range lines[:len(lines)-1] {
				if !strings.HasPrefix(l, "time=") {
					t.Errorf("%s %q: says %q", name, q.args, o.stderr)
				}
			}
		}
	}
}

// TestWrongSettingsOfAManagerOnDemand: a manager that a wrapper cannot start costs a
// line, and is not tried for every file.
func TestWrongSettingsOfAManagerOnDemand(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	env := []string{"RDISTCC_HOSTS=127.0.0.1:1", "RDISTCC_CONFIG=" + s.file("wrong.yaml", "colour: red\n")}
	s.file("hello.c", "int hello;\n")
	for range 2 {
		o := s.run(env, "gcc", "-c", "hello.c")
		if o.status != 0 || o.report != "local:manager" {
			t.Errorf("%+v, want it compiled here", o)
		}
		s.oneLine(o.stderr, "rdistcc: .*wrong\\.yaml:1: .*colour.*; compiled here")
		s.sameObject("hello.o", "gcc", "-c", "hello.c")
	}
	if o := s.run(append(env, "RDISTCC_FALLBACK=0"), "gcc", "-c", "hello.c"); o.status != 101 {
		t.Errorf("%+v, want exit status 101", o)
	}
	log, err := os.ReadFile(filepath.Join(s.Dir, "cm.log"))
	if err != nil || strings.Count(string(log), "wrong.yaml:1: ") != 1 {
		t.Errorf("the manager's log: %q, %v", log, err)
	}
}

// TestWrongHostLists: the build goes on with a line that names the entry.
func TestWrongHostLists(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.manager("", "")
	s.file("hello.c", "int hello;\n")
	s.atRest()
	for list, names := range map[string]string{
		"@build7":                          "@build7",
		"user@build7":                      "user@build7",
		"good:7632 bad:port":               "bad:port",
		"host:99999":                       "host:99999",
		"host/many":                        "host/many",
		"host/0x7":                         "host/0x7",
		"[::1":                             "\\[::1",
		"--no-such-option":                 "--no-such-option",
		"host,no-such-option":              "no-such-option",
		"\x1b[31mred":                      "",
		strings.Repeat("x", 5000):          "",
		"host:1\xff\xfe":                   "",
		"--localslots=-3":                  "--localslots",
		"127.0.0.1:7632/1/2":               "127.0.0.1:7632/1/2",
		"host:" + strings.Repeat("9", 400): "",
	} {
		env := []string{"RDISTCC_HOSTS=" + list}
		o := s.run(env, "gcc", "-c", "hello.c")
		if o.status != 0 || o.report != "local:host-list" {
			t.Errorf("%.40q: %+v, want it compiled here", list, o)
		}
		s.oneLine(o.stderr, "rdistcc: [ -~]{1,400}"+names+"[ -~]*; compiled here")
		s.sameObject("hello.o", "gcc", "-c", "hello.c")
		if o := s.run(append(env, "RDISTCC_FALLBACK=0"), "gcc", "-c", "hello.c"); o.status != 106 {
			t.Errorf("%.40q, not to be compiled here: %+v, want exit status 106", list, o)
		}
	}
	s.clean()
}

// TestSocketPlaces: a state directory that is a link, a file or too long a name is
// refused with a line, a long one works, and another user's manager is not asked.
func TestSocketPlaces(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.daemon("d1", "", "--jobs", "1")
	s.file("hello.c", "int hello;\n")
	link := filepath.Join(s.root, "link")
	if err := os.Symlink(s.Dir, link); err != nil {
		t.Fatal(err)
	}
	for dir, says := range map[string]string{
		link:                                    "not a directory",
		s.file("file", ""):                      "not a directory",
		s.root + strings.Repeat("/long", 2000):  "file name too long",
		s.root + "/" + strings.Repeat("x", 300): "file name too long",
	} {
		o := s.run([]string{"RDISTCC_DIR=" + dir, "RDISTCC_HOSTS=" + d.Addr}, "gcc", "-c", "hello.c")
		if o.status != 0 || o.report != "local:manager" {
			t.Errorf("%.60s: %+v, want it compiled here", dir, o)
		}
		s.oneLine(o.stderr, "rdistcc: .*"+says+".*; compiled here")
	}
	long := s.root + strings.Repeat("/a-directory-of-some-length", 6)
	env := []string{"RDISTCC_DIR=" + long, "RDISTCC_HOSTS=" + d.Addr}
	if o := s.run(env, "gcc", "-c", "hello.c"); o.report != "remote:"+d.Addr || o.stderr != "" {
		t.Errorf("a long name: %+v", o)
	}
	if out, err := s.command(env, s.Wrapper, "stop").CombinedOutput(); err != nil {
		t.Errorf("stop: %v: %s", err, out)
	}

	if os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	path := filepath.Join(s.root, "stranger.sock")
	stranger := listenAs(t, path, 65534)
	defer stranger.Close()
	o := s.run([]string{"RDISTCC_CM_SOCKET=" + path}, "gcc", "-c", "hello.c")
	if o.status != 0 || o.report != "local:manager" {
		t.Errorf("another user's manager: %+v, want it compiled here", o)
	}
	s.oneLine(o.stderr, "rdistcc: "+path+": it belongs to another user; compiled here")
	c, err := stranger.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Error("another user's manager was told something")
	}
}

// listenAs listens on a Unix socket as another user, as the kernel tells the peer.
func listenAs(t *testing.T, path string, uid int) *net.UnixListener {
	t.Helper()
	type result struct {
		fd  int
		err error
	}
	got := make(chan result)
	go func() {
		// The thread ends with the goroutine: nothing else runs on it as that user.
		runtime.LockOSThread()
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
		}
		if err == nil {
			if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
				err = errno
			}
		}
		if err == nil {
			err = unix.Listen(fd, 8)
		}
		got <- result{fd, err}
	}()
	r := <-got
	if r.err != nil {
		t.Fatal(r.err)
	}
	f := os.NewFile(uintptr(r.fd), path)
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	return l.(*net.UnixListener)
}
