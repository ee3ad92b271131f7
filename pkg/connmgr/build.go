package connmgr

import (
	"bytes"
	"hash/maphash"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

var buildSeed = maphash.MakeSeed()

// build says which build a wrapper belongs to, for a fair share among builds: the
// one that RDISTCC_BUILD names, else that of its process.
func (c *client) build() uint64 {
	if c.lease.Build != "" {
		return maphash.Bytes(buildSeed, append(strconv.AppendUint(nil, uint64(c.uid), 10), "\x00"+c.lease.Build...))
	}
	return c.m.families.buildOf(int(c.pid))
}

const (
	// familyLast is how long a group's outermost one is taken for known: the ids of a
	// group that has ended are given to another one much later.
	familyLast  = 2 * time.Second
	maxFamilies = 256
)

// families knows the outermost groups of those that were asked for lately: a file of
// /proc costs more than all else that a job begins with, and make's commands share
// one group. The zero value knows none.
type families struct {
	mu    sync.Mutex
	known map[uint64]family // by session and group
}

type family struct {
	outermost int
	since     time.Time
}

// buildOf tells builds apart by process group: a shell gives one to each command
// line that is typed, and what that starts keeps it. Tools as ninja give one to each
// command, so a group whose leader was started out of another one of the same
// session, by somebody else than the session's leader, belongs to that. 0, for all
// whose processes cannot be seen (another pid namespace), is one build too.
func (f *families) buildOf(pid int) uint64 {
	session, err := unix.Getsid(pid)
	if err != nil || pid <= 0 {
		return 0
	}
	group, err := unix.Getpgid(pid)
	if err != nil {
		return 0
	}
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	const deep = 8 // builds that start builds
	var inner [deep]int
	n := 0
	for ; n < deep; n++ {
		if k, ok := f.known[familyOf(session, group)]; ok && now.Sub(k.since) < familyLast {
			group = k.outermost
			break
		}
		inner[n] = group
		outer := outerOf(session, group)
		if outer == 0 {
			n++
			break
		}
		group = outer
	}
	if f.known == nil || len(f.known)+n > maxFamilies {
		f.known = make(map[uint64]family)
	}
	for _, g := range inner[:n] {
		f.known[familyOf(session, g)] = family{group, now}
	}
	return familyOf(session, group)
}

func familyOf(session, group int) uint64 { return uint64(session)<<32 | uint64(group) }

// outerOf is the group that one was started out of, 0 if it belongs to none.
func outerOf(session, group int) int {
	parent := parentOf(group)
	if parent <= 1 || parent == session {
		return 0
	}
	if s, err := unix.Getsid(parent); err != nil || s != session {
		return 0
	}
	outer, err := unix.Getpgid(parent)
	if err != nil || outer == group {
		return 0
	}
	return outer
}

// parentOf is the parent of a process, 0 if it cannot be told.
func parentOf(pid int) int {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer closeFD(fd)
	var buf [256]byte // the name has at most 64 bytes
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return 0
	}
	// The name in brackets may hold anything: what follows its end is state and parent.
	stat := buf[:n]
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	parent, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return 0
	}
	return parent
}
