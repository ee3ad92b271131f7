package connmgr

import (
	"bytes"
	"hash/maphash"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

var buildSeed = maphash.MakeSeed()

// build says which build a wrapper belongs to, for a fair share among builds: the
// one that RDISTCC_BUILD names, else that of its process.
func (c *client) build() uint64 {
	if c.lease.Build != "" {
		return maphash.Bytes(buildSeed, append(strconv.AppendUint(nil, uint64(c.uid), 10), "\x00"+c.lease.Build...))
	}
	return buildOf(int(c.pid))
}

// buildOf tells builds apart by process group: a shell gives one to each command
// line that is typed, and what that starts keeps it. Tools as ninja give one to each
// command, so a group whose leader was started out of another one of the same
// session, by somebody else than the session's leader, belongs to that. 0, for all
// whose processes cannot be seen (another pid namespace), is one build too.
func buildOf(pid int) uint64 {
	session, err := unix.Getsid(pid)
	if err != nil || pid <= 0 {
		return 0
	}
	group, err := unix.Getpgid(pid)
	if err != nil {
		return 0
	}
	const deep = 8 // builds that start builds
	for range deep {
		parent := parentOf(group)
		if parent <= 1 || parent == session {
			break
		}
		if s, err := unix.Getsid(parent); err != nil || s != session {
			break
		}
		outer, err := unix.Getpgid(parent)
		if err != nil || outer == group {
			break
		}
		group = outer
	}
	return uint64(session)<<32 | uint64(group)
}

// parentOf is the parent of a process, 0 if it cannot be told.
func parentOf(pid int) int {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// The name in brackets may hold anything: what follows its end is state and parent.
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
