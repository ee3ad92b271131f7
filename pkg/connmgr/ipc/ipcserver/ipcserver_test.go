package ipcserver

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

func serve(t *testing.T, path string) *Listener {
	t.Helper()
	l, err := Listen(path, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// pair returns the wrapper's and the manager's end of one connection.
func pair(t *testing.T, l *Listener) (*ipc.Conn, *Conn) {
	t.Helper()
	w, err := ipc.Dial(l.Path())
	if err != nil {
		t.Fatal(err)
	}
	m, err := l.AcceptConn()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close(); m.Close() })
	return w, m
}

func TestLeaseWithDescriptors(t *testing.T) {
	w, m := pair(t, serve(t, filepath.Join(t.TempDir(), "s")))
	if err := w.Send((&ipc.Lease{Version: ipc.Version, Source: "a.c"}).Append(nil)); err != nil {
		t.Fatal(err)
	}
	k, fields, err := m.Recv()
	var lease ipc.Lease
	if err != nil || k != ipc.KindLease || lease.Parse(fields) != nil || lease.Source != "a.c" {
		t.Fatalf("kind %d, %+v, %v", k, lease, err)
	}
	var files [2]*os.File
	for i := range files {
		files[i], err = os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer files[i].Close()
	}
	if err := m.Send((&ipc.Leased{Job: 7}).Append(nil), int(files[0].Fd()), int(files[1].Fd())); err != nil {
		t.Fatal(err)
	}
	k, fields, err = w.Recv()
	var leased ipc.Leased
	if err != nil || k != ipc.KindLeased || leased.Parse(fields) != nil || leased.Job != 7 {
		t.Fatalf("kind %d, %+v, %v", k, leased, err)
	}
	fds, err := w.TakeFDs(2)
	if err != nil {
		t.Fatal(err)
	}
	for i, fd := range fds {
		var a, b syscall.Stat_t
		if syscall.Fstat(fd, &a) != nil || syscall.Fstat(int(files[i].Fd()), &b) != nil || a.Ino != b.Ino {
			t.Errorf("descriptor %d is inode %d, want %d", i, a.Ino, b.Ino)
		}
		flags, _, _ := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
		if flags&syscall.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d would reach every child", i)
		}
		syscall.Close(fd)
	}
}

// TestGone: a wrapper that has hung up is gone before all that it said is read; one that is silent is not.
func TestGone(t *testing.T) {
	w, m := pair(t, serve(t, filepath.Join(t.TempDir(), "s")))
	if err := w.Send((&ipc.Finish{Exit: 1}).Append(nil)); err != nil || m.Gone() {
		t.Errorf("sent: %v; gone is %t, want it to be there", err, m.Gone())
	}
	w.Close()
	if k, _, err := m.Recv(); !m.Gone() || k != ipc.KindFinish || err != nil {
		t.Errorf("gone is %t, received %d, %v; want gone, and Finish", m.Gone(), k, err)
	}
	m.Close()
	if !m.Gone() {
		t.Error("closed, and not gone")
	}
}

func TestUnexpectedDescriptorsAreClosed(t *testing.T) {
	w, m := pair(t, serve(t, filepath.Join(t.TempDir(), "s")))
	r, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := m.Send(ipc.AppendBare(nil, ipc.KindGo), int(pw.Fd())); err != nil {
		t.Fatal(err)
	}
	pw.Close()
	if _, _, err := w.Recv(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.TakeFDs(2); !errors.Is(err, ipc.ErrMalformed) {
		t.Errorf("one descriptor for two: %v", err)
	}
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the descriptor is still open somewhere: %v", err)
	}
}

