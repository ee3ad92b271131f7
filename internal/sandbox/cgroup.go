package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/cgroup"
)

// errNoCgroup means that no control group was delegated to this process.
var errNoCgroup = errors.New("no control group, version 2, with memory and pids is delegated; remedy for a service of systemd: Delegate=cpu memory pids")

// proc is where the kernel shows this process's groups and mounts.
var proc = "/proc"

// delegated returns this process's own control group, if it may make others in it that have the controllers.
func delegated() (string, error) {
	own, mount, err := cgroup.Unified(proc)
	if errors.Is(err, fs.ErrNotExist) {
		err = errNoCgroup
	}
	if err != nil {
		return "", err
	}
	dir, ok := mount.Dir(own)
	if !ok {
		return "", errNoCgroup
	}
	have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return "", err
	}
	if !hasControllers(have) || unix.Access(dir, unix.W_OK) != nil || unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK) != nil {
		return "", errNoCgroup
	}
	return dir, nil
}

func hasControllers(list []byte) bool {
	return hasController(list, "memory") && hasController(list, "pids")
}

func hasController(list []byte, name string) bool {
	return slices.Contains(strings.Fields(string(list)), name)
}

// Delegated returns the control group that was delegated to this process, after preparing it. As a group
// with processes must not contain others with controllers, this process moves itself, and everything else
// in the group, into the group "daemon" below it. The name is for NewGroup. Calling it again gives the same
// result.
//
// Root may write to every group, and a user to all groups of his session. So a group that contains others'
// processes counts as delegated only if it is marked as such, or is all that is visible, as in a container.
func Delegated() (string, error) {
	dir, err := delegated()
	if err != nil {
		return "", err
	}
	if dir, err = prepare(dir); err == nil {
		sweep(dir)
	}
	return dir, err
}

const leaf = "daemon"

// leafWeight is the CPU weight of the leaf; each runner has 100.
const leafWeight = 1000

func prepare(dir string) (string, error) {
	if filepath.Base(dir) == leaf {
		up := filepath.Dir(dir)
		if on, err := os.ReadFile(filepath.Join(up, "cgroup.subtree_control")); err == nil && hasControllers(on) {
			return up, nil
		}
	}
	// The machine's root is not an ordinary group, and may have processes beside groups with controllers.
	if _, err := os.Stat(filepath.Join(dir, "cgroup.type")); err == nil {
		if err := moveDown(dir); err != nil {
			return "", err
		}
	}
	// With cpu each group, rather than each process, gets the same share: a job with sixty processes does
	// not leave another one a sixtieth.
	if have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers")); err == nil && hasController(have, "cpu") &&
		put(dir, "cgroup.subtree_control", "+memory +pids +cpu") == nil {
		_ = put(dir, leaf+"/cpu.weight", strconv.Itoa(leafWeight)) // the machine's root has no leaf
		return dir, nil
	}
	if err := put(dir, "cgroup.subtree_control", "+memory +pids"); err != nil {
		return "", fmt.Errorf("%w: %w", errNoCgroup, err)
	}
	return dir, nil
}

// moveDown moves all processes of a group into its leaf.
func moveDown(dir string) error {
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return err
	}
	if n := others(procs); n > 0 && !marked(dir) && !isTop(dir) {
		return fmt.Errorf("%w: %d other processes are in %s", errNoCgroup, n, dir)
	}
	sub := filepath.Join(dir, leaf)
	if err := os.Mkdir(sub, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // as the kernel makes others
		return err
	}
	for pid := range bytes.FieldsSeq(procs) {
		if err := put(sub, "cgroup.procs", string(pid)); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// others returns how many processes of a list are neither this one nor its children.
func others(procs []byte) (n int) {
	self := strconv.Itoa(os.Getpid())
	own := []string{self}
	if f, err := OpenFamily(proc); err == nil {
		own, _ = f.children(self, own)
		f.close()
	}
	for pid := range bytes.FieldsSeq(procs) {
		if !slices.Contains(own, string(pid)) {
			n++
		}
	}
	return n
}

// marked reports whether a group is marked as delegated, as systemd's are.
func marked(dir string) bool {
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		var v [2]byte
		if n, err := unix.Getxattr(dir, name, v[:]); err == nil && n == 1 && v[0] == '1' {
			return true
		}
	}
	return false
}

