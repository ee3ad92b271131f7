package probe

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// files are attempts on files.
var files = []Attempt{
	{Name: "read-secret", Class: Read, Do: func(t *Targets) error { return holds(t.Secret, t.Token) }},
	{Name: "read-secret-upwards", Class: Read, Do: func(t *Targets) error { return holds(upwards(t.Secret), t.Token) }},
	{Name: "read-secret-openat2", Class: Read, Do: readOpenat2},
	{Name: "read-secret-through-link", Class: Read, Do: readThroughLink},
	{Name: "read-secret-hard-link", Class: Read, Do: readThroughHardLink},
	{Name: "read-secret-by-handle", Class: Read, Do: readByHandle},
	{Name: "read-other-runner", Class: Read, Do: func(t *Targets) error { return opens(join(t.Other, "source.c"), unix.O_RDONLY) }},
	{Name: "list-other-runner", Class: Read, Do: func(t *Targets) error { return lists(t.Other) }},
	{Name: "list-area", Class: Read, Do: func(t *Targets) error { return lists(t.Area) }},
	{Name: "read-passwd", Class: Read, Do: func(*Targets) error { return opens("/etc/passwd", unix.O_RDONLY) }},
	{Name: "read-hostname", Class: Read, Do: func(*Targets) error { return opens("/etc/hostname", unix.O_RDONLY) }},
	{Name: "list-root-home", Class: Read, Do: func(*Targets) error { return lists("/root") }},
	{Name: "inherited-descriptor", Class: Read, Do: inheritedDescriptor},
	{Name: "read-first-environ", Class: Read, Do: func(*Targets) error { return reads("/proc/1/environ") }},
	{Name: "read-first-mem", Class: Read, Do: func(*Targets) error { return opens("/proc/1/mem", unix.O_RDONLY) }},
	{Name: "read-first-maps", Class: Read, Do: func(*Targets) error { return reads("/proc/1/maps") }},
	{Name: "read-first-root", Class: Read, Do: func(*Targets) error { return lists("/proc/1/root/") }},
	{Name: "read-first-cwd", Class: Read, Do: func(*Targets) error { return lists("/proc/1/cwd/") }},
	{Name: "read-first-descriptors", Class: Read, Do: func(*Targets) error { return leads("/proc/1/fd/0") }},
	{Name: "read-process-environ", Class: Read, Do: func(t *Targets) error { return reads(procOf(t, "environ")) }},
	{Name: "read-process-mem", Class: Read, Do: func(t *Targets) error { return opens(procOf(t, "mem"), unix.O_RDONLY) }},
	{Name: "read-process-maps", Class: Read, Do: func(t *Targets) error { return reads(procOf(t, "maps")) }},
	{Name: "read-process-root", Class: Read, Do: func(t *Targets) error { return lists(procOf(t, "root/")) }},
	{Name: "read-process-cwd", Class: Read, Do: func(t *Targets) error { return lists(procOf(t, "cwd/")) }},
	{Name: "read-process-descriptors", Class: Read, Do: func(t *Targets) error { return leads(procOf(t, "fd/0")) }},

	{Name: "write-secret", Class: Write, Do: func(t *Targets) error { return opens(t.Secret, unix.O_WRONLY|unix.O_APPEND) }},
	{Name: "write-tmp", Class: Write, Do: func(t *Targets) error { return creates(t.Temp) }},
	{Name: "write-var-tmp", Class: Write, Do: func(t *Targets) error { return creates(t.VarTmp) }},
	{Name: "write-dev-shm", Class: Write, Do: func(t *Targets) error { return creates(t.Shm) }},
	{Name: "write-area", Class: Write, Do: func(t *Targets) error { return creates(t.Area) }},
	{Name: "write-other-runner", Class: Write, Do: func(t *Targets) error { return creates(t.Other) }},
	{Name: "write-toolchain", Class: Write, Do: func(t *Targets) error { return opens(t.Toolchain, unix.O_WRONLY|unix.O_APPEND) }},
	{Name: "write-beside-toolchain", Class: Write, Do: func(t *Targets) error { return createsIn(filepath.Dir(t.Toolchain), t.Beside) }},
	{Name: "truncate-secret", Class: Write, Do: truncateToItsSize},
	{Name: "touch-secret", Class: Write, Do: touchAsItWas},
	{Name: "write-root", Class: Write, Do: func(t *Targets) error { return createsIn("/", t.Root) }},
	{Name: "write-etc", Class: Write, Do: func(t *Targets) error { return createsIn("/etc", t.Etc) }},
	{Name: "write-process-mem", Class: Write, Do: func(t *Targets) error { return opens(procOf(t, "mem"), unix.O_WRONLY) }},
	{Name: "write-process-oom", Class: Write, Do: func(t *Targets) error { return opens(procOf(t, "oom_score_adj"), unix.O_WRONLY) }},

	{Name: "stat-secret", Class: Oracle, Do: func(t *Targets) error { var st unix.Stat_t; return unix.Stat(t.Secret, &st) }},
	{Name: "watch-secret", Class: Info, Do: watchSecret},
}

// join returns a name in a directory, or "" if there is no directory.
func join(dir, name string) string {
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, name)
}

