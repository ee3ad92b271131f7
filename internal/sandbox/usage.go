package sandbox

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is what the processes below one use together.
type Usage struct {
	Memory    int64 // bytes in memory; shared memory counts for each process
	Processes int
	CPU       time.Duration // of those alive, and of those that they have waited for
}

// tick is the unit of times in /proc, USER_HZ.
const tick = time.Second / 100

// Family is the descendants of this process. It is examined several times a second for each running
// command, so a look takes few system calls and no memory. It is not for concurrent use.
type Family struct {
	proc int    // descriptor of the directory /proc
	self string // this process's number in it
	text [4096]byte
	dir  [8192]byte
}

// OpenFamily returns the family of this process, as proc shows it: the directory of a procfs, which may be that of a namespace
// around this one. It lasts for the life of the process.
func OpenFamily(proc string) (*Family, error) {
	f := &Family{}
	var err error
	if f.proc, err = unix.Open(proc, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("look at processes: %s: %w", proc, err)
	}
	if f.self, err = os.Readlink(proc + "/self"); err == nil && !f.alone() {
		_, err = f.children(f.self, nil)
	}
	if err != nil {
		f.close()
		return nil, fmt.Errorf("look at processes: %w", err)
	}
	return f, nil
}

func (f *Family) close() { unix.Close(f.proc) }

// Proc returns the descriptor of the procfs.
func (f *Family) Proc() int { return f.proc }

// alone reports whether all processes that /proc shows are descendants of this one, as it is the first of
// its namespace.
func (f *Family) alone() bool { return f.self == "1" }

// Usage examines all of them, or at most most and one more if that is not zero. It calls visit, if not nil,
// with the number of each in /proc.
func (f *Family) Usage(most int, visit func(pid int)) (u Usage, err error) {
	if f.alone() {
		if _, err := unix.Seek(f.proc, 0, io.SeekStart); err != nil {
			return u, fmt.Errorf("look at processes: %w", err)
		}
		return u, f.each(f.proc, func(pid string) bool {
			if pid != f.self && pid[0] <= '9' {
				f.visit(pid, &u, visit)
			}
			return most == 0 || u.Processes <= most
		})
	}
	todo, err := f.children(f.self, nil)
	if err != nil {
		return u, fmt.Errorf("look at processes: %w", err)
	}
	for len(todo) > 0 && (most == 0 || u.Processes <= most) {
		pid := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		f.visit(pid, &u, visit)
		todo, _ = f.children(pid, todo) // none if it has ended
	}
	return u, nil
}

func (f *Family) visit(pid string, u *Usage, visit func(pid int)) {
	u.add(f.read(pid + "/stat"))
	if visit == nil {
		return
	}
	if n, err := strconv.Atoi(pid); err == nil {
		visit(n)
	}
}

// children appends the processes that were started by any thread of pid.
func (f *Family) children(pid string, list []string) ([]string, error) {
	tasks, err := unix.Openat(f.proc, pid+"/task", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return list, err
	}
	defer unix.Close(tasks)
	missing := error(nil)
	err = f.each(tasks, func(thread string) bool {
		fd, err := unix.Openat(tasks, thread+"/children", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			if thread == pid {
				missing = err // the kernel lacks CONFIG_PROC_CHILDREN, or the process has ended
			}
			return true
		}
		defer unix.Close(fd)
		for rest := []byte(nil); ; {
			n, err := unix.Read(fd, f.text[len(rest):])
			if err != nil || n <= 0 {
				return true // each number is followed by a space
			}
			line := f.text[:len(rest)+n]
			end := bytes.LastIndexByte(line, ' ') + 1
			for child := range bytes.FieldsSeq(line[:end]) {
				list = append(list, string(child))
			}
			rest = f.text[:copy(f.text[:], line[end:])]
		}
	})
	return list, cmp.Or(err, missing)
}

// each calls do with every name in a directory, until it returns false.
func (f *Family) each(dir int, do func(name string) bool) error {
	var names []string
	for {
		n, err := unix.ReadDirent(dir, f.dir[:])
		if err != nil || n <= 0 {
			return err
		}
		_, _, names = unix.ParseDirent(f.dir[:n], -1, names[:0])
		for _, name := range names {
			if !do(name) {
				return nil
			}
		}
	}
}

// read returns a short file's text, valid until the next call, or nil if the file is missing.
func (f *Family) read(name string) []byte {
	fd, err := unix.Openat(f.proc, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, f.text[:])
	if err != nil {
		return nil
	}
	return f.text[:n]
}

// add counts a process by its line of /proc/PID/stat, unless it has ended.
func (u *Usage) add(line []byte) {
	st, ok := parseStat(line)
	if !ok {
		return
	}
	u.CPU += st.cpu
	if st.state != 'Z' && st.state != 'X' {
		u.Processes++
		u.Memory += st.pages * int64(os.Getpagesize())
	}
}

// stat is a part of /proc/PID/stat (proc_pid_stat(5)).
type stat struct {
	state          byte
	group, session int
	cpu            time.Duration
	pages          int64 // resident
}

// parseStat parses a line. The second field is the program's name, of any characters, in parentheses.
func parseStat(b []byte) (st stat, ok bool) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return st, false
	}
	f := bytes.Fields(b[i+1:]) // from the third field on
	if len(f) < 22 {
		return st, false
	}
	num := func(field int) int64 {
		n, err := strconv.ParseInt(string(f[field-3]), 10, 64)
		ok = ok && err == nil
		return n
	}
	ok = true
	st = stat{
		state: f[0][0], group: int(num(5)), session: int(num(6)),
		cpu:   time.Duration(num(14)+num(15)+num(16)+num(17)) * tick,
		pages: num(24),
	}
	return st, ok
}

// KillSession kills all processes of a session except its leader, group by group, and returns when none of
// them is alive.
func KillSession(leader int) error {
	for {
		all, err := os.ReadDir("/proc")
		if err != nil {
			return fmt.Errorf("look for processes: %w", err)
		}
		alive := 0
		for _, e := range all {
			pid, err := strconv.Atoi(e.Name())
			if err != nil || pid == leader {
				continue
			}
			b, err := os.ReadFile("/proc/" + e.Name() + "/stat")
			if err != nil {
				continue
			}
			if st, ok := parseStat(b); ok && st.session == leader && st.state != 'Z' && st.state != 'X' {
				alive++
				if st.group != leader {
					_ = unix.Kill(-st.group, unix.SIGKILL)
				}
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		if alive == 0 {
			return nil
		}
		time.Sleep(time.Millisecond) // killed processes need time to end
	}
}
