package machine

import (
	"bytes"
	"hash/maphash"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

var seed = maphash.MakeSeed()

// NamedBuild is the build that a user has named (RDISTCC_BUILD), for a fair share among
// builds: two users' of one name are two.
func NamedBuild(uid uint32, name string) uint64 {
	return maphash.Bytes(seed, append(strconv.AppendUint(nil, uint64(uid), 10), "\x00"+name...))
}

const (
	// familyLast is how long a group's outermost one is taken for known: the ids of a
	// group that has ended are given to another one much later.
	familyLast  = 2 * time.Second
	maxFamilies = 256
)

// Builds says which build a process belongs to that has not been given a name. It knows
// the outermost groups of those that were asked for lately: a file of
// /proc costs more than all else that a job begins with, and make's commands share
// one group. The zero value knows none; it is safe for concurrent use.
type Builds struct {
	mu    sync.Mutex
	known map[uint64]family // by session and group
}

type family struct {
	outermost int
	since     time.Time
}

// Of tells builds apart by process group: a shell gives one to each command
// line that is typed, and what that starts keeps it. Tools as ninja give one to each
// command, so a group whose leader was started out of another one of the same
// session, by somebody else than the session's leader, belongs to that. 0, for all
// whose processes cannot be seen (another pid namespace), is one build too.
func (b *Builds) Of(pid int) uint64 {
	session, err := unix.Getsid(pid)
	if err != nil || pid <= 0 {
		return 0
	}
	group, err := unix.Getpgid(pid)
	if err != nil {
		return 0
	}
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	const deep = 8 // builds that start builds
	var inner [deep]int
	n := 0
	for ; n < deep; n++ {
		if k, ok := b.known[familyOf(session, group)]; ok && now.Sub(k.since) < familyLast {
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
	if b.known == nil || len(b.known)+n > maxFamilies {
		b.known = make(map[uint64]family)
	}
	for _, g := range inner[:n] {
		b.known[familyOf(session, g)] = family{group, now}
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
	defer func() { _ = unix.Close(fd) }() // EINTR and EIO mean nothing for what was only read
	var buf [256]byte                     // the name has at most 64 bytes
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
