// Package distcc proves that clients of distcc can build with a rdistccd: it runs Debian's distcc, and its distccd beside ours.
package distcc

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// patience bounds every wait; it is reached only when something is wrong.
const patience = 3 * time.Minute

// host is a rdistccd that serves clients of distcc, and what they need.
type host struct {
	t    *testing.T
	f    *farm.Farm
	d    farm.Process
	addr string // for clients of distcc
	dir  string // of the project
	ctx  context.Context
}

// start starts a daemon with the compilers named gcc and g++ here.
func start(t *testing.T, more ...string) *host {
	t.Helper()
	part.Skip(t)
	for _, program := range []string{"distcc", "gcc", "g++", "make"} {
		if _, err := exec.LookPath(program); err != nil {
			need.Skipf(t, need.Tools, "%v", err)
		}
	}
	root := farmtest.Dir(t)
	h := &host{t: t, f: farmtest.New(t, root), dir: filepath.Join(root, "src")}
	ctx, cancel := context.WithTimeout(t.Context(), patience) // the programs are built now
	t.Cleanup(cancel)
	h.ctx = ctx
	tools := filepath.Join(root, "tools")
	for _, dir := range []string{h.dir, tools, filepath.Join(root, "distcc")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// distcc calls them by their long names, where there are such.
	for _, name := range []string{"gcc", "g++", "x86_64-linux-gnu-gcc", "x86_64-linux-gnu-g++", "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++", "cc", "c++"} {
		if path, err := exec.LookPath(name); err == nil {
			if err := os.Symlink(path, filepath.Join(tools, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	config := filepath.Join(root, "config.yaml")
	if err := os.WriteFile(config, []byte("toolchains: {dirs: ["+tools+"]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ports, err := farm.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	h.addr = ports[0]
	h.d, err = h.f.StartDaemon(ctx, "rdistccd", append([]string{"--config", config, "--jobs", "2", "--distcc", h.addr}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// write writes files of the project.
func (h *host) write(files map[string]string) {
	h.t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o666); err != nil {
			h.t.Fatal(err)
		}
	}
}

// env is the environment of a client of distcc's whose only host is hosts, and which shows what that one says.
func (h *host) env(hosts string) []string {
	var env []string
	for _, e := range h.f.Env() {
		if !strings.HasPrefix(e, "LC_") && !strings.HasPrefix(e, "LANG") {
			env = append(env, e)
		}
	}
	return append(env, "DISTCC_HOSTS="+hosts, "DISTCC_DIR="+filepath.Join(filepath.Dir(h.dir), "distcc"), "DISTCC_FALLBACK=0", "DISTCC_SKIP_LOCAL_RETRY=1",
		"DISTCC_BACKOFF_PERIOD=0", "TMPDIR="+filepath.Dir(h.dir), "LC_ALL=C")
}

// run runs a command in the project, and returns what it says and its exit status.
func (h *host) run(env []string, name string, args ...string) (said string, status int) {
	h.t.Helper()
	cmd := exec.CommandContext(h.ctx, name, args...)
	cmd.Dir, cmd.Env = h.dir, env
	out, err := cmd.CombinedOutput()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		h.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// ok runs a command that has to succeed.
func (h *host) ok(env []string, name string, args ...string) string {
	h.t.Helper()
	said, status := h.run(env, name, args...)
	if status != 0 {
		h.t.Fatalf("%s %s: status %d: %s", name, strings.Join(args, " "), status, said)
	}
	return said
}

// read returns a file of the project and removes it.
func (h *host) read(name string) []byte {
	h.t.Helper()
	path := filepath.Join(h.dir, name)
	b, err := os.ReadFile(path)
	if err != nil {
		h.t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		h.t.Fatal(err)
	}
	return b
}

// requests returns how many requests had a result.
func (h *host) requests(result string) int {
	h.t.Helper()
	return h.metric(`rdistccd_distcc_requests_total{result="` + result + `"}`)
}

// counted wants that n requests had a result. A client may have its answer a moment before that is counted.
func (h *host) counted(result string, n int) {
	h.t.Helper()
	h.until("the count of requests that "+result, func() bool { return h.requests(result) >= n })
	if now := h.requests(result); now != n {
		h.t.Errorf("%d requests %s, want %d", now, result, n)
	}
}

func (h *host) metric(name string) int {
	h.t.Helper()
	n, err := h.d.Metric(h.ctx, name)
	if err != nil {
		h.t.Fatal(err)
	}
	return int(n)
}

// until waits for something that is about to happen.
func (h *host) until(what string, f func() bool) {
	h.t.Helper()
	for !f() {
		select {
		case <-h.ctx.Done():
			h.t.Fatalf("%s: not in time", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// logged waits for a line of the daemon's log that has all of these words.
func (h *host) logged(words ...string) {
	h.t.Helper()
	h.until("a log line with "+strings.Join(words, " and "), func() bool {
		b, err := os.ReadFile(h.d.Log)
		if err != nil {
			h.t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			n := 0
			for _, w := range words {
				if strings.Contains(line, w) {
					n++
				}
			}
			if n == len(words) {
				return true
			}
		}
		return false
	})
}

// distccd starts Debian's daemon, and returns its address.
func (h *host) distccd() string {
	h.t.Helper()
	path, err := exec.LookPath("distccd")
	if err != nil {
		need.Skipf(h.t, need.Tools, "%v", err)
	}
	ports, err := farm.FreePorts(1)
	if err != nil {
		h.t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(ports[0])
	log, err := os.Create(filepath.Join(h.f.Dir, "distccd.log"))
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.Command(path, "--no-detach", "--daemon", "--port", port, "--listen", "127.0.0.1", "--allow", "127.0.0.1", "--enable-tcp-insecure", "--log-stderr", "--jobs", "2")
	// As root it becomes another user.
	cmd.Env, cmd.Stderr = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=/tmp"}, log
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	_ = log.Close()
	h.t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	h.until("distccd", func() bool {
		c, err := net.Dial("tcp", ports[0])
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	return ports[0]
}

// project is a small one in two languages, with a header, and with a warning.
var project = map[string]string{
	"main.c":  "#include <stdio.h>\n#include \"twice.h\"\n#define SQUARE(x) ((x) * (x))\nint main(int argc, char **argv) {\n\tint unused;\n\tprintf(\"%d\\n\", SQUARE(twice(argc)));\n\treturn 0;\n}\n",
	"twice.c": "#include \"twice.h\"\n\nint twice(int x) { return TWO * x; }\n",
	"twice.h": "#define TWO 2\nint twice(int x);\n",
	"map.cc":  "#include <map>\n#include <string>\n\nint count(const std::string &s) {\n\tstd::map<char, int> m;\n\tfor (char c : s)\n\t\tm[c]++;\n\treturn m.size();\n}\n",
	"empty.c": "",
	"Makefile": "CFLAGS = -g -O2 -Wall\nCXXFLAGS = -g -O1\nOBJECTS = main.o twice.o map.o empty.o\nall: $(OBJECTS)\n\t$(LINK) -o prog main.o twice.o\n" +
		"twice.o main.o: twice.h\nclean:\n\trm -f $(OBJECTS) prog\n",
}

var objects = []string{"main.o", "twice.o", "map.o", "empty.o"}

// build builds the project by a compiler prefix, and returns the objects.
func (h *host) build(env []string, prefix string) map[string][]byte {
	h.t.Helper()
	h.ok(env, "make", "-j4", "CC="+prefix+" gcc", "CXX="+prefix+" g++", "LINK=gcc")
	if said := h.ok(env, "./prog"); said != "4\n" {
		h.t.Errorf("the program says %q", said)
	}
	made := map[string][]byte{}
	for _, name := range objects {
		made[name] = h.read(name)
	}
	h.ok(env, "make", "clean")
	return made
}

func (h *host) compare(what string, got, want map[string][]byte) {
	h.t.Helper()
	for _, name := range objects {
		if !bytes.Equal(got[name], want[name]) {
			h.t.Errorf("%s: %s differs", what, name)
		}
	}
}
