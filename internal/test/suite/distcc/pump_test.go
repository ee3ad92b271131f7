package distcc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/pkg/worker/distcc/lzo"
)

// startPump is start on a machine that shows private trees.
func startPump(t *testing.T) *host {
	t.Helper()
	h := start(t)
	if h.metric("rdistccd_tree ") != 1 {
		need.Skipf(t, need.Sandbox, "no private trees here")
	}
	return h
}

// TestPump: in pump mode, objects, dependencies and messages are those of a compile on the client, byte for byte. The include
// server is ours, as that of Debian 12 does not run with its Python; it is distcc that sends the files.
func TestPump(t *testing.T) {
	h := startPump(t)
	h.write(project)
	env := append(h.env(h.addr+",cpp,lzo"), "INCLUDE_SERVER_PORT="+h.includeServer())
	for i, args := range [][]string{
		{"gcc", "-g", "-O2", "-Wall", "-MMD", "-c", "main.c", "-o", "main.o"}, {"gcc", "-g3", "-I.", "-c", "twice.c", "-o", "twice.o"}, {"g++", "-g", "-Wall", "-c", "map.cc", "-o", "map.o"},
	} {
		out := args[len(args)-1]
		said := h.ok(env, args[0], args[1:]...)
		want := h.read(out)
		var rules []byte
		if i == 0 {
			rules = h.read("main.d")
		}
		if got := h.ok(env, "distcc", args...); got != said {
			t.Errorf("%q: %q, want %q", args, got, said)
		}
		if !bytes.Equal(h.read(out), want) {
			t.Errorf("%q: another object", args)
		}
		if i == 0 {
			if got := h.read("main.d"); !bytes.Equal(got, rules) {
				t.Errorf("rules %q, want %q", got, rules)
			}
		}
		h.counted("ran", i+1)
	}
	h.logged("msg=job", "via=distcc", "source=main.c ", "files=")
	h.write(map[string]string{"main.c": "#include \"twice.h\"\nint f(void) { return x; }\n"})
	if said, status := h.run(env, "distcc", "gcc", "-c", "main.c"); status != 1 || !strings.Contains(said, "main.c:2:") {
		t.Errorf("status %d: %s", status, said)
	}
}

