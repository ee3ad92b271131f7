package interop

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"
)

// mount9P is where the guest mounts what lab/9p serves.
const mount9P = "/mnt/9p"

// server9P is lab/9p, with a directory.
type server9P struct {
	cmd   *exec.Cmd
	port  string
	log   *bytes.Buffer // complete once ended is closed
	ended chan struct{}
}

// build9P builds the example and returns its path.
func build9P(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "9p")
	build(t, "build", "-o", bin, "./lab/9p")
	return bin
}

// start9P serves dir on this machine's loopback, which the guest reaches. It ends with the test.
func start9P(t *testing.T, bin, dir string) *server9P {
	t.Helper()
	s := &server9P{cmd: exec.Command(bin, "--listen", "127.0.0.1:0", dir), log: new(bytes.Buffer), ended: make(chan struct{})}
	r, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(r)
	line, err := lines.ReadString('\n')
	i := strings.LastIndex(line, ":")
	if err != nil || !strings.Contains(line, "listening on ") {
		t.Fatalf("9p said %q, %v", line, err)
	}
	s.port = strings.TrimSpace(line[i+1:])
	go func() {
		defer close(s.ended)
		_, _ = s.log.ReadFrom(lines)
	}()
	t.Cleanup(func() {
		s.stop(os.Interrupt)
		if t.Failed() {
			t.Logf("9p:\n%s", tail(s.log.String(), 20))
		}
	})
	return s
}

// stop ends the server by a signal, if it has not ended, and waits for it.
func (s *server9P) stop(sig os.Signal) {
	_ = s.cmd.Process.Signal(sig) // or it has ended
	<-s.ended
	_ = s.cmd.Wait() // its status is the signal's
}

// mount mounts s in the guest, until the test ends.
func (s *server9P) mount(t *testing.T, g *Guest, options string) {
	t.Helper()
	g.Run(t, fmt.Sprintf("mkdir -p %s && modprobe 9pnet_rdma && mount -t 9p -o trans=rdma,port=%s,version=9p2000.L%s %s %s",
		mount9P, s.port, options, HostAddr, mount9P))
	t.Cleanup(func() { g.Exec(t, "umount -l "+mount9P+" 2>/dev/null", time.Minute) }) // may be unmounted
}

// tree9P makes a directory with files of many sizes and odd names, and returns it with the sums of the files.
func tree9P(t *testing.T) (dir string, sums map[string]string) {
	t.Helper()
	dir, sums = t.TempDir(), make(map[string]string)
	rng := rand.New(rand.NewPCG(9, 2000))
	file := func(name string, size int) {
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		sums["./"+name] = fmt.Sprintf("%x", sha256.Sum256(b))
	}
	for i, size := range []int{0, 1, 2, 3, 4095, 4096, 4097, 64 << 10, 64<<10 + 1, pick(8<<20, 1<<20) + 5} {
		file(fmt.Sprintf("sizes/%d-%d", i, size), size)
	}
	file("a b/with spaces.txt", 100)
	file("größe/ñandú-試.txt", 1000)
	file(strings.Repeat("deep/", 40)+"end", 10)
	file(strings.Repeat("n", 255), 77)
	for i := range pick(2000, 300) {
		file(fmt.Sprintf("many/file-%04d", i), i%7)
	}
	for name, to := range map[string]string{"link": "sizes/4-4095", "dangling": "nowhere", "outside": "/etc/hostname", "up": "../../../.."} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir, sums
}

