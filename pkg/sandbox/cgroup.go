package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// errNoCgroup means that no control group was delegated to this process.
var errNoCgroup = errors.New("no control group, version 2, with memory and pids is delegated; remedy for a service of systemd: Delegate=memory pids")

// Where the kernel says what a process is in, and what is mounted.
var (
	ownCgroup = "/proc/self/cgroup"
	mounts    = "/proc/self/mountinfo"
)

// delegated finds this process's own control group, if it may make others in it that have the
// controllers.
func delegated() (string, error) {
	b, err := os.ReadFile(ownCgroup)
	if err != nil {
		return "", err
	}
	var own string // 0::/system.slice/rdistccd.service
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			own = name
		}
	}
	root, at, err := cgroupMount()
	if err != nil || own == "" {
		return "", errors.Join(errNoCgroup, err)
	}
	rel, err := filepath.Rel(root, own)
	if err != nil || strings.HasPrefix(rel, "..") {
		return "", errNoCgroup
	}
	dir := filepath.Join(at, rel)
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
	have := map[string]bool{}
	for _, c := range strings.Fields(string(list)) {
		have[c] = true
	}
	return have["memory"] && have["pids"]
}

// cgroupMount finds where version 2 is mounted, and which group is the root of that.
func cgroupMount() (root, at string, err error) {
	b, err := os.ReadFile(mounts)
	if err != nil {
		return "", "", err
	}
	for line := range strings.Lines(string(b)) {
		// 30 23 0:26 ROOT AT OPTIONS [...] - cgroup2 ...
		head, tail, _ := strings.Cut(line, " - ")
		if f := strings.Fields(head); len(f) >= 5 && strings.HasPrefix(tail, "cgroup2 ") {
			return f[3], f[4], nil
		}
	}
	return "", "", errNoCgroup
}

// Delegated finds the control group that was delegated to this process and prepares it: as none
// with processes may have others in it with controllers, this process moves itself, and what else is there, into the group
// "daemon" below. The name is for NewGroup. To call it again gives the same.
func Delegated() (string, error) {
	dir, err := delegated()
	if err != nil {
		return "", err
	}
	return prepare(dir)
}

const leaf = "daemon"

func prepare(dir string) (string, error) {
	if filepath.Base(dir) == leaf {
		up := filepath.Dir(dir)
		if on, err := os.ReadFile(filepath.Join(up, "cgroup.subtree_control")); err == nil && hasControllers(on) {
			return up, nil
		}
	}
	sub := filepath.Join(dir, leaf)
	if err := os.Mkdir(sub, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // as the kernel makes others
		return "", err
	}
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return "", err
	}
	for pid := range bytes.FieldsSeq(procs) {
		if err := put(sub, "cgroup.procs", string(pid)); err != nil && !errors.Is(err, unix.ESRCH) {
			return "", err
		}
	}
	if err := put(dir, "cgroup.subtree_control", "+memory +pids"); err != nil {
		return "", fmt.Errorf("%w: %w", errNoCgroup, err)
	}
	return dir, nil
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
	now   Limits // those in force
	kills uint64 // by the kernel for want of memory, as last seen
}

// NewGroup makes a group in dir, which Delegated gave or which is like that.
func NewGroup(dir string) (*Group, error) {
	name, err := os.MkdirTemp(dir, "runner-")
	if err != nil {
		return nil, fmt.Errorf("make a control group: %w", err)
	}
	return &Group{dir: name}, nil
}

// Open gives a descriptor of the group for SysProcAttr.CgroupFD.
func (g *Group) Open() (*os.File, error) { return os.Open(g.dir) }

// Limited says whether the group bounds memory and processes: whether it has the controllers.
func (g *Group) Limited() bool {
	have, err := os.ReadFile(filepath.Join(g.dir, "cgroup.controllers"))
	return err == nil && hasControllers(have)
}

// Limit bounds what is in the group to l's JobMemory and Processes, and to some more of both: own and
// threads are what the process there that starts commands takes itself. The kernel counts threads, and pages
// of files in memory too.
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

// OutOfMemory says whether the kernel has killed one of the group, as it had no memory, since the last call.
func (g *Group) OutOfMemory() bool {
	b, err := os.ReadFile(filepath.Join(g.dir, "memory.events"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
			kills, err := strconv.ParseUint(strings.TrimSpace(n), 10, 64)
			more := err == nil && kills > g.kills
			g.kills = kills
			return more
		}
	}
	return false
}

// Kill kills all that is in the group.
func (g *Group) Kill() error { return put(g.dir, "cgroup.kill", "1") }

// Remove removes the group, in which nothing lives any more.
func (g *Group) Remove() error { return unix.Rmdir(g.dir) }
