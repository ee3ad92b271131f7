// Package cgroup finds out what the control groups around this process, of version 1 and 2, leave it of the
// machine's memory and processor time. These are the limits of a container, or of a service; /proc/meminfo
// and the number of processors do not reflect them.
package cgroup

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Groups holds the control groups around this process. A nil *Groups limits nothing.
type Groups struct {
	memory, cpu hierarchy
}

// hierarchy is where one controller's files are.
type hierarchy struct {
	v2   bool
	dirs []string // the process's own group first, then the surrounding ones, as far as they are visible
}

// Find finds this process's groups, with proc as "/proc". What cannot be determined limits nothing. Limits
// may change later, the groups do not.
func Find(proc string) *Groups {
	own, err := os.ReadFile(filepath.Join(proc, "self/cgroup"))
	if err != nil {
		return nil
	}
	mounts, err := os.ReadFile(filepath.Join(proc, "self/mountinfo"))
	if err != nil {
		return nil
	}
	return &Groups{find("memory", string(own), string(mounts)), find("cpu", string(own), string(mounts))}
}

// find finds the hierarchy of a controller. A controller is in at most one: its own of version 1, or that
// of version 2, which may exist without it.
func find(controller, own, mounts string) (h hierarchy) {
	for line := range strings.Lines(own) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3) // number, controllers, path
		if len(f) != 3 {
			continue
		}
		v2 := f[0] == "0" && f[1] == ""
		if !v2 && !has(f[1], controller) {
			continue
		}
		dirs := locate(f[2], controller, v2, mounts)
		if len(dirs) == 0 {
			continue
		}
		if h = (hierarchy{v2, dirs}); !v2 {
			break
		}
	}
	return h
}

func has(list, word string) bool { return strings.Contains(","+list+",", ","+word+",") }

// locate returns the directories of the group own and of those around it.
func locate(own, controller string, v2 bool, mounts string) (dirs []string) {
	m, ok := mounted(mounts, func(kind, options string) bool {
		return v2 && kind == "cgroup2" || !v2 && kind == "cgroup" && has(options, controller)
	})
	if !ok {
		return nil
	}
	// If the group is outside of what is mounted, as in some containers, what is mounted belongs to the container.
	dir, ok := m.Dir(own)
	if !ok {
		dir = m.At
	}
	for ; len(dir) > len(m.At); dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			dirs = append(dirs, dir)
		}
	}
	return append(dirs, m.At)
}

// Mount is a hierarchy of groups as this process sees it: the directory At shows the group Root.
type Mount struct{ Root, At string }

// Dir returns the directory of a group; ok is false if the group is outside of what is mounted.
func (m Mount) Dir(group string) (string, bool) {
	rel, err := filepath.Rel(m.Root, group)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return "", false
	}
	return filepath.Join(m.At, rel), true
}

// Unified finds the hierarchy of version 2, and this process's group in it, with proc as "/proc". An error
// is the system's, or fs.ErrNotExist if there is no such hierarchy.
func Unified(proc string) (own string, m Mount, err error) {
	groups, err := os.ReadFile(filepath.Join(proc, "self/cgroup"))
	if err != nil {
		return "", m, err
	}
	mounts, err := os.ReadFile(filepath.Join(proc, "self/mountinfo"))
	if err != nil {
		return "", m, err
	}
	for line := range strings.Lines(string(groups)) {
		if name, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok { // 0::/system.slice/rdistccd.service
			own = name
		}
	}
	m, ok := mounted(string(mounts), func(kind, _ string) bool { return kind == "cgroup2" })
	if !ok || own == "" {
		return "", m, fmt.Errorf("control groups of version 2: %w", fs.ErrNotExist)
	}
	return own, m, nil
}

// mounted returns the first mount in a list whose kind and options are wanted.
func mounted(mounts string, wanted func(kind, options string) bool) (Mount, bool) {
	for line := range strings.Lines(mounts) {
		// 35 31 0:32 ROOT AT OPTIONS [...] - TYPE SOURCE OPTIONS
		head, tail, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		f, kind := strings.Fields(head), strings.Fields(tail)
		if len(f) >= 5 && len(kind) >= 3 && wanted(kind[0], kind[2]) {
			return Mount{unquote(f[3]), unquote(f[4])}, true
		}
	}
	return Mount{}, false
}

// unquote undoes mountinfo's escapes of characters that would end a field.
func unquote(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// unlimited is more bytes than any limit: version 1 reports the largest number of pages.
const unlimited = 1 << 60

// number reads a file with one number; ok is false for none, or for no limit.
func number(dir, file string) (n int64, ok bool) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, false
	}
	n, err = strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64) // "max" is none
	return n, err == nil && n >= 0 && n < unlimited
}

