package privatetree

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/sandbox"
)

// Commands are bounded by rlimits, which the kernel applies to each process, and by looking at all their processes
// together. A command inherits its rlimits from the process that starts it. That process sets its own for the moment
// of the start, so that the command is never without them.

// maxOpen bounds the descriptors of each process of a command.
const maxOpen = 1024

// Timing of looks at a running command: most compiles end before the first one.
const (
	firstLook = 50 * time.Millisecond
	nextLook  = 75 * time.Millisecond
)

// spareMemory is what this process may map while it has a command's limit.
const spareMemory = 256 << 20 // bytes

// spareTasks is how many processes and threads count as the command's user having besides its own. With
// them the bound is above that of a control group, which reports that it was met: this one would only make
// a command fail.
const spareTasks = groupTasks + 32

// sharedTasks is by how much the tasks of one user may grow while several runners share it: so many that no
// honest compile meets the limit, and few enough for a machine to bear until the next look.
const sharedTasks = 1024

// limitSelf sets the limits that are the same for all commands.
func (c *child) limitSelf() error {
	if err := unix.Prlimit(0, unix.RLIMIT_CORE, &unix.Rlimit{}, nil); err != nil {
		return err
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	files.Max = min(files.Max, maxOpen)
	files.Cur = files.Max
	// The library's own function: it would otherwise restore the limit from before its start in commands.
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	for i, which := range momentary {
		if err := unix.Prlimit(0, which, nil, &c.own[i]); err != nil {
			return err
		}
	}
	// Only a user of its own, or one in a user namespace of its own, has a process count of its own.
	c.countsTasks = c.cred != nil || c.userNamespace
	if !c.countsTasks {
		c.otherTasks = tasksOf(uint32(unix.Getuid()))
	}
	if c.family != nil {
		c.measures |= sandbox.Bounds
	}
	return nil
}

// momentary lists the limits that this process has only for the moment of a start.
var momentary = [...]int{unix.RLIMIT_AS, unix.RLIMIT_NPROC}

// bounds holds the rlimits of one command.
type bounds struct {
	sandbox.Limits
	tasks uint64 // RLIMIT_NPROC; 0: none
}

// before sets this process's soft limits, for a command to inherit.
func (c *child) before(l *sandbox.Limits) (b bounds, err error) {
	b.Limits = *l
	if err := c.soft(unix.RLIMIT_FSIZE, limit(l.File)); err != nil {
		return b, err
	}
	if l.Processes > 0 && (c.countsTasks || c.otherTasks >= 0) {
		b.tasks = uint64(l.Processes) + spareTasks
		if !c.countsTasks {
			b.tasks = uint64(c.otherTasks + sharedTasks)
		}
		if err := c.soft(unix.RLIMIT_NPROC, b.tasks); err != nil {
			return b, err
		}
	}
	if m := uint64(l.Memory); m > 0 && c.mapped+spareMemory < m {
		return b, c.soft(unix.RLIMIT_AS, m)
	}
	return b, nil
}

// restore lifts this process's limits.
func (c *child) restore(b *bounds) {
	if b.Memory > 0 {
		_ = unix.Prlimit(c.hold.Int(0), unix.RLIMIT_AS, &c.own[0], nil)
	}
	if b.tasks > 0 {
		_ = unix.Prlimit(c.hold.Int(0), unix.RLIMIT_NPROC, &c.own[1], nil)
	}
}

// after sets the hard limits of a started command.
func (c *child) after(b *bounds, pid int) {
	if c.hard(b, pid) != nil || !c.alone {
		return // it has ended, or its children's numbers are unknown
	}
	// What it has started already: if nothing else runs, those have the next numbers.
	for missing := 0; missing < 4; {
		if pid++; c.hard(b, pid) != nil {
			missing++
		}
	}
}

// hard sets the limits of a process. An error means that no process has that number.
func (c *child) hard(b *bounds, pid int) error {
	if err := c.prlimit(pid, unix.RLIMIT_FSIZE, limit(b.File)); err != nil {
		return err
	}
	if b.Memory > 0 {
		_ = c.prlimit(pid, unix.RLIMIT_AS, uint64(b.Memory))
	}
	if b.tasks > 0 {
		_ = c.prlimit(pid, unix.RLIMIT_NPROC, b.tasks)
	}
	if b.CPU > 0 {
		_ = c.prlimit(pid, unix.RLIMIT_CPU, uint64((b.CPU+time.Second-1)/time.Second)+1)
	}
	return nil
}

// soft sets a limit of this process, as far as that is permitted.
func (c *child) soft(which int, n uint64) error {
	var old unix.Rlimit
	if err := unix.Prlimit(0, which, nil, &old); err != nil {
		return err
	}
	n = min(n, old.Max)
	if n == old.Cur {
		return nil
	}
	return unix.Prlimit(c.hold.Int(0), which, &unix.Rlimit{Cur: n, Max: old.Max}, nil)
}

// prlimit sets both limits of a process, or lowers them as far as possible.
func (c *child) prlimit(pid, which int, n uint64) error {
	l := unix.Rlimit{Cur: n, Max: n}
	err := unix.Prlimit(c.hold.Int(pid), which, &l, nil)
	if errors.Is(err, unix.EPERM) { // it already has less
		return nil
	}
	return err
}

// tasksOf returns how many threads a user has.
func tasksOf(uid uint32) (n int) {
	all, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, e := range all {
		var st unix.Stat_t
		// A directory has a link for itself, one for its name, and one for each subdirectory.
		if e.Name()[0] <= '9' && unix.Lstat("/proc/"+e.Name()+"/task", &st) == nil && st.Uid == uid {
			n += int(st.Nlink) - 2
		}
	}
	return n
}

func limit(n int64) uint64 {
	if n <= 0 {
		return unix.RLIM_INFINITY
	}
	return uint64(n)
}

// mapped returns how much this process maps, in bytes.
func mapped() uint64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return unix.RLIM_INFINITY / 2
	}
	first, _, _ := strings.Cut(string(b), " ")
	n, err := strconv.ParseUint(first, 10, 64)
	if err != nil {
		return unix.RLIM_INFINITY / 2
	}
	return n * uint64(os.Getpagesize())
}

