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

// NamedBuild returns the number of the build that a user has named (RDISTCC_BUILD), for fair sharing among
// builds. The same name from two users gives two builds.
func NamedBuild(uid uint32, name string) uint64 {
	return maphash.Bytes(seed, append(strconv.AppendUint(nil, uint64(uid), 10), "\x00"+name...))
}

const (
	// familyLast is how long the outermost group of a group is remembered. The kernel gives the ID of a group
	// that has ended to another one only much later.
	familyLast  = 2 * time.Second
	maxFamilies = 256
)

// Builds tells which build a process belongs to if the user has not named one. It caches the outermost groups
// of recent lookups: a file of /proc costs more than everything else at the start of a job, and make's
// commands share one group. The zero value is ready for use. It is safe for concurrent use.
type Builds struct {
	mu    sync.Mutex
	known map[uint64]family // by session and group
}

type family struct {
	outermost int
	since     time.Time
}

// Of returns the number of the build that the process pid belongs to. Builds are told apart by process group:
// a shell gives a group to each command line that is typed, and what that starts keeps it. Tools such as ninja
// give a group to each command. So a group counts as part of the group of its leader's parent, if that is
// another one in the same session and the parent is not the session's leader.
//
// All processes that cannot be seen, because they are in another PID namespace, share the build 0.
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

// outerOf returns the group that group was started from, in the same session, or 0 if there is none.
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

// parentOf returns the parent of a process, or 0 if it is not known.
func parentOf(pid int) int {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer func() { _ = unix.Close(fd) }() // EINTR and EIO do not matter for a file that was only read
	var buf [256]byte                     // the name has at most 64 bytes
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return 0
	}
	// The name in parentheses may contain any byte. State and parent follow the last parenthesis.
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