// TestFramesInPieces sends frames cut at any byte, and several at once.
func TestFramesInPieces(t *testing.T) {
	w, m := pair(t, serve(t, filepath.Join(t.TempDir(), "s")))
	data := bytes.Repeat([]byte("x"), 100_000)
	stream := (&ipc.Reply{Code: 1}).Append(nil)
	stream = ipc.AppendBare(stream, ipc.KindWait)
	stream = (&ipc.Reply{Code: 2, Data: data}).Append(stream)
	stream = (&ipc.Reply{Code: 3}).Append(stream)
	go func() {
		for _, n := range []int{1, 3, 7, 11, 4000, 64 << 10} {
			_ = m.Send(stream[:n]) // a lost connection shows in Recv
			stream = stream[n:]
		}
		_ = m.Send(stream)
	}()
	for i := uint8(1); i <= 3; i++ {
		k, fields, err := w.Recv()
		var r ipc.Reply
		if err != nil || k != ipc.KindReply || r.Parse(fields) != nil || r.Code != i {
			t.Fatalf("frame %d: kind %d, code %d, %v", i, k, r.Code, err)
		}
		if i == 2 && !bytes.Equal(r.Data, data) {
			t.Errorf("%d bytes arrived of %d, or others", len(r.Data), len(data))
		}
	}
}

func TestEndsAreNoticed(t *testing.T) {
	l := serve(t, filepath.Join(t.TempDir(), "s"))
	w, m := pair(t, l)
	w.Interrupt()
	if _, _, err := m.Recv(); err != io.EOF {
		t.Errorf("manager's Recv after the wrapper's end: %v, want EOF", err)
	}
	if _, _, err := w.Recv(); !errors.Is(err, ipc.ErrClosed) {
		t.Errorf("wrapper's Recv after Interrupt: %v, want ErrClosed", err)
	}
	w, m = pair(t, l)
	m.Close()
	if _, _, err := w.Recv(); !errors.Is(err, ipc.ErrClosed) {
		t.Errorf("wrapper's Recv after the manager's end: %v, want ErrClosed", err)
	}
	if err := w.Send(ipc.AppendBare(nil, ipc.KindGo)); !errors.Is(err, ipc.ErrClosed) {
		t.Errorf("wrapper's Send after the manager's end: %v, want ErrClosed", err)
	}
}

func TestSilenceIsNoticed(t *testing.T) {
	w, _ := pair(t, serve(t, filepath.Join(t.TempDir(), "s")))
	if err := w.SetPatience(1); err != nil { // rounds up to the kernel's tick
		t.Fatal(err)
	}
	if _, _, err := w.Recv(); !errors.Is(err, ipc.ErrSilent) {
		t.Errorf("got %v, want ErrSilent", err)
	}
}