// limitOf returns how much memory a group's processes may have, in bytes.
func (h *hierarchy) limitOf(dir string) (n int64, ok bool) {
	if !h.v2 {
		return number(dir, "memory.limit_in_bytes")
	}
	n, ok = number(dir, "memory.max")
	// Beyond this limit they are not killed, but slowed down for as long as it lasts.
	if high, too := number(dir, "memory.high"); too && (!ok || high < n) {
		return high, true
	}
	return n, ok
}

// statistics returns the sum of the named lines of memory.stat.
func statistics(dir string, names ...string) (sum int64) {
	b, err := os.ReadFile(filepath.Join(dir, "memory.stat"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		for _, name := range names {
			if len(f) == 2 && f[0] == name {
				n, _ := strconv.ParseInt(f[1], 10, 64) // 0 if it is none
				sum += n
			}
		}
	}
	return sum
}

// usedOf returns how much memory of the group's processes the kernel could not reclaim: without the pages
// of files, as in MemAvailable.
func (h *hierarchy) usedOf(dir string) int64 {
	if !h.v2 {
		n, _ := number(dir, "memory.usage_in_bytes")
		return n - statistics(dir, "total_inactive_file", "total_active_file")
	}
	n, _ := number(dir, "memory.current")
	return n - statistics(dir, "inactive_file", "active_file", "slab_reclaimable")
}

// limits calls f with each limit of memory, and the group that it applies to.
func (h *hierarchy) limits(f func(dir string, limit int64)) {
	for _, dir := range h.dirs {
		if n, ok := h.limitOf(dir); ok {
			f(dir, n)
		}
	}
	if h.v2 || len(h.dirs) == 0 {
		return
	}
	// Version 1 reports the smallest limit of groups that are not visible.
	if n := statistics(h.dirs[0], "hierarchical_memory_limit"); n > 0 && n < unlimited {
		f(h.dirs[len(h.dirs)-1], n)
	}
}

// Memory returns how many bytes all processes of a group around this one may have together: the smallest
// such limit; 0: there is none.
func (g *Groups) Memory() (least int64) {
	if g == nil {
		return 0
	}
	g.memory.limits(func(_ string, n int64) {
		if least == 0 || n < least {
			least = max(n, 1)
		}
	})
	return least
}

// MemoryFree returns how many bytes more they could have now, at least one; ok is false without a limit.
func (g *Groups) MemoryFree() (least uint64, ok bool) {
	if g == nil {
		return 0, false
	}
	g.memory.limits(func(dir string, n int64) {
		free := uint64(max(1, n-max(0, g.memory.usedOf(dir))))
		if !ok || free < least {
			least, ok = free, true
		}
	})
	return least, ok
}

// Scarce reports whether so little of that much memory is free, in bytes, that programs may have to wait for it. The kernel's
// measure of waiting (PSI) does not say so alone: it counts everybody's waits, also those of a small control group that
// has reached a limit of its own while most of the machine's memory is free.
func Scarce(free, of uint64) bool { return free < min(max(of/scarcePart, scarceLeast), scarceMost) }

const (
	scarcePart  = 8
	scarceLeast = 256 << 20 // bytes
	scarceMost  = 8 << 30
)

// Scarce reports whether that holds for one of the limits around this process.
func (g *Groups) Scarce() (scarce bool) {
	if g == nil {
		return false
	}
	g.memory.limits(func(dir string, n int64) {
		scarce = scarce || Scarce(uint64(max(0, n-g.memory.usedOf(dir))), uint64(n))
	})
	return scarce
}

// CPUs returns how many of online processors this process can keep busy: at most the quotas of the groups
// around it, rounded up, and at least one.
func (g *Groups) CPUs(online int) int {
	if g == nil {
		return online
	}
	n := float64(online)
	for _, dir := range g.cpu.dirs {
		n = min(n, g.cpu.quotaOf(dir))
	}
	return max(1, int(math.Ceil(n)))
}

// quotaOf returns how many processors' time a group may have.
func (h *hierarchy) quotaOf(dir string) float64 {
	var quota, period string
	if h.v2 {
		b, err := os.ReadFile(filepath.Join(dir, "cpu.max")) // "max 100000", "150000 100000"
		f := strings.Fields(string(b))
		if err != nil || len(f) != 2 {
			return math.Inf(1)
		}
		quota, period = f[0], f[1]
	} else {
		q, qerr := os.ReadFile(filepath.Join(dir, "cpu.cfs_quota_us")) // -1: none
		p, perr := os.ReadFile(filepath.Join(dir, "cpu.cfs_period_us"))
		if qerr != nil || perr != nil {
			return math.Inf(1)
		}
		quota, period = strings.TrimSpace(string(q)), strings.TrimSpace(string(p))
	}
	q, qerr := strconv.ParseFloat(quota, 64)
	p, perr := strconv.ParseFloat(period, 64)
	if qerr != nil || perr != nil || q <= 0 || p <= 0 {
		return math.Inf(1)
	}
	return q / p
}
