package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// machine is a made-up /proc and the hierarchies that it speaks of: in files' names and
// texts, {} is the directory that they are in.
type machine map[string]string

func (m machine) find(t *testing.T) *Groups {
	t.Helper()
	dir := t.TempDir()
	for name, text := range m {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "{}", dir)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Find(filepath.Join(dir, "proc"))
}

const (
	mountV2     = "30 23 0:26 / {}/cg rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	mountsV1    = "31 23 0:28 / {}/cg rw - tmpfs tmpfs rw\n35 31 0:32 / {}/cg/memory rw - cgroup cgroup rw,memory\n32 31 0:29 / {}/cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
	noLimitV1   = "9223372036854771712\n"
	statV2      = "anon 1000\nfile 5000\ninactive_file 3000\nactive_file 2000\nslab_reclaimable 500\n"
	statV1      = "cache 5000\ninactive_file 1\nactive_file 1\nhierarchical_memory_limit 9223372036854771712\ntotal_inactive_file 3000\ntotal_active_file 2000\n"
	selfV1      = "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n0::/\n"
	selfService = "0::/system.slice/rdistccd.service/daemon\n"
)

// TestLimits: the nearest limit around the process counts, in whichever version and wherever it is
// mounted; what cannot be read limits nothing.
func TestLimits(t *testing.T) {
	for name, c := range map[string]struct {
		machine
		memory int64
		free   uint64 // 0: there is no limit
		cpus   int    // of 8
	}{
		"nothing to read": {machine{}, 0, 0, 8},
		"no group":        {machine{"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"}, 0, 0, 8},
		"version 2, no limit": {machine{
			"proc/self/cgroup": selfService, "proc/self/mountinfo": mountV2,
			"cg/system.slice/rdistccd.service/daemon/memory.max": "max\n", "cg/system.slice/rdistccd.service/memory.max": "max\n",
			"cg/system.slice/rdistccd.service/cpu.max": "max 100000\n",
		}, 0, 0, 8},
		// MemoryMax= and CPUQuota= of a service whose daemon has moved into a group below.
		"version 2, a service": {machine{
			"proc/self/cgroup": selfService, "proc/self/mountinfo": mountV2,
			"cg/system.slice/rdistccd.service/daemon/memory.max":  "max\n",
			"cg/system.slice/rdistccd.service/memory.max":         "100000\n",
			"cg/system.slice/rdistccd.service/memory.current":     "60500\n",
			"cg/system.slice/rdistccd.service/memory.stat":        statV2,
			"cg/system.slice/rdistccd.service/daemon/cpu.max":     "max 100000\n",
			"cg/system.slice/rdistccd.service/cpu.max":            "250000 100000\n",
			"cg/system.slice/cpu.max":                             "400000 100000\n",
			"cg/system.slice/memory.max":                          "200000\n",
			"cg/system.slice/memory.current":                      "60500\n",
			"cg/system.slice/memory.stat":                         "inactive_file 0\n",
			"cg/system.slice/rdistccd.service/daemon/memory.high": "max\n",
		}, 100000, 45000, 3},
		// The one further up is the smaller one, and fuller.
		"version 2, a slice": {machine{
			"proc/self/cgroup": selfService, "proc/self/mountinfo": mountV2,
			"cg/system.slice/rdistccd.service/memory.max":     "100000\n",
			"cg/system.slice/rdistccd.service/memory.current": "1000\n",
			"cg/system.slice/memory.max":                      "80000\n",
			"cg/system.slice/memory.current":                  "79000\n",
		}, 80000, 1000, 8},
		"version 2, a larger one that is fuller": {machine{
			"proc/self/cgroup": selfService, "proc/self/mountinfo": mountV2,
			"cg/system.slice/rdistccd.service/memory.max":     "100000\n",
			"cg/system.slice/rdistccd.service/memory.current": "1000\n",
			"cg/system.slice/memory.max":                      "800000\n",
			"cg/system.slice/memory.current":                  "799000\n",
		}, 100000, 1000, 8},
		"version 2, slowed down before it is full": {machine{
			"proc/self/cgroup": selfService, "proc/self/mountinfo": mountV2,
			"cg/system.slice/rdistccd.service/memory.high":    "90000\n",
			"cg/system.slice/rdistccd.service/memory.max":     "100000\n",
			"cg/system.slice/rdistccd.service/memory.current": "95000\n",
		}, 90000, 1, 8},
		// A container with a namespace of its own sees its group as the root.
		"version 2, a container": {machine{
			"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountV2,
			"cg/memory.max": "100000\n", "cg/memory.current": "10000\n", "cg/cpu.max": "50000 100000\n",
		}, 100000, 90000, 1},
		// Without one it has the host's name of its group, and finds only that mounted.
		"version 2, a container without a namespace": {machine{
			"proc/self/cgroup": "0::/docker/abc\n", "proc/self/mountinfo": strings.ReplaceAll(mountV2, " / ", " /docker/abc "),
			"cg/memory.max": "100000\n", "cg/memory.current": "10000\n",
		}, 100000, 90000, 8},
		"version 2, a group outside of what is mounted": {machine{
			"proc/self/cgroup": "0::/../other\n", "proc/self/mountinfo": mountV2,
			"cg/memory.max": "100000\n", "cg/memory.current": "10000\n",
		}, 100000, 90000, 8},
		"version 1, no limit": {machine{
			"proc/self/cgroup": selfV1, "proc/self/mountinfo": mountsV1,
			"cg/memory/docker/abc/memory.limit_in_bytes": noLimitV1, "cg/memory/docker/abc/memory.stat": statV1,
			"cg/cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "-1\n", "cg/cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000\n",
		}, 0, 0, 8},
		"version 1": {machine{
			"proc/self/cgroup": selfV1, "proc/self/mountinfo": mountsV1 + "41 31 0:38 / {}/cg/unified rw - cgroup2 cgroup2 rw\n",
			"cg/unified/memory.max":                      "1\n", // hybrid: it has no controllers
			"cg/memory/docker/abc/memory.limit_in_bytes": "100000\n", "cg/memory/docker/abc/memory.usage_in_bytes": "60000\n",
			"cg/memory/docker/abc/memory.stat":            statV1,
			"cg/memory/memory.limit_in_bytes":             noLimitV1,
			"cg/cpu,cpuacct/docker/abc/cpu.cfs_quota_us":  "150000\n",
			"cg/cpu,cpuacct/docker/abc/cpu.cfs_period_us": "50000\n",
		}, 100000, 45000, 3},
		// Of a group that cannot be seen from inside a container.
		"version 1, hidden": {machine{
			"proc/self/cgroup": selfV1, "proc/self/mountinfo": strings.ReplaceAll(mountsV1, " / {}/cg/memory", " /docker/abc {}/cg/memory"),
			"cg/memory/memory.limit_in_bytes": noLimitV1, "cg/memory/memory.usage_in_bytes": "60000\n",
			"cg/memory/memory.stat": "hierarchical_memory_limit 70000\ntotal_inactive_file 5000\n",
		}, 70000, 15000, 8},
		"nonsense": {machine{
			"proc/self/cgroup": "x\n0::/a\n5:memory\n", "proc/self/mountinfo": "x\n - \n" + mountV2,
			"cg/memory.max": "-7\n", "cg/a/memory.max": "many\n", "cg/a/cpu.max": "100000\n", "cg/cpu.max": "0 0\n",
		}, 0, 0, 8},
	} {
		t.Run(name, func(t *testing.T) {
			g := c.find(t)
			free, ok := g.MemoryFree()
			if g.Memory() != c.memory || free != c.free || ok != (c.free > 0) || g.CPUs(8) != c.cpus {
				t.Errorf("memory %d, free %d (%v), %d of 8 processors; want %d, %d, %d", g.Memory(), free, ok, g.CPUs(8), c.memory, c.free, c.cpus)
			}
		})
	}
}