// isTop reports whether this process sees nothing above a group.
func isTop(dir string) bool {
	_, mount, err := cgroup.Unified(proc)
	return err == nil && mount.Root == "/" && dir == filepath.Clean(mount.At)
}

// groupName begins the names of groups; the number of the process that made it and a random number follow.
const groupName = "runner-"

// sweep removes the groups left by a process that was killed.
func sweep(dir string) {
	left, err := filepath.Glob(filepath.Join(dir, groupName+"*"))
	if err != nil {
		return
	}
	for _, name := range left {
		number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(name), groupName), "-")
		if pid, err := strconv.Atoi(number); err == nil && pid > 0 && (pid == os.Getpid() || errors.Is(unix.Kill(pid, 0), unix.ESRCH)) {
			_ = unix.Rmdir(name) // fails if something lives in it
		}
	}
}

// put writes a file of a control group.
func put(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// Group is a control group for one runner's processes.
type Group struct {
	dir   string
	now   Limits // limits in force
	kills uint64 // OOM kills, as last seen
	stops uint64 // tasks that the kernel refused to start, as last seen
}

// NewGroup makes a group in dir, which Delegated returned or which is like that.
func NewGroup(dir string) (*Group, error) {
	name, err := os.MkdirTemp(dir, groupName+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return nil, fmt.Errorf("make a control group: %w", err)
	}
	return &Group{dir: name}, nil
}

// Add moves a process into the group. What it starts from then on is in the group too; the memory that it
// already has remains charged to its previous group.
func (g *Group) Add(pid int) error {
	if err := put(g.dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
		return fmt.Errorf("move into a control group: %w", err)
	}
	return nil
}

// Limited reports whether the group bounds memory and processes, which requires the controllers.
func (g *Group) Limited() bool {
	have, err := os.ReadFile(filepath.Join(g.dir, "cgroup.controllers"))
	return err == nil && hasControllers(have)
}

// Limit bounds the group to l's JobMemory and Processes, with an allowance: own (bytes) and threads are
// what the process in it that starts commands takes itself. The kernel counts threads, and pages of files
// in memory too.
func (g *Group) Limit(l Limits, own int64, threads int) error {
	if l.JobMemory != g.now.JobMemory {
		if err := put(g.dir, "memory.max", number(l.JobMemory, own)); err != nil {
			return fmt.Errorf("limit a control group: %w", err)
		}
		_ = put(g.dir, "memory.swap.max", "0") // where there is swap accounting
	}
	if l.Processes != g.now.Processes {
		if err := put(g.dir, "pids.max", number(int64(l.Processes), int64(threads))); err != nil {
			return fmt.Errorf("limit a control group: %w", err)
		}
	}
	g.now = l
	return nil
}

func number(n, more int64) string {
	if n == 0 {
		return "max"
	}
	return strconv.FormatInt(n+more, 10)
}

// OutOfMemory reports whether the kernel has killed a process of the group for lack of memory since the last call.
func (g *Group) OutOfMemory() bool { return g.more("memory.events", "oom_kill ", &g.kills) }

// OutOfTasks reports whether the kernel has refused to start a process or thread of the group, as it had
// too many, since the last call.
func (g *Group) OutOfTasks() bool { return g.more("pids.events", "max ", &g.stops) }

// more reports whether a counter of the kernel has grown.
func (g *Group) more(file, name string, was *uint64) bool {
	b, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if n, ok := strings.CutPrefix(line, name); ok {
			now, err := strconv.ParseUint(strings.TrimSpace(n), 10, 64)
			more := err == nil && now > *was
			if err == nil {
				*was = now
			}
			return more
		}
	}
	return false
}

// Kill kills all that is in the group.
func (g *Group) Kill() error { return put(g.dir, "cgroup.kill", "1") }

// removing is how long Remove waits for killed processes to end.
const removing = 5 * time.Second

// Remove removes the group. Everything in it must have ended or been killed.
func (g *Group) Remove() error {
	for until := time.Now().Add(removing); ; time.Sleep(time.Millisecond) {
		// The kernel's end of a process is not the end of its threads.
		if err := unix.Rmdir(g.dir); !errors.Is(err, unix.EBUSY) || time.Now().After(until) {
			return err
		}
	}
}