// TestPumpIsConfined: names and links lead nowhere but into the job's own tree.
func TestPumpIsConfined(t *testing.T) {
	h := startPump(t)
	secret := filepath.Join(filepath.Dir(h.dir), "secret")
	if err := os.WriteFile(secret, []byte("int secret;\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	ok := func(answer string) bool { return strings.HasPrefix(answer, "DONE00000003STAT00000000") }
	gcc := []string{"gcc", "-c", "a.c", "-o", "a.o"}
	good := files("/src", gcc, "/src/a.c", "#include <stdio.h>\n#include \"b.h\"\n", "/src/b.h", "int b;\n", "/usr/include/stdio.h", "#error not this one\n")
	if answer := h.ask(good); !ok(answer) {
		t.Fatalf("a good one: %.200q", answer)
	}
	elsewhere := files("/src", []string{"gcc", "-c", "a.c", "-o", "/usr/bin/as"}, "/src/a.c", "int x;\n")
	if answer := h.ask(elsewhere); ok(answer) && os.Geteuid() == 0 { // an ordinary user's compile may, in a tree that is replaced then
		t.Errorf("an output elsewhere: %.200q", answer)
	}
	for what, b := range map[string][]byte{
		"an absolute include":  files("/src", gcc, "/src/a.c", fmt.Sprintf("#include %q\n", secret)),
		"incbin":               files("/src", gcc, "/src/a.c", fmt.Sprintf("__asm__(\".incbin \\\"%s\\\"\");\n", secret)),
		"a link":               files("/src", gcc, "/src/a.c", "->"+secret),
		"proc":                 files("/src", gcc, "/src/a.c", "#include \"/proc/1/environ\"\n"),
		"a name without root":  files("/src", gcc, "a.c", "int x;\n"),
		"a name of a program":  files("/src", gcc, "/src/a.c", "int x;\n", "/usr/bin/as", "x"),
		"a way out":            files("/src", gcc, "/src/a.c", "int x;\n", "/src/../../../../../usr/bin/as", "x"),
		"a relative directory": files("src", gcc, "/src/a.c", "int x;\n"),
		"specs":                files("/src", append(gcc, "-specs=x"), "/src/a.c", "int x;\n"),
		"a plugin":             files("/src", append(gcc, "-fplugin=/src/x.so"), "/src/a.c", "int x;\n", "/src/x.so", "x"),
		"nothing":              files("/src", gcc),
	} {
		if answer := h.ask(b); ok(answer) {
			t.Errorf("%s: %.200q", what, answer)
		}
	}
	for range 4 { // each runner has its turn
		if answer := h.ask(good); !ok(answer) {
			t.Errorf("after that: %.200q", answer)
		}
	}
}

// files encodes a request of version 3; a content that begins with "->" is a link.
func files(cwd string, args []string, names ...string) []byte {
	b := fmt.Appendf(nil, "DIST00000003CDIR%08x%sARGC%08x", len(cwd), cwd, len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "ARGV%08x%s", len(a), a)
	}
	b = fmt.Appendf(b, "NFIL%08x", len(names)/2)
	for i := 0; i < len(names); i += 2 {
		b = fmt.Appendf(b, "NAME%08x%s", len(names[i]), names[i])
		if to, ok := strings.CutPrefix(names[i+1], "->"); ok {
			b = fmt.Appendf(b, "LINK%08x%s", len(to), to)
			continue
		}
		text := lzo.Append(nil, []byte(names[i+1]))
		b = fmt.Appendf(b, "FILE%08x%s", len(text), text)
	}
	return b
}

// includeServer tells distcc which files a command reads, apart from the system's headers. It returns its socket.
func (h *host) includeServer() string {
	h.t.Helper()
	base, err := os.MkdirTemp("/tmp", "rdistcc-pump-")
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = os.RemoveAll(base) })
	socket := filepath.Join(base, "socket")
	l, err := net.Listen("unix", socket)
	if err != nil {
		h.t.Fatal(err)
	}
	done := make(chan struct{})
	h.t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if err := includes(c, filepath.Join(base, "padding")); err != nil { // distcc wants three levels
				h.t.Error(err)
			}
			_ = c.Close()
		}
	}()
	return socket
}

// includes answers one question of distcc's with packed copies of files below root.
func includes(c net.Conn, root string) error {
	cwd, err := token(c, "CDIR", true)
	if err != nil {
		return err
	}
	count, err := token(c, "ARGC", false)
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(count)
	args := []string{"-MM"}
	compiler := ""
	for i := range n {
		w, err := token(c, "ARGV", true)
		switch {
		case err != nil:
			return err
		case i == 0:
			compiler = w
		case strings.HasPrefix(w, "-I"), filepath.Ext(w) == ".c", filepath.Ext(w) == ".cc":
			args = append(args, w)
		}
	}
	cmd := exec.Command(compiler, args...)
	cmd.Dir = cwd
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	names := strings.Fields(strings.ReplaceAll(string(out), "\\\n", " "))[1:]
	answer := fmt.Appendf(nil, "ARGC%08x", len(names))
	for _, name := range names {
		if !filepath.IsAbs(name) {
			name = filepath.Join(cwd, name)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		packed := root + name + ".lzo"
		if err := errors.Join(os.MkdirAll(filepath.Dir(packed), 0o755), os.WriteFile(packed, lzo.Append(nil, text), 0o644)); err != nil {
			return err
		}
		answer = fmt.Appendf(answer, "ARGV%08x%s", len(packed), packed)
	}
	_, err = c.Write(answer)
	return err
}

// token reads a token and returns its content, or its number.
func token(r io.Reader, kind string, content bool) (string, error) {
	var b [12]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return "", err
	}
	n, err := strconv.ParseUint(string(b[4:]), 16, 16)
	if err != nil || string(b[:4]) != kind {
		return "", fmt.Errorf("%q, want %s", b, kind)
	}
	if !content {
		return strconv.FormatUint(n, 10), nil
	}
	text := make([]byte, n)
	_, err = io.ReadFull(r, text)
	return string(text), err
}