// TestLimitsChange: what is set while the process runs is seen.
func TestLimitsChange(t *testing.T) {
	m := machine{"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountV2, "cg/memory.max": "max\n", "cg/memory.current": "7\n"}
	g := m.find(t)
	if n := g.Memory(); n != 0 {
		t.Errorf("%d bytes before", n)
	}
	if err := os.WriteFile(filepath.Join(g.memory.dirs[0], "memory.max"), []byte("100\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if free, ok := g.MemoryFree(); g.Memory() != 100 || free != 93 || !ok {
		t.Errorf("%d bytes, %d free, want 100, 93", g.Memory(), free)
	}
}

// TestHere: whatever this machine has, its processors are no fewer than one, and no more.
func TestHere(t *testing.T) {
	g := Find("/proc")
	free, ok := g.MemoryFree()
	if n := g.CPUs(4); n < 1 || n > 4 {
		t.Errorf("%d of 4 processors", n)
	}
	if ok != (g.Memory() > 0) || ok && free > uint64(g.Memory()) {
		t.Errorf("%d bytes free of %d", free, g.Memory())
	}
}

// TestRealGroup: a process that the kernel bounds finds the bounds, whatever the version.
func TestRealGroup(t *testing.T) {
	if at := os.Getenv("CGROUP_TEST_JOIN"); at != "" {
		for dir := range strings.SplitSeq(at, ":") {
			if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		g := Find("/proc")
		free, _ := g.MemoryFree()
		fmt.Printf("found %d %v %d\n", g.Memory(), free > 0 && free < 300<<20, g.CPUs(64))
		return
	}
	own := Find("/proc")
	if own == nil {
		t.Skip("no control groups here")
	}
	var at []string
	group := func(h *hierarchy, v1, v2 [2]string) {
		if len(h.dirs) == 0 {
			t.Skip("no control groups here")
		}
		dir, err := os.MkdirTemp(h.dirs[0], "rdistcc-test-")
		if err != nil {
			t.Skip("cannot make a control group: ", err)
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		set := v1
		if h.v2 {
			set = v2
		}
		if err := os.WriteFile(filepath.Join(dir, set[0]), []byte(set[1]), 0o644); err != nil {
			t.Skip("cannot limit a control group: ", err)
		}
		at = append(at, dir)
	}
	group(&own.memory, [2]string{"memory.limit_in_bytes", "314572800"}, [2]string{"memory.max", "314572800"})
	group(&own.cpu, [2]string{"cpu.cfs_quota_us", "250000"}, [2]string{"cpu.max", "250000 100000"})
	cmd := exec.Command(os.Args[0], "-test.run", "^TestRealGroup$")
	cmd.Env = append(os.Environ(), "CGROUP_TEST_JOIN="+strings.Join(at, ":"))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "found 314572800 true 3\n") {
		t.Errorf("%v: %s", err, out)
	}
}
