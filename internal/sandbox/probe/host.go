package probe

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Host is the outside of a sandbox: things that belong to the user of this process and that a probe of the
// same user could reach if nothing confines it. It also records what does reach it.
type Host struct {
	t       Targets
	dir     string
	made    []string // directories and files that Close removes
	locks   []int    // descriptors of the shared ones
	closers []func()
	touched atomic.Int64 // number of connections and datagrams
	secret  os.FileInfo
	lacks   []string
}

// NewHost makes targets below dir, which should be where the daemon keeps its files; "" means a directory
// for temporary files. What this machine lacks (IPv6, a /dev/shm) is left out, and Lacks names it. The
// caller sets Program and Toolchain.
//
// An error says that a target cannot be made here; the others have been removed.
func NewHost(dir string) (*Host, error) {
	h := &Host{}
	if err := h.open(dir); err != nil {
		h.Close()
		return nil, fmt.Errorf("targets of the probe: %w", err)
	}
	return h, nil
}

func (h *Host) open(dir string) (err error) {
	if h.dir, err = os.MkdirTemp(dir, "probe-"); err != nil {
		return err
	}
	h.made = append(h.made, h.dir)
	t := &h.t
	t.Root, t.Etc = Identity("/"), Identity("/etc")
	t.Token = "token-" + rand.Text()
	t.Secret, t.Area, t.Other = filepath.Join(h.dir, "secret"), h.dir, filepath.Join(h.dir, "other")
	if err = os.Mkdir(t.Other, 0o700); err != nil {
		return err
	}
	for _, name := range []string{t.Secret, filepath.Join(t.Other, "source.c")} {
		if err = os.WriteFile(name, []byte(t.Token+"\n"), 0o600); err != nil {
			return err
		}
	}
	if h.secret, err = os.Stat(t.Secret); err != nil {
		return err
	}
	for _, d := range []struct {
		in   string
		name *string
	}{{"/tmp", &t.Temp}, {"/var/tmp", &t.VarTmp}, {"/dev/shm", &t.Shm}} {
		if *d.name, err = h.shared(d.in); err != nil {
			h.lacks = append(h.lacks, err.Error())
		}
	}
	h.listen("tcp", "127.0.0.1:0", &t.TCP4)
	h.listen("tcp", "[::1]:0", &t.TCP6)
	h.listen("unix", filepath.Join(h.dir, "socket"), &t.Unix)
	h.listen("unix", "@rdistccd-probe-"+rand.Text(), &t.Abstract)
	h.receive()
	h.share()
	return h.sleeper()
}

// Shared begins the names of directories that a Host makes in /tmp, /var/tmp and /dev/shm. Each is locked
// (flock) while its Host lives, and has another name until then.
const (
	Shared    = "rdistccd-probe-"
	newShared = ".rdistccd-probe-"
)

// shared makes a directory in a place that others use too.
func (h *Host) shared(in string) (string, error) {
	tmp, err := os.MkdirTemp(in, newShared)
	if err != nil {
		return "", err
	}
	path := filepath.Join(in, Shared+filepath.Base(tmp)[len(newShared):])
	fd, err := unix.Open(tmp, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = os.Remove(tmp)
		return "", &os.PathError{Op: "open", Path: tmp, Err: err}
	}
	if err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		unix.Close(fd)
		_ = os.Remove(tmp)
		return "", fmt.Errorf("lock %s: %w", tmp, err)
	}
	h.made = append(h.made, path)
	h.locks = append(h.locks, fd)
	return path, nil
}

// Targets returns the host's targets; the caller may change the copy.
func (h *Host) Targets() *Targets {
	t := h.t
	return &t
}

// Lacks returns what this machine lacks.
func (h *Host) Lacks() []string { return h.lacks }

// listen accepts and counts connections until Close.
func (h *Host) listen(network, at string, name *string) {
	l, err := net.Listen(network, at)
	if err != nil {
		h.lacks = append(h.lacks, err.Error())
		return
	}
	*name = l.Addr().String()
	if network == "unix" && (*name)[0] == '@' {
		*name = (*name)[1:]
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			h.touched.Add(1)
			c.Close()
		}
	}()
	h.closers = append(h.closers, func() { l.Close(); <-done })
}

// receive counts datagrams until Close.
func (h *Host) receive() {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		h.lacks = append(h.lacks, err.Error())
		return
	}
	h.t.UDP = c.LocalAddr().String()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, _, err := c.ReadFrom(make([]byte, 16)); err != nil {
				return
			}
			h.touched.Add(1)
		}
	}()
	h.closers = append(h.closers, func() { c.Close(); <-done })
}

// share makes a System V segment and a POSIX queue that the same user may open.
func (h *Host) share() {
	for key := 0x7264_0000 | os.Getpid()&0xffff; ; key++ {
		id, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|unix.IPC_EXCL|0o600)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			h.lacks = append(h.lacks, "a System V segment: "+err.Error())
			break
		}
		h.t.ShmKey = key
		h.closers = append(h.closers, func() { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
		break
	}
	queue := "rdistccd-probe-" + rand.Text()
	name, _ := unix.BytePtrFromString(queue)
	fd, _, no := unix.Syscall6(unix.SYS_MQ_OPEN, pointer(name), unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600, 0, 0, 0)
	if no != 0 {
		h.lacks = append(h.lacks, "a message queue: "+no.Error())
		return
	}
	h.t.Queue = queue
	h.closers = append(h.closers, func() {
		unix.Close(int(fd))
		_, _, _ = unix.Syscall(unix.SYS_MQ_UNLINK, pointer(name), 0, 0)
	})
}

// sleepArg has Main do nothing until its input ends.
const sleepArg = "sleep"

var program = "/proc/self/exe" // a test names another

// sleeper starts a process that does nothing, in a group of its own: this program, as a container may have no other. It reads from a
// pipe of this process's, so that it ends with this one, in whatever way that ends.
func (h *Host) sleeper() error {
	cmd := exec.Command(program)
	cmd.Args = []string{Arg0, sleepArg}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	_, err := cmd.StdinPipe() // Wait closes it
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	h.t.Process = cmd.Process.Pid
	h.closers = append(h.closers, func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return nil
}

// Touched returns what has reached the host, whatever a probe reports: connections, and files that are new
// or were written.
func (h *Host) Touched() []string {
	var what []string
	if n := h.touched.Load(); n > 0 {
		what = append(what, fmt.Sprintf("%d connections or datagrams", n))
	}
	for _, dir := range []string{h.dir, h.t.Other, h.t.Temp, h.t.VarTmp, h.t.Shm} {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			switch name := filepath.Join(dir, e.Name()); name {
			case h.t.Secret, h.t.Other, h.t.Unix, filepath.Join(h.t.Other, "source.c"):
			default:
				what = append(what, "file "+name)
			}
		}
	}
	now, err := os.Stat(h.t.Secret)
	if err != nil || now.Size() != h.secret.Size() || !now.ModTime().Equal(h.secret.ModTime()) {
		what = append(what, "the secret was written")
	}
	return what
}

// Close removes the targets, whether or not all of them were made.
func (h *Host) Close() {
	for _, f := range h.closers {
		f()
	}
	for _, name := range h.made {
		_ = os.RemoveAll(name)
	}
	for _, fd := range h.locks {
		unix.Close(fd)
	}
}
