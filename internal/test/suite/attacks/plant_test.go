package attacks

import (
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// shown is where a daemon with file systems of its own sees the judge's directory.
const shown = "/mnt"

// canaries are what a hostile job may not touch, learn or reach.
type canaries struct {
	dir    string            // here
	seen   string            // the same, as the daemon and its jobs see it
	tokens map[string]string // what may not come back, in lower case: name, token
	listen []net.Listener
	calls  atomic.Int64 // connections that came
	names  map[string]string
	all    sync.WaitGroup
}

// token is a word that nothing else contains.
func token(kind string) string {
	b := []byte("zq" + kind)
	for range 16 {
		b = append(b, byte('a'+rand.IntN(26)))
	}
	return string(b)
}

// plant makes the canaries in a directory of their own. uid is the daemon's user, to whom the private file
// belongs; seen is the daemon's name for the directory.
func plant(t *testing.T, dir, seen string, uid int) *canaries {
	t.Helper()
	c := &canaries{dir: dir, seen: seen, tokens: map[string]string{}, names: map[string]string{}}
	for _, k := range []string{"secret", "private", "environ", "cmdline", "tenant", "treetenant", "exec"} {
		c.tokens[k] = token(k)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"wit", "sec", "evil/bin", "evil/lib", "evil/gconv", "evil/tc/bin", "evil/tc/lib/gcc/x86_64-linux-gnu/12", "work", "log", "state", "net", "received"} {
		must(os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	must(os.Chmod(filepath.Join(dir, "wit"), 0o777|os.ModeSticky))
	secret := c.tokens["secret"] + " is_the_secret\n"
	must(os.WriteFile(filepath.Join(dir, "sec/secret"), []byte(secret), 0o644))
	must(os.WriteFile(filepath.Join(dir, "sec/private"), []byte(c.tokens["private"]+" is_private\n"), 0o600))
	must(os.WriteFile(filepath.Join(dir, "sec/newer"), []byte("newer\n"), 0o644))
	soon := time.Now().Add(24 * time.Hour)
	must(os.Chtimes(filepath.Join(dir, "sec/newer"), soon, soon))
	must(syscall.Mkfifo(filepath.Join(dir, "sec/fifo"), 0o666))
	must(os.Chmod(filepath.Join(dir, "sec/fifo"), 0o666))
	if os.Geteuid() == 0 {
		for _, d := range []string{"sec/private", "work", "log", "state", "received"} {
			must(os.Chown(filepath.Join(dir, d), uid, uid))
		}
	}
	c.listenAll(t)
	host, _ := os.Hostname()
	id, _ := os.ReadFile("/etc/machine-id")
	boot, _ := os.ReadFile("/proc/cmdline")
	sum := md5.Sum([]byte(secret))
	for k, v := range map[string]string{
		"SECRET": "/sec/secret", "SECRETDIR": "/sec", "PRIVATE": "/sec/private", "KEYS": "/sec/private", "OLDER": "/sec/newer", "FIFO": "/sec/fifo",
		"WIT": "/wit", "EVIL": "/evil", "UNIX": "/net/unix", "LOG": "/log/daemon.log",
	} {
		c.names[k] = seen + v
	}
	c.names["WORK"] = seen + "/work/rdistccd-"
	c.names["SECRETMD5"] = hex.EncodeToString(sum[:])
	c.names["HOST"], c.names["BOOT"] = strings.TrimSpace(host), orNone(strings.TrimSpace(string(boot)))
	c.names["MACHINEID"] = orNone(strings.TrimSpace(string(id)))
	c.helpers(t)
	c.later(t)
	return c
}

func orNone(s string) string {
	if s == "" {
		return "there-is-none"
	}
	return s
}

// listenAll opens addresses to which nothing may connect.
func (c *canaries) listenAll(t *testing.T) {
	t.Helper()
	for name, addr := range map[string][2]string{"TCP": {"tcp", "127.0.0.1:0"}, "TCP6": {"tcp", "[::1]:0"}, "UNIX": {"unix", filepath.Join(c.dir, "net/unix")}} {
		l, err := net.Listen(addr[0], addr[1])
		if err != nil && name == "TCP6" {
			c.names[name] = "1" // no IPv6 here
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if a, ok := l.Addr().(*net.TCPAddr); ok {
			c.names[name] = strconv.Itoa(a.Port)
		} else if err := os.Chmod(addr[1], 0o777); err != nil {
			t.Fatal(err)
		}
		c.listen = append(c.listen, l)
		c.all.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				c.calls.Add(1)
				conn.Close()
			}
		})
	}
	t.Cleanup(func() {
		for _, l := range c.listen {
			l.Close()
		}
		c.all.Wait()
	})
}

// evilSource is a program and a library: wherever it runs it says so, and tries what it
// may not.
const evilSource = `
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/un.h>
static void canary(void) {
	char b[4096], name[200];
	int n, fd, i;
	static const char *files[] = { SECRET, PRIVATE, "/proc/self/environ" };
	n = snprintf(b, sizeof b, "\n%s ran\n", EXEC);
	if (write(2, b, n) < 0) {}
	snprintf(name, sizeof name, "%s/ran-%d", WIT, (int)getpid());
	fd = open(name, O_CREAT | O_WRONLY, 0666);
	if (fd >= 0) close(fd);
	for (i = 0; i < 3; i++) {
		fd = open(files[i], O_RDONLY);
		if (fd < 0) continue;
		n = read(fd, b, sizeof b);
		if (n > 0 && write(2, b, n) < 0) {}
		close(fd);
	}
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(TCP), .sin_addr = { htonl(0x7f000001) } };
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd >= 0) { if (connect(fd, (void *)&in, sizeof in)) {} close(fd); }
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	strcpy(un.sun_path, UNIX);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (fd >= 0) { if (connect(fd, (void *)&un, sizeof un)) {} close(fd); }
}
#ifdef SHARED
int plugin_is_GPL_compatible;
int plugin_init(void *a, void *b) { return 0; }
int gconv(void) { return 1; }
int gconv_init(void *x) { return 1; }
static void __attribute__((constructor)) start(void) { canary(); }
#else
int main(void) { canary(); return 0; }
#endif
`

// helpers compiles the evil helpers and puts them where attacks look for them.
func (c *canaries) helpers(t *testing.T) {
	t.Helper()
	evil := filepath.Join(c.dir, "evil")
	src := filepath.Join(c.dir, "evil.c")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(src, evilSource)
	defs := []string{"-w", "-DEXEC=\"" + c.tokens["exec"] + "\"", "-DTCP=" + c.names["TCP"]}
	for _, k := range []string{"WIT", "SECRET", "PRIVATE", "UNIX"} {
		defs = append(defs, "-D"+k+"=\""+c.names[k]+"\"")
	}
	for _, words := range [][]string{
		{"-shared", "-fPIC", "-DSHARED", src, "-o", evil + "/evil.so"},
		{"-static", src, "-o", evil + "/bin/run"},
	} {
		if out, err := exec.CommandContext(t.Context(), "gcc", append(defs, words...)...).CombinedOutput(); err != nil {
			t.Fatalf("gcc %q: %v: %s", words, err, out)
		}
	}
	run := readFile(t, evil+"/bin/run")
	for _, name := range []string{"bin/as", "bin/cc1", "bin/cc1plus", "bin/ld", "bin/collect2", "bin/gcc", "bin/lto1", "bin/lto-wrapper", "bin/clang", "bin/ptxas",
		"tc/bin/as", "tc/bin/x86_64-linux-gnu-as", "tc/bin/ld", "tc/bin/ptxas", "tc/lib/gcc/x86_64-linux-gnu/12/as", "tc/lib/gcc/x86_64-linux-gnu/12/cc1", "mapper"} {
		if err := os.WriteFile(filepath.Join(evil, name), run, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	so := readFile(t, evil+"/evil.so")
	for _, name := range []string{"gconv/EVIL.so", "lib/libc.so.6", "lib/libz.so.1", "lib/libLLVM-14.so.1"} {
		if err := os.WriteFile(filepath.Join(evil, name), so, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(evil+"/gconv/gconv-modules", "module EVILSET// INTERNAL EVIL 1\nmodule INTERNAL EVILSET// EVIL 1\nalias EVIL// EVILSET//\n")
	write(evil+"/specs", "*cc1:\n+ %(cc1)\n\n@cpp-output:\n"+c.names["EVIL"]+"/bin/run\n\n.c:\n"+c.names["EVIL"]+"/bin/run\n\n*invoke_as:\n"+c.names["EVIL"]+"/bin/run\n\n")
	write(evil+"/response", "-fplugin="+c.names["EVIL"]+"/evil.so -wrapper "+c.names["EVIL"]+"/bin/run\n")
	write(evil+"/evil.cfg", "-fplugin="+c.names["EVIL"]+"/evil.so\n")
	write(evil+"/evil-clang.cfg", "-fplugin="+c.names["EVIL"]+"/evil.so\n")
	write(evil+"/planted.h", "int planted;\n")
	write(evil+"/planted.pch", "CPCH not one\n")
	write(evil+"/planted.pcm", "CPCH not one\n")
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fill puts the judge's names in for their placeholders.
func (c *canaries) fill(s string) string {
	if !strings.Contains(s, "{") {
		return s
	}
	for k, v := range c.names {
		s = strings.ReplaceAll(s, "{"+k+"}", v)
	}
	return s
}

// fired says which canaries have fired, and makes them ready again: files in the
// witness directory and in root's places for temporary files, connections.
func (c *canaries) fired(root string) []string {
	var all []string
	if n := c.calls.Swap(0); n > 0 {
		all = append(all, fmt.Sprintf("net: %d connections", n))
	}
	dirs := []string{filepath.Join(c.dir, "wit")}
	if root != "" {
		dirs = append(dirs, root+"/tmp", root+"/var/tmp", root+"/dev/shm")
	}
	for i, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			kind := "temp"
			if i == 0 {
				kind = "write"
			} else if strings.HasPrefix(e.Name(), "rdistccd-probe-") {
				continue // the daemon's own bait for its canaries
			}
			all = append(all, kind+": "+e.Name())
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
	return all
}

// leaked says which tokens, and which of more, are in what came back.
func (c *canaries) leaked(back []byte, more []string) []string {
	low := strings.ToLower(string(back))
	var all []string
	for k, tok := range c.tokens {
		if strings.Contains(low, tok) {
			kind := "read: "
			if k == "exec" {
				kind = "exec: "
			}
			all = append(all, kind+k)
		}
	}
	for _, m := range more {
		if m = strings.ToLower(c.fill(m)); m != "" && strings.Contains(low, m) {
			all = append(all, "info: "+m)
		}
	}
	return all
}

// processes are the living descendants of this process, by number. Those that have lost their
// parent are ours too.
func processes() map[int]proc {
	mine := map[int]proc{}
	children(os.Getpid(), mine)
	return mine
}

func children(pid int, mine map[int]proc) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, task := range tasks {
		b, _ := os.ReadFile(dir + "/" + task.Name() + "/children")
		for _, w := range strings.Fields(string(b)) {
			child, err := strconv.Atoi(w)
			if _, known := mine[child]; err != nil || known {
				continue
			}
			b, err := os.ReadFile("/proc/" + w + "/stat")
			if err != nil {
				continue
			}
			s := string(b)
			open, end := strings.IndexByte(s, '('), strings.LastIndexByte(s, ')')
			f := strings.Fields(s[end+1:])
			if len(f) < 22 || f[0] == "Z" || f[0] == "X" {
				continue
			}
			pages, _ := strconv.ParseInt(f[21], 10, 64)
			mine[child] = proc{name: s[open+1 : end], rss: pages * int64(os.Getpagesize())}
			children(child, mine)
		}
	}
}

// proc is a process.
type proc struct {
	name string
	rss  int64 // bytes
}

// tempDir is a directory that other users can enter, which the test removes.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rdistcc-attacks-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// copyFile copies a program.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
}
