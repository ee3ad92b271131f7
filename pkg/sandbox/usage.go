package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is what the processes below one take together.
type Usage struct {
	Memory    int64 // bytes in memory; what several share counts for each
	Processes int
	CPU       time.Duration // of those that live, and of those whom they waited for
}

// tick is the unit of times in /proc, USER_HZ.
const tick = time.Second / 100

// Below looks at all processes that come from this one, or at as many as most, if that is not
// zero, and one more. Each is shown to visit, if not nil, by its number in /proc.
func Below(most int, visit func(pid int)) (Usage, error) {
	var u Usage
	self, err := os.Readlink("/proc/self") // the number that /proc knows it by
	if err != nil {
		return u, err
	}
	todo := []string{self}
	for len(todo) > 0 && (most == 0 || u.Processes <= most) {
		pid := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if pid != self {
			u.add(pid)
			if n, err := strconv.Atoi(pid); err == nil && visit != nil {
				visit(n)
			}
		}
		if todo, err = children(pid, todo); err != nil && pid == self {
			return u, fmt.Errorf("look at processes: %w", err)
		}
	}
	return u, nil
}

// children appends the processes that were started by any thread of pid.
func children(pid string, list []string) ([]string, error) {
	tasks := "/proc/" + pid + "/task"
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return list, err
	}
	for _, t := range threads {
		b, err := os.ReadFile(tasks + "/" + t.Name() + "/children")
		if errors.Is(err, fs.ErrNotExist) && t.Name() == pid {
			return list, err // the kernel lacks CONFIG_PROC_CHILDREN, or it has ended
		}
		for f := range bytes.FieldsSeq(b) {
			list = append(list, string(f))
		}
	}
	return list, nil
}

// add counts a process, unless it has ended.
func (u *Usage) add(pid string) {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return
	}
	st, ok := parseStat(b)
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

// parseStat reads a line; the second field is the program's name, of any characters, in parentheses.
func parseStat(b []byte) (st stat, ok bool) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return st, false
	}
	f := bytes.Fields(b[i+1:]) // from the third on
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

// KillSession kills all processes of a session but its leader, group by group, and
// returns when none of them lives any more.
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
		time.Sleep(time.Millisecond) // the killed need it to end
	}
}
