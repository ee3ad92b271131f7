package export

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rdistcc/rdistcc/lab/9p/p9"
)

// client speaks to a session, one request after the other.
type client struct {
	t   testing.TB
	s   *Session
	buf []byte
}

// open returns a client of a session on dir that has agreed on messages of msize bytes and attached fid 0.
func open(t testing.TB, dir string, msize uint32) *client {
	t.Helper()
	tree, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, s: NewSession(tree), buf: make([]byte, MaxMsize)}
	t.Cleanup(func() {
		c.s.Close()
		tree.Close()
	})
	c.want(p9.Tversion, 0, msize, p9.Version)
	c.want(p9.Tattach, 0, uint32(0), p9.NoFID, "", "", uint32(0))
	return c
}

// message puts a request together: numbers by their size, strings with their length.
func message(typ p9.Type, fields ...any) []byte {
	b := []byte{0, 0, 0, 0, byte(typ), 1, 0}
	for _, f := range fields {
		switch f := f.(type) {
		case string:
			b = append(binary.LittleEndian.AppendUint16(b, uint16(len(f))), f...)
		case uint16:
			b = binary.LittleEndian.AppendUint16(b, f)
		case uint32:
			b = binary.LittleEndian.AppendUint32(b, f)
		case uint64:
			b = binary.LittleEndian.AppendUint64(b, f)
		default:
			panic(fmt.Sprintf("%T", f))
		}
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)))
	return b
}

// do sends a request and returns the body of the answer, or the error in it.
func (c *client) do(typ p9.Type, fields ...any) ([]byte, syscall.Errno) {
	c.t.Helper()
	out, err := c.s.Handle(message(typ, fields...), c.buf)
	if err != nil {
		c.t.Fatalf("request of type %d: %v", typ, err)
	}
	if n := binary.LittleEndian.Uint32(out); int(n) != len(out) || binary.LittleEndian.Uint16(out[5:]) != 1 {
		c.t.Fatalf("request of type %d: header % x of an answer of %d bytes", typ, out[:7], len(out))
	}
	switch p9.Type(out[4]) {
	case typ + 1:
		return out[7:], 0
	case p9.Rlerror:
		return nil, syscall.Errno(binary.LittleEndian.Uint32(out[7:]))
	}
	c.t.Fatalf("request of type %d answered with type %d", typ, out[4])
	return nil, 0
}

// want does what must come to errno.
func (c *client) want(typ p9.Type, errno syscall.Errno, fields ...any) []byte {
	c.t.Helper()
	out, got := c.do(typ, fields...)
	if got != errno {
		c.t.Errorf("request of type %d, %v: error %v, want %v", typ, fields, got, errno)
	}
	return out
}

// walk goes from fid 0 to a path and makes it fid n.
func (c *client) walk(n uint32, path string) syscall.Errno {
	c.t.Helper()
	names := strings.Split(path, "/")
	if path == "" {
		names = nil
	}
	fields := []any{uint32(0), n, uint16(len(names))}
	for _, name := range names {
		fields = append(fields, name)
	}
	out, errno := c.do(p9.Twalk, fields...)
	if errno == 0 && int(binary.LittleEndian.Uint16(out)) < len(names) {
		return syscall.ENOENT // where on the way is not told
	}
	return errno
}

// openAt walks to a path as fid n and opens it.
func (c *client) openAt(n uint32, path string) {
	c.t.Helper()
	if errno := c.walk(n, path); errno != 0 {
		c.t.Fatalf("walk to %q: %v", path, errno)
	}
	c.want(p9.Tlopen, 0, n, uint32(0))
}

// read reads the open fid n to its end, count bytes at a time.
func (c *client) read(n, count uint32) []byte {
	c.t.Helper()
	var all []byte
	for {
		out := c.want(p9.Tread, 0, n, uint64(len(all)), count)
		if len(out) < 4 || len(out) == 4 {
			return all
		}
		all = append(all, out[4:]...)
	}
}

// list reads the open directory n, count bytes at a time, and returns its names, sorted.
func (c *client) list(n, count uint32) []string {
	c.t.Helper()
	var names []string
	for next := uint64(0); ; {
		out := c.want(p9.Treaddir, 0, n, next, count)
		if len(out) <= 4 {
			slices.Sort(names)
			return names
		}
		for out = out[4:]; len(out) > 0; {
			next = binary.LittleEndian.Uint64(out[13:])
			length := int(binary.LittleEndian.Uint16(out[22:]))
			names = append(names, string(out[24:24+length]))
			out = out[24+length:]
		}
	}
}

