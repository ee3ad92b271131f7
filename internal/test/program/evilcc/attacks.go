package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// attacks are those that are not in the probe: they want the machine, deceive the daemon with what they leave as the
// object, change the toolchain, or look for whatever there is. Most of them say nothing of their success: the test sees it.
var attacks = map[string]func(*order) error{
	// Time, memory, room, processes.
	"spin":            func(*order) error { return spin() },
	"sleep":           func(*order) error { return sleep() },
	"ignore-signals":  func(*order) error { signal.Ignore(); return spin() },
	"stop-itself":     func(*order) error { return errors.Join(unix.Kill(unix.Getpid(), unix.SIGSTOP), sleep()) },
	"stop-all":        func(*order) error { return errors.Join(unix.Kill(-1, unix.SIGSTOP), sleep()) },
	"kill-all":        func(*order) error { return errors.Join(unix.Kill(-1, unix.SIGKILL), unix.Kill(0, unix.SIGKILL)) },
	"fork-bomb":       func(*order) error { return forkBomb() },
	"exec-bomb":       func(*order) error { return execBomb() },
	"thread-bomb":     func(*order) error { return threadBomb() },
	"memory":          func(*order) error { return errors.Join(memory(1<<40), sleep()) },
	"memory-of-many":  func(*order) error { return memoryOfMany() },
	"memory-unlinked": func(*order) error { return errors.Join(unlinked(), sleep()) },
	"disk":            func(*order) error { return errors.Join(pour("fill", 1<<40), sleep()) },
	"files":           func(*order) error { return manyFiles() },
	"deep":            func(*order) error { return deep() },
	"stderr-flood":    func(*order) error { return flood(os.Stderr) },
	"stdout-flood":    func(*order) error { return flood(os.Stdout) },
	"orphan":          func(*order) error { return orphan(sleep) },
	"orphan-spins":    func(*order) error { return orphan(spin) },
	"orphan-writes":   func(*order) error { return orphan(func() error { return flood(os.Stderr) }) },
	"orphan-session":  func(*order) error { return orphan(func() error { _, _ = unix.Setsid(); return sleep() }) },

	// What is found in place of the object.
	"object-flood":     func(*order) error { return pour(object(), 1<<40) },
	"object-zeros":     func(*order) error { return zeros(10 << 30) },
	"object-small":     func(*order) error { return zeros(1) },
	"object-large":     func(*order) error { return zeros(200 << 20) },
	"object-huge":      func(*order) error { return zeros(1 << 50) },
	"object-secret":    func(o *order) error { return link(o.targets.Secret) },
	"object-passwd":    func(*order) error { return link("/etc/passwd") },
	"object-environ":   func(*order) error { return link("/proc/self/environ") },
	"object-parent":    func(*order) error { return link("/proc/1/environ") },
	"object-memory":    func(*order) error { return link("/proc/1/mem") },
	"object-root":      func(o *order) error { return link("/proc/1/root" + o.targets.Secret) },
	"object-zero":      func(*order) error { return link("/dev/zero") },
	"object-random":    func(*order) error { return link("/dev/urandom") },
	"object-loop":      func(*order) error { return link(object()) },
	"object-directory": func(*order) error { return os.Mkdir(object(), 0o777) },
	"object-fifo":      func(*order) error { return unix.Mknod(object(), unix.S_IFIFO|0o666, 0) },
	"object-socket":    func(*order) error { return unix.Mknod(object(), unix.S_IFSOCK|0o666, 0) },
	"object-device":    func(*order) error { return unix.Mknod(object(), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))) },
	"object-disk":      func(*order) error { return unix.Mknod(object(), unix.S_IFBLK|0o666, int(unix.Mkdev(8, 0))) },
	"object-set-id":    func(*order) error { return setID() },
	"object-leased":    func(*order) error { return leased() },
	"object-own-file": func(*order) error {
		return errors.Join(unix.Link("/proc/self/exe", object()), unix.Rename(self(), objectName))
	},
	"other-outputs":   others,
	"directory-moved": func(*order) error { return moved() },
	"directory-shut":  func(*order) error { return shut() },

	// The toolchain, and what later jobs find.
	"change-toolchain": func(*order) error { return changeToolchain() },
	"leave":            leave,
	"look":             look,
	"list":             func(*order) error { return list() },
	"processes":        func(*order) error { return processes() },
}

// errSaid is what comes of attacks that say what they see: the test judges that.
var errSaid = errors.New("it says what it sees")

// object returns the name of the object in the working directory, which is not there yet.
func object() string {
	_ = os.Remove(objectName) // a genuine part may have made it
	return objectName
}

// objectName is the name of what the job makes.
var objectName = "out.o"

// self is the name of this program.
func self() string {
	name, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return os.Args[0]
	}
	return name
}

func spin() error {
	for i := 0; i >= 0; i = (i + 1) & 0xffff {
	}
	return nil
}

func sleep() error {
	for {
		_ = unix.Pause()
	}
}

