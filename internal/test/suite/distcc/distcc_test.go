package distcc

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/pkg/worker/distcc/lzo"
)

// TestBuild: a project is built as distccd would build it, every object byte for byte, in each form of the protocol.
func TestBuild(t *testing.T) {
	h := start(t)
	h.write(project)
	other := h.distccd()
	for i, form := range []string{"", ",lzo"} {
		want := h.build(h.env(other+form), "distcc")
		got := h.build(h.env(h.addr+form), "distcc")
		h.compare("form "+form, got, want)
		h.counted("ran", (i+1)*len(objects))
	}
	h.logged("msg=job", "via=distcc", "source=main.c", "exit=0")
	h.logged("PROVE NOTHING", h.addr)
}

// TestMessages: status and messages are those that distccd passes on.
func TestMessages(t *testing.T) {
	h := start(t)
	h.write(project)
	h.write(map[string]string{"bad.c": "int f(void) { return x; }\n", "assembly.c": "void f(void) { __asm__(\"no such instruction\"); }\n"})
	other := h.distccd()
	// distcc's own lines name the host, and its process.
	own := regexp.MustCompile(`(?m)^distcc\[.*\n`)
	for _, args := range [][]string{
		{"gcc", "-Wall", "-c", "main.c"}, {"gcc", "-c", "bad.c"}, {"gcc", "-S", "twice.c"}, {"gcc", "-O2", "-c", "assembly.c"}, {"gcc", "-Werror=unused-variable", "-c", "main.c"},
	} {
		want, wanted := h.run(h.env(other), "distcc", args...)
		got, status := h.run(h.env(h.addr), "distcc", args...)
		want, got = own.ReplaceAllString(want, ""), own.ReplaceAllString(got, "")
		// The assembler says which temporary file it reads.
		if args[len(args)-1] == "assembly.c" {
			want, got = want[strings.Index(want, "Error"):], got[strings.Index(got, "Error"):]
		}
		if got != want || status != wanted {
			t.Errorf("%q: status %d, %q; want %d, %q", args, status, got, wanted, want)
		}
	}
}

// TestRefused: what the policy does not allow is compiled by the client, and the log says why.
func TestRefused(t *testing.T) {
	h := start(t)
	h.write(project)
	env := append(h.env(h.addr), "DISTCC_FALLBACK=1", "DISTCC_BACKOFF_PERIOD=60")
	said := h.ok(env, "distcc", "gcc", "-fstack-usage", "-c", "twice.c")
	if !strings.Contains(said, "failed to distribute") {
		t.Errorf("the client says %q", said)
	}
	h.read("twice.su")
	h.logged("no answer", "via=distcc", "twice.su")
	h.until("the count of the refusal", func() bool { return h.requests("refused") > 0 })
	// distcc itself would not send most of these.
	before := h.requests("refused")
	lines := []struct {
		args []string
		why  string
	}{
		{[]string{"/opt/gcc", "-c", "a.c"}, "in none of toolchains.dirs"},
		{[]string{"gcc-none", "-c", "a.c"}, "gcc-none"},
		{[]string{"../gcc", "-c", "a.c"}, "../gcc"},
		{[]string{"sh", "-c", "id"}, "sh"},
		{[]string{"gcc", "-wrapper", "sh,-c,id", "-c", "a.c"}, "tool-path"},
		{[]string{"gcc", "-fplugin=./a.so", "-c", "a.c"}, ""},
		{[]string{"gcc", "-B/tmp", "-specs=x", "-c", "a.c"}, ""},
		{[]string{"gcc", "@x", "-c", "a.c"}, ""},
		{[]string{"gcc", "-save-temps", "-c", "a.c"}, "save-temps"},
		{[]string{"gcc", "-march=native", "-c", "a.c"}, "native"},
		{[]string{"gcc", "a.c"}, ""},
		{[]string{"gcc", "-O2\x01", "-c", "a.c"}, ""},
		{[]string{"gcc", "-c", "a.c", "b.c"}, ""},
		{[]string{"gcc", "-c", "-Wa,-a=/etc/x", "a.c"}, ""},
		{[]string{"gcc"}, ""},
	}
	for _, l := range lines {
		if answer := h.ask(request(1, l.args, "int x;\n")); answer != "" {
			t.Errorf("%q is answered with %q", l.args, answer)
		}
		h.logged("no answer", l.why)
	}
	h.counted("refused", before+len(lines))
}

// TestConfined: a hostile source is confined as any other.
func TestConfined(t *testing.T) {
	h := start(t)
	if h.metric("rdistccd_sandbox_level") < 2 {
		need.Skipf(t, need.Sandbox, "compiles are not confined here")
	}
	secret := filepath.Join(filepath.Dir(h.dir), "secret")
	if err := os.WriteFile(secret, []byte("the secret of the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	h.write(map[string]string{"spy.c": fmt.Sprintf("__asm__(\".incbin \\\"%s\\\"\");\n", secret)})
	said, status := h.run(h.env(h.addr), "distcc", "gcc", "-c", "spy.c")
	if status == 0 || !strings.Contains(said, "file not found") {
		t.Errorf("status %d: %s", status, said)
	}
	source := fmt.Sprintf("# 1 \"%s\"\n__asm__(\".incbin \\\"%s\\\"\");\n#include \"%s\"\n", secret, secret, secret)
	if answer := h.ask(request(1, []string{"gcc", "-c", "spy.c"}, source)); strings.Contains(answer, "the secret") || strings.HasPrefix(answer, "DONE00000001STAT00000000") {
		t.Errorf("%q", answer)
	}
}

