package peer

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// group is a control group that holds one process and all that it starts.
type group struct {
	kind, dir string
	read      func(dir string) (time.Duration, error)
}

// newGroup makes a group of a process, in version 2 if it can be, else in version 1's cpuacct. It returns nil where
// neither can be written. Version 2 counts the processor time of every group, whether or not a controller is on.
func newGroup(pid int) *group {
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return nil
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	return makeGroup(pid, string(mounts), string(own))
}

func makeGroup(pid int, mounts, own string) *group {
	for _, version := range []int{2, 1} {
		for line := range strings.Lines(mounts) {
			f := strings.Fields(line)
			if len(f) < 4 {
				continue
			}
			g := &group{}
			switch {
			case version == 2 && f[2] == "cgroup2":
				g.kind, g.read = "control group (version 2)", usageV2
				g.dir = filepath.Join(f[1], ownGroup(own))
			case version == 1 && f[2] == "cgroup" && strings.Contains(","+f[3]+",", ",cpuacct,"):
				g.kind, g.read = "control group (cpuacct)", usageV1
				g.dir = f[1]
			default:
				continue
			}
			g.dir = filepath.Join(g.dir, fmt.Sprintf("rdistcc-exp-%d", pid))
			if g.begin(pid) == nil {
				return g
			}
		}
	}
	return nil
}

// ownGroup returns this process's group of version 2.
func ownGroup(own string) string {
	for line := range strings.Lines(own) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path
		}
	}
	return "/"
}

// begin makes the group and moves the process into it.
func (g *group) begin(pid int) error {
	err := os.Mkdir(g.dir, 0o755)
	if err != nil {
		return err
	}
	if err = os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err == nil {
		_, err = g.usage()
	}
	if err != nil {
		_ = os.Remove(g.dir) // it holds nothing, or cannot be removed
	}
	return err
}

func (g *group) usage() (time.Duration, error) { return g.read(g.dir) }

// remove removes the group; its processes have ended, though the last threads may take a moment.
func (g *group) remove() {
	for range 100 {
		if err := os.Remove(g.dir); err == nil || os.IsNotExist(err) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func usageV2(dir string) (time.Duration, error) {
	b, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "usage_usec" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return time.Duration(n) * time.Microsecond, err
		}
	}
	return 0, fmt.Errorf("%s/cpu.stat has no usage_usec", dir)
}

func usageV1(dir string) (time.Duration, error) {
	b, err := os.ReadFile(filepath.Join(dir, "cpuacct.usage"))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return time.Duration(n), err
}