// TestWaitWhileOwing: Wait frames come from a question until its answer, and none afterwards.
func TestWaitWhileOwing(t *testing.T) {
	l := serve(t, filepath.Join(t.TempDir(), "s"))
	raw, err := net.Dial("unix", l.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	m, err := l.AcceptConn()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	m.waitEvery = time.Millisecond
	if _, err := raw.Write((&ipc.Submit{}).Append(nil)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.Recv(); err != nil {
		t.Fatal(err)
	}
	wait := ipc.AppendBare(nil, ipc.KindWait)
	got := make([]byte, 3*len(wait))
	if _, err := io.ReadFull(raw, got); err != nil || !bytes.Equal(got, bytes.Repeat(wait, 3)) {
		t.Fatalf("read %x, %v; want three Wait frames", got, err)
	}
	if err := m.Send((&ipc.Result{}).Append(nil)); err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.owing {
		t.Error("still owing after the answer")
	}
}

func TestLongSocketPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := MakeDir(dir); err != nil {
		t.Fatal(err)
	}
	l := serve(t, filepath.Join(dir, "cm.sock"))
	w, m := pair(t, l)
	if err := w.Send(ipc.AppendBare(nil, ipc.KindGo)); err != nil {
		t.Fatal(err)
	}
	if k, _, err := m.Recv(); k != ipc.KindGo || err != nil {
		t.Errorf("kind %d, %v", k, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(l.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("socket after Close: %v", err)
	}
	if _, err := ipc.Dial(filepath.Join(dir, strings.Repeat("n", 120))); err != syscall.ENAMETOOLONG {
		t.Errorf("a name that fits nowhere: %v", err)
	}
}

func TestOneListenerAPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l := serve(t, path)
	if _, err := Listen(path, false); !errors.Is(err, ErrInUse) {
		t.Fatalf("second listener: %v, want ErrInUse", err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	// As after a crash: the socket is left and is not served.
	l.UnixListener.Close()
	l.lock.Close()
	if _, err := ipc.Dial(path); err != syscall.ECONNREFUSED {
		t.Errorf("dial of a dead socket: %v", err)
	}
	pair(t, serve(t, path))
}

// TestSuccessorWaits: a manager that is ending has removed its socket but still holds the lock. The next one
// waits and gets both.
func TestSuccessorWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l := serve(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	started := make(chan error)
	go func() {
		next, err := Listen(path, false)
		if err == nil {
			err = next.Close()
		}
		started <- err
	}()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-started; err != nil {
		t.Errorf("the successor: %v", err)
	}
}

func TestPeerAndTrust(t *testing.T) {
	l := serve(t, filepath.Join(t.TempDir(), "s"))
	w, m := pair(t, l)
	if uid, err := w.PeerUID(); err != nil || int(uid) != os.Geteuid() {
		t.Errorf("manager's uid %d, %v", uid, err)
	}
	if p, err := m.Peer(); err != nil || int(p.Pid) != os.Getpid() {
		t.Errorf("wrapper's pid %+v, %v", p, err)
	}
	if err := ipc.Trusted(l.Path(), uint32(os.Geteuid())); err != nil {
		t.Errorf("own manager: %v", err)
	}
	if err := ipc.Trusted(l.Path(), uint32(os.Geteuid()+1)); err != ipc.ErrOwner {
		t.Errorf("a stranger's manager: %v, want ErrOwner", err)
	}
}

func TestCheckDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	if err := MakeDir(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o770); err != nil {
		t.Fatal(err)
	}
	if err := ipc.CheckDir(dir); err != ipc.ErrWritable {
		t.Errorf("0770: %v, want ErrWritable", err)
	}
	link := dir + "-link"
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := ipc.CheckDir(link); err != syscall.ENOTDIR {
		t.Errorf("a link: %v, want ENOTDIR", err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	if err := os.Chmod(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, 12345, -1); err != nil {
		t.Fatal(err)
	}
	if err := ipc.CheckDir(dir); err != ipc.ErrOwner {
		t.Errorf("a stranger's: %v, want ErrOwner", err)
	}
	sock := filepath.Join(dir, "s")
	if err := os.WriteFile(sock, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(sock, 12345, -1); err != nil {
		t.Fatal(err)
	}
	if err := ipc.Trusted(sock, 12345); err != ipc.ErrWritable {
		t.Errorf("one below /tmp, where everybody can put it: %v, want ErrWritable", err)
	}
	top, err := os.MkdirTemp("/run", "rdistcc-test-")
	if err != nil {
		t.Skipf("needs a directory of root's alone: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	if err := os.Chmod(top, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, filepath.Join(top, "rdistcc")); err != nil {
		dir2 := filepath.Join(top, "rdistcc") // another file system
		for _, err := range []error{os.Mkdir(dir2, 0o750), os.Chown(dir2, 12345, -1), os.WriteFile(filepath.Join(dir2, "s"), nil, 0o600), os.Chown(filepath.Join(dir2, "s"), 12345, -1)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	dir = filepath.Join(top, "rdistcc")
	sock = filepath.Join(dir, "s")
	if err := ipc.Trusted(sock, 12345); err != nil {
		t.Errorf("the machine's manager: %v", err)
	}
	link = filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := ipc.Trusted(filepath.Join(link, "s"), 12345); err != nil {
		t.Errorf("through a link of ours: %v", err)
	}
	for _, bad := range []func() error{func() error { return os.Chmod(top, 0o777) }, func() error { return os.Chmod(top, 0o1777) }} {
		if err := bad(); err != nil {
			t.Fatal(err)
		}
		if err := ipc.Trusted(sock, 12345); err != ipc.ErrWritable {
			t.Errorf("in a directory that all may write: %v, want ErrWritable", err)
		}
	}
	if err := os.Chmod(top, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(top, 54321, -1); err != nil {
		t.Fatal(err)
	}
	if err := ipc.Trusted(sock, 12345); err != ipc.ErrOwner {
		t.Errorf("in a third user's directory: %v, want ErrOwner", err)
	}
	if err := os.Chown(top, 0, -1); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := ipc.Trusted(sock, 12345); err != ipc.ErrOwner {
		t.Errorf("a stranger's manager: %v, want ErrOwner", err)
	}
}