// TestGone: a compile ends with the client that waits for it.
func TestGone(t *testing.T) {
	h := start(t)
	h.write(map[string]string{"long.cc": "constexpr long f() { long n = 0; for (long i = 0; i < 1000000000000; i++) n ^= i; return n; }\nconstexpr long n = f();\n"})
	cmd := exec.Command("distcc", "g++", "-std=c++14", "-fconstexpr-ops-limit=1000000000000", "-fconstexpr-loop-limit=1000000000", "-c", "long.cc")
	cmd.Dir, cmd.Env = h.dir, h.env(h.addr)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h.until("the compile", func() bool { return h.metric("rdistccd_jobs_running") == 1 })
	page, err := h.d.Get(h.ctx, "/status.json")
	if err == nil && !bytes.Contains(page, []byte(`"distcc"`)) {
		t.Errorf("the status does not say how the job came: %s", page)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	h.until("the end of the compile", func() bool { return h.metric("rdistccd_jobs_running") == 0 })
	h.until("the count", func() bool { return h.requests("gone") == 1 })
}

// TestMixed: one daemon serves a build by rdistcc and another one by distcc at the same time.
func TestMixed(t *testing.T) {
	h := start(t)
	h.write(project)
	if err := h.f.StartManager(h.ctx, "--hosts", h.d.Addr); err != nil {
		t.Fatal(err)
	}
	second := *h
	second.dir = filepath.Join(filepath.Dir(h.dir), "second")
	if err := os.Mkdir(second.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	second.write(project)
	env := append(h.f.Env(), "RDISTCC_MODE=remote", "RDISTCC_FALLBACK=0")
	var wait sync.WaitGroup
	const rounds = 3
	wait.Go(func() {
		for range rounds {
			second.ok(env, "make", "-j4", "CC="+h.f.Wrapper+" gcc", "CXX="+h.f.Wrapper+" g++", "LINK=gcc")
			second.ok(env, "make", "clean")
		}
	})
	for range rounds {
		h.build(h.env(h.addr), "distcc")
	}
	wait.Wait()
	h.counted("ran", rounds*len(objects))
	if n := h.metric(`rdistccd_jobs_total{language`); n < 2*rounds*len(objects) {
		t.Errorf("%d jobs, of %d", n, 2*rounds*len(objects))
	}
}

// TestTrouble: what is not a request does no harm, and who asks for nothing gets nothing.
func TestTrouble(t *testing.T) {
	h := start(t)
	h.write(project)
	for _, s := range []string{
		"", "GET / HTTP/1.1\r\n\r\n", "DIST00000004", "DIST00000001ARGCffffffff", "DIST00000001ARGC00000001ARGVffffffff", "DIST00000001ARGC00000001ARGV00000003gccDOTIffffffff",
		"DIST00000002ARGC00000001ARGV00000003gccDOTI00000003abc", strings.Repeat("\x00", 4096), "DIST00000001ARGC00000002ARGV00000003gcc", "DIST00000003CDIR00000001/ARGC00000001ARGV00000003gccNFILffffffff",
	} {
		if answer := h.ask([]byte(s)); answer != "" {
			t.Errorf("%q is answered with %q", s, answer)
		}
	}
	// Many that only connect take all the places of one address, and no more.
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	for range 120 {
		c, err := net.Dial("tcp", h.addr)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	h.until("connections are closed", func() bool { return h.requests("busy") >= 20 })
	for _, c := range open {
		_ = c.Close()
	}
	h.until("a request after that", func() bool {
		return strings.HasPrefix(h.ask(request(1, []string{"gcc", "-c", "a.c"}, "int x;\n")), "DONE00000001STAT00000000")
	})
	// Who shuts one direction has gone.
	if answer := h.ask(request(1, []string{"gcc", "-c", "a.c"}, "int x;\n"), "shut"); strings.Contains(answer, "STAT") {
		t.Logf("answered before the end was noticed: %q", answer)
	}
	h.build(h.env(h.addr), "distcc")
}

// request encodes a request of version 1 or 2.
func request(version int, args []string, source string) []byte {
	b := fmt.Appendf(nil, "DIST%08xARGC%08x", version, len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "ARGV%08x%s", len(a), a)
	}
	if version == 2 {
		source = string(lzo.Append(nil, []byte(source)))
	}
	return fmt.Appendf(b, "DOTI%08x%s", len(source), source)
}

// ask sends bytes and returns what comes back until the end.
func (h *host) ask(b []byte, how ...string) string {
	h.t.Helper()
	c, err := net.Dial("tcp", h.addr)
	if err != nil {
		h.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	_, _ = c.Write(b)
	if len(how) > 0 || !bytes.Contains(b, []byte("DOTI")) && !bytes.Contains(b, []byte("NFIL")) {
		_ = c.(*net.TCPConn).CloseWrite()
	}
	answer, _ := io.ReadAll(c) // a reset is an end too
	return string(answer)
}