// fork makes a process that continues here, with this one thread. 0 is returned in it.
func fork() (int, error) {
	pid, _, no := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if no != 0 {
		return 0, no
	}
	return int(pid), nil
}

func forkBomb() error {
	for {
		_, _, _ = unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0) // parent and child go on
	}
}

func execBomb() error {
	for {
		cmd := exec.Command("/proc/self/exe")
		cmd.Stderr = os.Stderr
		_ = cmd.Start() // it makes the same attack
	}
}

func threadBomb() error {
	for {
		p := make([]int, 2) // both ends stay open, and nothing is written
		if err := unix.Pipe(p); err != nil {
			return errors.Join(err, sleep())
		}
		go func() { _, _ = unix.Read(p[0], make([]byte, 1)) }()
	}
}

// memory takes n bytes, or as much as there is.
func memory(n int) error {
	const piece = 16 << 20
	for taken := 0; taken < n; taken += piece {
		b, err := unix.Mmap(-1, 0, piece, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return err
		}
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
	}
	return nil
}

func memoryOfMany() error {
	for range 64 {
		if pid, err := fork(); err == nil && pid == 0 {
			_ = memory(200 << 20)
			for {
				_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
			}
		}
	}
	return sleep()
}

// pour writes n bytes into a file, or as many as there is room for.
func pour(name string, n int64) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return pourInto(f, n)
}

func pourInto(f *os.File, n int64) error {
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = byte(i)
	}
	for ; n > 0; n -= int64(len(b)) {
		if _, err := f.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// unlinked fills files that have no name.
func unlinked() error {
	for i := 0; ; i++ {
		f, err := os.Create("fill" + strconv.Itoa(i))
		if err != nil {
			return err
		}
		if err := errors.Join(os.Remove(f.Name()), pourInto(f, 64<<20)); err != nil {
			return err
		}
	}
}

func manyFiles() error {
	for i := range 1_000_000 {
		if err := os.WriteFile("file"+strconv.Itoa(i), nil, 0o666); err != nil {
			return err
		}
	}
	return nil
}

func deep() error {
	for range 100_000 {
		if err := errors.Join(os.Mkdir("d", 0o777), unix.Chdir("d")); err != nil {
			return err
		}
	}
	return nil
}

func flood(f *os.File) error {
	line := strings.Repeat("x", 1000) + "\n"
	for {
		if _, err := f.WriteString(line); err != nil {
			return err
		}
	}
}

// orphan leaves a process behind, and ends as if all were well.
func orphan(f func() error) error {
	if err := os.WriteFile(object(), []byte("object"), 0o666); err != nil {
		return err
	}
	say("made an object, and leaves a process behind")
	for range 2 { // the second one has lost its parent
		pid, err := fork()
		if err != nil {
			return err
		}
		if pid != 0 {
			unix.Exit(0)
		}
	}
	return f()
}

// zeros makes an object of n bytes that take no room.
func zeros(n int64) error {
	f, err := os.Create(object())
	if err != nil {
		return err
	}
	if err := f.Truncate(n); err != nil {
		return err
	}
	unix.Exit(0)
	return nil
}

// link makes the object a link, and ends as if all were well.
func link(to string) error {
	if err := os.Symlink(to, object()); err != nil {
		return err
	}
	unix.Exit(0)
	return nil
}

func setID() error {
	if err := os.WriteFile(object(), []byte("object"), 0o777); err != nil {
		return err
	}
	if err := unix.Chmod(objectName, 0o6777); err != nil {
		return err
	}
	unix.Exit(0)
	return nil
}

// leased makes an object that nobody can open without this process's leave.
func leased() error {
	return orphan(func() error {
		f, err := os.OpenFile(objectName, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
			return err
		}
		signal.Ignore()
		return sleep()
	})
}

// others makes files that the job does not declare.
func others(o *order) error {
	var errs []error
	for _, name := range []string{object(), "evil.o", "../evil.o", "a\nb", "-o", strings.Repeat("x", 255), "/evil.o", "/tmp/evil.o", "/dev/evil"} {
		errs = append(errs, os.WriteFile(name, []byte(o.mark), 0o666))
	}
	fmt.Fprintln(os.Stderr, errors.Join(errs...))
	unix.Exit(0)
	return nil
}

// moved puts a link to the root in the place of the working directory.
func moved() error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	if err := os.WriteFile(object(), []byte("object"), 0o666); err != nil {
		return err
	}
	if err := errors.Join(os.Rename(dir, dir+".away"), os.Symlink("/proc/1/root", dir)); err != nil {
		return err
	}
	unix.Exit(0)
	return nil
}

// shut makes directories that nobody may enter.
func shut() error {
	err := os.MkdirAll("shut/in/here", 0o777)
	for _, dir := range []string{"shut/in", "shut", ".", "/tmp", "/"} {
		err = errors.Join(err, unix.Chmod(dir, 0))
	}
	fmt.Fprintln(os.Stderr, err)
	unix.Exit(0)
	return nil
}