func write(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestReadFiles(t *testing.T) {
	dir := t.TempDir()
	for i, size := range []int{0, 1, 4095, 4096, 4097, 3*MaxMsize + 5} {
		content := bytes.Repeat([]byte{byte(i), 1, 2, 3, 4, 5, 6}, size/7+1)[:size]
		write(t, fmt.Sprintf("%s/sub/f%d", dir, i), content)
		for _, msize := range []uint32{p9.MinMsize, MaxMsize, 1 << 30} {
			c := open(t, dir, msize)
			c.openAt(1, fmt.Sprintf("sub/f%d", i))
			if got := c.read(1, 1<<20); !bytes.Equal(got, content) {
				t.Errorf("%d bytes by messages of %d: got %d others", size, msize, len(got))
			}
			c.want(p9.Tread, 0, uint32(1), uint64(1)<<40, uint32(10)) // beyond the end: nothing
			c.want(p9.Tread, syscall.EINVAL, uint32(1), ^uint64(0), uint32(10))
			c.want(p9.Tclunk, 0, uint32(1))
			c.want(p9.Tclunk, syscall.EBADF, uint32(1))
		}
	}
}

func TestReaddir(t *testing.T) {
	dir := t.TempDir()
	want := []string{".", ".."}
	for i := range 3*listed + 7 {
		name := fmt.Sprintf("%d-%s", i, strings.Repeat("n", i%200))
		write(t, filepath.Join(dir, "d", name), nil)
		want = append(want, name)
	}
	slices.Sort(want)
	c := open(t, dir, MaxMsize)
	c.openAt(1, "d")
	for _, count := range []uint32{300, 1000, 1 << 20} {
		if got := c.list(1, count); !slices.Equal(got, want) {
			t.Errorf("%d bytes at a time: %d names, want %d", count, len(got), len(want))
		}
	}
	c.want(p9.Treaddir, syscall.EINVAL, uint32(1), uint64(0), uint32(10)) // no room for one
	c.want(p9.Treaddir, 0, uint32(1), uint64(1)<<50, uint32(1000))        // beyond the end: nothing
	c.want(p9.Tread, syscall.EISDIR, uint32(1), uint64(0), uint32(10))
	c.openAt(2, "d/0-")
	c.want(p9.Treaddir, syscall.ENOTDIR, uint32(2), uint64(0), uint32(1000))
}

// TestNothingWrites: each request that would change something, and each open for more than to read, is EROFS.
func TestNothingWrites(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/f", []byte("x"))
	c := open(t, dir, MaxMsize)
	writes := 0
	for typ := range 256 {
		if p9.Type(typ).Writes() {
			writes++
			c.want(p9.Type(typ), syscall.EROFS, uint32(9))
		}
	}
	if writes != 12 {
		t.Errorf("%d types of requests write, want 12", writes)
	}
	if errno := c.walk(1, "f"); errno != 0 {
		t.Fatal(errno)
	}
	for _, flags := range []uint32{1, 2, 3, 0o100, 0o1000} {
		c.want(p9.Tlopen, syscall.EROFS, uint32(1), flags)
	}
	// A remove gives its fid back although it fails.
	c.want(p9.Tremove, syscall.EROFS, uint32(1))
	c.want(p9.Tclunk, syscall.EBADF, uint32(1))
	if b, err := os.ReadFile(dir + "/f"); err != nil || string(b) != "x" {
		t.Errorf("the file is now %q, %v", b, err)
	}
}

// TestNoEscape tries to leave the directory by every way that a name or a link could be.
func TestNoEscape(t *testing.T) {
	outer := t.TempDir()
	dir := outer + "/dir"
	write(t, outer+"/secret", []byte("secret"))
	write(t, dir+"/a/b/f", nil)
	links := map[string]string{"abs": outer, "rel": "..", "deep": "../../../../../..", "file": "../secret", "self": "a"}
	for name, to := range links {
		if err := os.Symlink(to, dir+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	c := open(t, dir, MaxMsize)
	c.want(p9.Tgetattr, 0, uint32(0), p9.AllBasic)
	top := c.want(p9.Tgetattr, 0, uint32(0), p9.AllBasic)
	top = slices.Clone(top[8 : 8+p9.QIDSize])
	for i, path := range []string{"..", "../../../..", "a/../..", "a/b/../../../../dir/.."} {
		n := uint32(10 + i)
		errno := c.walk(n, path)
		if errno != 0 {
			continue // it has found no "dir"
		}
		if got := c.want(p9.Tgetattr, 0, n, p9.AllBasic); !bytes.Equal(got[8:8+p9.QIDSize], top) {
			t.Errorf("%s leads out of the directory", path)
		}
	}
	for _, name := range []string{"../secret", "/etc/passwd", "a/b", "", "."} { // as one name
		c.want(p9.Twalk, syscall.EINVAL, uint32(0), uint32(2), uint16(1), name)
	}
	for name, to := range links {
		c.want(p9.Twalk, 0, uint32(0), uint32(3), uint16(1), name)
		if got := c.want(p9.Treadlink, 0, uint32(3)); string(got[2:]) != to {
			t.Errorf("%s is told to lead to %q, want %q", name, got, to)
		}
		c.want(p9.Twalk, syscall.ENOTDIR, uint32(3), uint32(4), uint16(1), "secret")
		c.want(p9.Tlopen, syscall.ENXIO, uint32(3), uint32(0)) // a link is for the client to follow
		c.want(p9.Tclunk, 0, uint32(3))
	}
	// A directory that becomes a link after its client has walked there.
	if errno := c.walk(5, "a/b/f"); errno != 0 {
		t.Fatal(errno)
	}
	if errno := c.walk(6, "a"); errno != 0 {
		t.Fatal(errno)
	}
	if err := os.Rename(dir+"/a", dir+"/was"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outer, dir+"/a"); err != nil {
		t.Fatal(err)
	}
	write(t, outer+"/b/f", []byte("secret"))
	for _, typ := range []p9.Type{p9.Tlopen, p9.Treadlink} {
		fields := []any{uint32(5)}
		if typ == p9.Tlopen {
			fields = append(fields, uint32(0))
		}
		if out, errno := c.do(typ, fields...); errno == 0 {
			t.Errorf("type %d reaches through a link that leads out: %q", typ, out)
		}
	}
	if _, errno := c.do(p9.Twalk, uint32(6), uint32(7), uint16(1), "secret"); errno == 0 {
		t.Error("a walk follows a link that leads out")
	}
}

// TestSpecialFiles: what is neither file nor directory is told of, and not opened.
func TestSpecialFiles(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	c := open(t, dir, MaxMsize)
	if errno := c.walk(1, "fifo"); errno != 0 {
		t.Fatal(errno)
	}
	out := c.want(p9.Tgetattr, 0, uint32(1), p9.AllBasic)
	if mode := binary.LittleEndian.Uint32(out[8+p9.QIDSize:]); mode&syscall.S_IFMT != syscall.S_IFIFO {
		t.Errorf("mode %o", mode)
	}
	c.want(p9.Tlopen, syscall.ENXIO, uint32(1), uint32(0))
}

// TestBounds: a client gets so many fids and open files, and no more; what it gives back it can have again.
func TestBounds(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/f", nil)
	c := open(t, dir, MaxMsize)
	for n := range uint32(MaxOpen) {
		c.openAt(n+1, "f")
	}
	c.walk(MaxOpen+1, "f")
	c.want(p9.Tlopen, syscall.EMFILE, uint32(MaxOpen+1), uint32(0))
	c.want(p9.Tclunk, 0, uint32(1))
	c.want(p9.Tlopen, 0, uint32(MaxOpen+1), uint32(0))
	for n := MaxOpen + 2; len(c.s.fids) < MaxFIDs; n++ {
		c.walk(uint32(n), "f")
	}
	c.want(p9.Twalk, syscall.ENFILE, uint32(0), uint32(1<<20), uint16(0))
	c.want(p9.Tversion, 0, uint32(MaxMsize), p9.Version) // begins anew
	if len(c.s.fids) != 0 || c.s.open != 0 {
		t.Errorf("after a new version: %d fids, %d open", len(c.s.fids), c.s.open)
	}
}

func TestOrderOfRequests(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/f", nil)
	tree, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	c := &client{t: t, s: NewSession(tree), buf: make([]byte, MaxMsize)}
	defer c.s.Close()
	c.want(p9.Tattach, syscall.EPROTO, uint32(0), p9.NoFID, "", "", uint32(0)) // before a version
	c.want(p9.Tversion, syscall.EINVAL, uint32(100), p9.Version)
	if out := c.want(p9.Tversion, 0, uint32(8192), "9P2000.u"); string(out[6:]) != p9.Unknown {
		t.Errorf("another version is answered with %q", out)
	}
	c.want(p9.Tattach, syscall.EPROTO, uint32(0), p9.NoFID, "", "", uint32(0))
	c.want(p9.Tversion, 0, uint32(8192), p9.Version)
	c.want(p9.Tauth, syscall.EOPNOTSUPP, uint32(1), "root", "", uint32(0))
	c.want(p9.Tattach, syscall.ENOENT, uint32(0), p9.NoFID, "root", "/elsewhere", uint32(0))
	c.want(p9.Tattach, syscall.EINVAL, p9.NoFID, p9.NoFID, "root", "/", uint32(0))
	c.want(p9.Tattach, 0, uint32(0), p9.NoFID, "root", "/", uint32(0))
	c.want(p9.Tattach, syscall.EBADF, uint32(0), p9.NoFID, "root", "/", uint32(0)) // a fid in use
	c.want(p9.Tflush, 0, uint16(7))
	c.want(p9.Tgetattr, syscall.EBADF, uint32(9), p9.AllBasic)
	c.want(p9.Txattrwalk, syscall.EOPNOTSUPP, uint32(0), uint32(1), "user.x")
	c.want(p9.Type(52), syscall.EOPNOTSUPP, uint32(0))               // Tlock: its fid is not looked at
	c.want(p9.Twalk, syscall.EINVAL, uint32(0))                      // malformed
	c.want(p9.Tread, syscall.EBADF, uint32(0), uint64(0), uint32(1)) // not open
	c.want(p9.Twalk, 0, uint32(0), uint32(1), uint16(1), "f")
	c.want(p9.Twalk, syscall.EBADF, uint32(0), uint32(1), uint16(1), "f") // a fid in use
	if out := c.want(p9.Twalk, 0, uint32(0), uint32(2), uint16(2), "f", "g"); binary.LittleEndian.Uint16(out) != 1 || c.s.fids[2] != nil {
		t.Errorf("a walk beyond a file: %d steps, fid %v", binary.LittleEndian.Uint16(out), c.s.fids[2])
	}
	c.want(p9.Tlopen, 0, uint32(1), uint32(0))
	c.want(p9.Tlopen, syscall.EBUSY, uint32(1), uint32(0))
	c.want(p9.Twalk, syscall.EBUSY, uint32(1), uint32(3), uint16(0))
	if out := c.want(p9.Tstatfs, 0, uint32(0)); binary.LittleEndian.Uint32(out) != magic9P {
		t.Errorf("statfs: % x", out)
	}
	for _, b := range [][]byte{nil, make([]byte, 6), {9, 0, 0, 0, 1, 2, 3}} {
		if out, err := c.s.Handle(b, c.buf); err == nil {
			t.Errorf("% x is no message, and is answered with % x", b, out)
		}
	}
}

// FuzzSession sends any requests, each after two bytes of length, to a session on a small tree. Each gets an answer of the right
// form within the agreed size, or ends the connection; none changes the tree or leaves it.
func FuzzSession(f *testing.F) {
	seed := func(requests ...[]byte) {
		var b []byte
		for _, r := range requests {
			b = append(binary.LittleEndian.AppendUint16(b, uint16(len(r))), r...)
		}
		f.Add(b)
	}
	seed(message(p9.Twalk, uint32(0), uint32(1), uint16(1), "f"), message(p9.Tlopen, uint32(1), uint32(0)), message(p9.Tread, uint32(1), uint64(0), uint32(100)))
	seed(message(p9.Twalk, uint32(0), uint32(1), uint16(2), "d", ".."), message(p9.Tlopen, uint32(1), uint32(0)), message(p9.Treaddir, uint32(1), uint64(1), uint32(100)))
	seed(message(p9.Twalk, uint32(0), uint32(1), uint16(1), "l"), message(p9.Treadlink, uint32(1)), message(p9.Tremove, uint32(1)), message(p9.Tversion, uint32(5000), p9.Version))
	outer := f.TempDir()
	dir := outer + "/dir"
	write(f, outer+"/secret", []byte("the secret"))
	write(f, dir+"/f", []byte("content"))
	write(f, dir+"/d/g", []byte("content"))
	if err := os.Symlink("../secret", dir+"/l"); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := open(t, dir, p9.MinMsize)
		for len(b) >= 2 {
			n := min(int(binary.LittleEndian.Uint16(b)), len(b)-2)
			r := b[2 : 2+n]
			b = b[2+n:]
			out, err := c.s.Handle(r, c.buf)
			if err != nil {
				continue
			}
			if len(out) < p9.HeaderSize || int(binary.LittleEndian.Uint32(out)) != len(out) || len(out) > MaxMsize || !bytes.Equal(out[5:7], r[5:7]) {
				t.Fatalf("request % x is answered with % x", r, out)
			}
			if bytes.Contains(out, []byte("the secret")) {
				t.Fatalf("request % x reads what is outside", r)
			}
			if len(c.s.fids) > MaxFIDs || c.s.open > MaxOpen {
				t.Fatalf("%d fids, %d open", len(c.s.fids), c.s.open)
			}
		}
		if b, err := os.ReadFile(dir + "/f"); err != nil || string(b) != "content" {
			t.Fatalf("the file is now %q, %v", b, err)
		}
	})
}