// procOf returns a file of the other process in /proc. With a pid namespace its number may be that of a
// process of this program, and is then no one else's.
func procOf(t *Targets, name string) string {
	if t.Process == 0 || t.Process == unix.Getpid() || t.Process == unix.Getppid() {
		return ""
	}
	return "/proc/" + strconv.Itoa(t.Process) + "/" + name
}

// upwards returns a name for an absolute name, relative to the root found upwards from here.
func upwards(name string) string {
	if name == "" {
		return ""
	}
	return "../../../../../../../../../../../../../../../.." + name
}

func opens(name string, flags int) error {
	fd, err := unix.Open(name, flags|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// reads requires reading at least a byte: anyone can open some files of /proc.
func reads(name string) error {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var buf [1]byte
	n, err := unix.Read(fd, buf[:])
	if err == nil && n == 0 {
		return unix.ENODATA
	}
	return err
}

func lists(name string) error {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var buf [4096]byte
	_, err = unix.Getdents(fd, buf[:])
	return err
}

// holds requires that a file can be read and contains the token.
func holds(name, token string) error {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return hasToken(fd, token)
}

func hasToken(fd int, token string) error {
	var buf [4096]byte
	n, err := unix.Read(fd, buf[:])
	if err == nil && (token == "" || !bytes.Contains(buf[:max(n, 0)], []byte(token))) {
		return unix.ENODATA // another file of that name
	}
	return err
}

// creates makes a file in a directory and removes it.
func creates(dir string) error {
	name := join(dir, "rdistccd-probe."+strconv.Itoa(unix.Getpid()))
	fd, err := unix.Open(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	unix.Close(fd)
	_ = unix.Unlink(name)
	return nil
}

// createsIn makes a file in a directory that exists on the host as well, if it is the host's: a private
// tree has one with the same name.
func createsIn(dir, identity string) error {
	if identity == "" || Identity(dir) != identity {
		return unix.ENODEV
	}
	return creates(dir)
}

// Identity identifies a file or directory of the machine by its device and inode number. It is "" for a missing one.
func Identity(name string) string {
	var st unix.Stat_t
	if unix.Stat(name, &st) != nil {
		return ""
	}
	return strconv.FormatUint(uint64(st.Dev), 16) + ":" + strconv.FormatUint(st.Ino, 16)
}

// leads requires reading where a link of /proc leads, which only a process that may follow it can.
func leads(name string) error {
	var buf [256]byte
	_, err := unix.Readlink(name, buf[:])
	return err
}

// scratch returns a name in the job's directory.
func scratch(what string) string { return "probe-" + what + "." + strconv.Itoa(unix.Getpid()) }

func readOpenat2(t *Targets) error {
	fd, err := unix.Openat2(unix.AT_FDCWD, t.Secret, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC})
	if err != nil {
		return err
	}
	return hasToken(fd, t.Token)
}

func readThroughLink(t *Targets) error {
	name := scratch("link")
	if err := unix.Symlink(t.Secret, name); err != nil {
		return err
	}
	defer func() { _ = unix.Unlink(name) }()
	return holds(name, t.Token)
}

func readThroughHardLink(t *Targets) error {
	name := scratch("hard")
	if err := unix.Link(t.Secret, name); err != nil {
		return err
	}
	defer func() { _ = unix.Unlink(name) }()
	return holds(name, t.Token)
}

// readByHandle bypasses names: a handle opens a file wherever it is.
func readByHandle(t *Targets) error {
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, t.Secret, 0)
	if err != nil {
		return err
	}
	mount, err := unix.Open(filepath.Dir(t.Secret), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	fd, err := unix.OpenByHandleAt(mount, h, unix.O_RDONLY)
	if err != nil {
		return err
	}
	return hasToken(fd, t.Token)
}

// inheritedDescriptor looks for descriptors left open by the process that started this one: anything except
// the three that a compiler has, this program's own file, and the attempt's pipe.
func inheritedDescriptor(*Targets) error {
	for fd := 3; fd < 1024; fd++ {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil {
			continue
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFIFO:
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC != 0 {
				continue // made since
			}
		case unix.S_IFREG:
			if st.Mode&0o111 != 0 {
				continue
			}
		case 0: // an epoll or event descriptor of the runtime
			continue
		}
		return nil
	}
	return unix.EBADF
}

func truncateToItsSize(t *Targets) error {
	var st unix.Stat_t
	if err := unix.Stat(t.Secret, &st); err != nil {
		return err
	}
	err := unix.Truncate(t.Secret, st.Size)
	_ = unix.UtimesNanoAt(unix.AT_FDCWD, t.Secret, []unix.Timespec{st.Atim, st.Mtim}, 0)
	return err
}

func touchAsItWas(t *Targets) error {
	var st unix.Stat_t
	if err := unix.Stat(t.Secret, &st); err != nil {
		return err
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, t.Secret, []unix.Timespec{st.Atim, st.Mtim}, 0)
}

// watchSecret watches what others do with a file.
func watchSecret(t *Targets) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return err
	}
	_, err = unix.InotifyAddWatch(fd, t.Secret, unix.IN_OPEN)
	return err
}

// tempDir returns the job's directory for temporary files.
func tempDir() string { return os.Getenv("TMPDIR") }