// listing is what `find` prints for dir, sorted.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if rel, _ := filepath.Rel(dir, path); rel == "." {
			all = append(all, ".")
		} else {
			all = append(all, "./"+rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(all)
	return strings.Join(all, "\n")
}

// TestKernel9P mounts a directory that lab/9p serves with the kernel's 9P client over siw, reads all of it, and cannot
// write.
func TestKernel9P(t *testing.T) {
	g := Boot(t)
	note := row(t, "the kernel's 9p (trans=rdma)", "mounts a directory of lab/9p, lists, reads, cannot write")
	dir, sums := tree9P(t)
	s := start9P(t, build9P(t), dir)
	s.mount(t, g, ",ro")
	begin := time.Now()
	out := g.Run(t, "cd "+mount9P+" && find . -type f -exec sha256sum {} +")
	took := time.Since(begin)
	got := make(map[string]string)
	for line := range strings.Lines(out) {
		sum, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		got[name] = sum
	}
	total := int64(0)
	for name, want := range sums {
		if got[name] != want {
			t.Errorf("%q: sum %s in the guest, want %s", name, got[name], want)
		}
		if fi, err := os.Stat(filepath.Join(dir, name)); err == nil {
			total += fi.Size()
		}
	}
	if len(got) != len(sums) {
		t.Errorf("%d files in the guest, want %d", len(got), len(sums))
	}
	out = g.Run(t, "cd "+mount9P+" && find . | LC_ALL=C sort")
	before := listing(t, dir)
	if strings.TrimSpace(out) != before {
		t.Errorf("find in the guest differs from the directory:\n%.2000s", out)
	}
	out = g.Run(t, "cd "+mount9P+" && for l in link dangling outside up; do readlink $l; done; sha256sum < link; cat outside 2>/dev/null; stat -c '%F %s %a' sizes/4-4095; df -T . | tail -1")
	for _, want := range []string{"sizes/4-4095\nnowhere\n/etc/hostname\n../../../..\n" + sums["./sizes/4-4095"], "regular file 4095 644", "9p"} {
		if !strings.Contains(out, want) {
			t.Errorf("links and attributes in the guest: no %q in\n%s", want, out)
		}
	}
	g.Run(t, "umount "+mount9P)

	// The same without the mount option that has the guest's kernel refuse to write by itself.
	s.mount(t, g, "")
	for _, cmd := range []string{"echo x > sizes/0-0", "echo x > new", "mkdir d", "rm link", "mv link linked", "ln -s a b", "ln sizes/0-0 hard", "chmod 600 sizes/0-0", "truncate -s 9 sizes/3-3"} {
		out, status := g.Exec(t, "cd "+mount9P+" && "+cmd, time.Minute)
		if status == 0 || !strings.Contains(out, "Read-only file system") {
			t.Errorf("%s: exit status %d, %q: want EROFS", cmd, status, out)
		}
	}
	g.Run(t, "umount "+mount9P)
	if now := listing(t, dir); now != before {
		t.Errorf("the guest has changed the directory:\n%.2000s", now)
	}
	*note = fmt.Sprintf("%d files, %.1f MB compared in %.1f s", len(sums), float64(total)/1e6, took.Seconds())
}

// TestKernel9PServerDies kills the server while the guest reads. The kernel's client leaves a request whose answer will not
// come to its process, until that is killed, and fails new ones. After that the guest can unmount, and mount again.
func TestKernel9PServerDies(t *testing.T) {
	g := Boot(t)
	note := row(t, "the kernel's 9p (trans=rdma)", "the server of a mount is killed, and another one mounted")
	dir, bin := t.TempDir(), build9P(t)
	if err := os.WriteFile(filepath.Join(dir, "zeroes"), make([]byte, 64<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	s := start9P(t, bin, dir)
	s.mount(t, g, ",ro")
	job := g.Start(t, "cd "+mount9P+" && dd if=zeroes of=/dev/null bs=64k count=4 2>&1 && echo reading && while cat zeroes >/dev/null; do :; done; echo failed", 2*time.Minute)
	job.until(t, time.Minute, "read", func() bool { return strings.Contains(job.Output(), "reading") })
	s.stop(os.Kill)
	out, status := g.Exec(t, "for i in $(seq 500); do timeout -s KILL 5 ls "+mount9P+" 2>&1 | grep 'Input/output error' && exit 0; usleep 20000; done; exit 1", time.Minute)
	if status != 0 {
		t.Errorf("with the server gone, ls does not fail: exit status %d\n%s", status, out)
	}
	*note = "ls: Input/output error; its reader waited until killed"
	if strings.Contains(job.Output(), "failed") {
		*note = "ls and its reader: Input/output error"
	}
	job.Kill(t)
	if out, status := g.Exec(t, "umount "+mount9P+" || umount -l "+mount9P, time.Minute); status != 0 {
		t.Errorf("umount: exit status %d\n%s", status, out)
	}
	s = start9P(t, bin, dir)
	s.mount(t, g, ",ro")
	g.Run(t, "dd if="+mount9P+"/zeroes of=/dev/null bs=64k count=4 && umount "+mount9P)
}