// watched reports whether a command's processes need to be looked at.
func (c *child) watched(l *sandbox.Limits) bool {
	return c.family != nil && (l.JobMemory > 0 || l.Processes > 0 || l.CPU > 0 || c.bare != "")
}

// look returns the excess of a command that has more than it may.
func (c *child) look(l *sandbox.Limits) sandbox.Excess {
	u, err := c.family.Usage(l.Processes, nil)
	switch {
	case err != nil:
	case l.JobMemory > 0 && u.Memory > l.JobMemory:
		return sandbox.ExcessMemory
	case l.Processes > 0 && u.Processes > l.Processes:
		return sandbox.ExcessProcesses
	case l.CPU > 0 && u.CPU > l.CPU:
		return sandbox.ExcessCPU
	}
	if c.bare != "" {
		room, files := c.size, maxInodes
		if c.names == nil || !c.names.taken(&room) {
			taken(c.bare, &room, &files)
		}
		if room < 0 || files < 0 {
			return sandbox.ExcessFile
		}
	}
	return sandbox.ExcessNone
}

// taken subtracts what is in a directory, and below it, from the room available.
func taken(dir string, room *int64, files *int) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range list {
		if *files--; *files < 0 || *room < 0 {
			return
		}
		name := dir + "/" + e.Name()
		var st unix.Stat_t
		if unix.Lstat(name, &st) != nil {
			continue
		}
		*room -= st.Blocks * 512
		if e.IsDir() {
			taken(name, room, files)
		}
	}
}
