package main

import (
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// What concerns all commands of a build alike, as a setting does that makes no sense, is said once for each build and not with each of
// its commands. Where the manager knows of it, it remembers what it has told (package connmgr, told). What a wrapper finds
// by itself, or because there is no manager, is noted in a file.
const (
	maxTold    = 4096            // bytes of the file: more than one build has reason to be told
	forgetTold = 5 * time.Minute // without a command that asks
)

// news reports whether line is to be said, because it has not been said in this build yet, and notes that it is now. What the file
// cannot tell is news.
func (s *settings) news(line string) bool {
	if s.Verbose < 1 {
		return false
	}
	dir, err := s.stateDir()
	if err != nil {
		return true
	}
	fd, err := syscall.Open(dir+"/"+ipc.ToldName, syscall.O_RDWR|syscall.O_CREAT|syscall.O_CLOEXEC|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return true
	}
	defer syscall.Close(fd) // releases the lock as well
	var st syscall.Stat_t
	if !flockWithin(fd, time.Second) || syscall.Fstat(fd, &st) != nil {
		return true
	}
	var told [maxTold]byte
	n := 0
	if age := time.Since(time.Unix(st.Mtim.Unix())); age >= 0 && age < forgetTold && st.Size < maxTold {
		n, _ = syscall.Pread(fd, told[:], 0)
	}
	entry := s.toldEntry(line)
	known := strings.Contains(string(told[:max(n, 0)]), entry)
	switch {
	case known:
		now := syscall.NsecToTimeval(time.Now().UnixNano())
		_ = syscall.Futimes(fd, []syscall.Timeval{now, now}) // the build goes on
	case n <= 0:
		_ = syscall.Ftruncate(fd, 0)
		_, _ = syscall.Pwrite(fd, []byte(entry), 0)
	default:
		_, _ = syscall.Pwrite(fd, []byte(entry), int64(n))
	}
	return !known
}

// toldEntry returns what stands in the file for a line that this build has been told.
func (s *settings) toldEntry(line string) string {
	build := s.Build
	if build == "" {
		build = strconv.Itoa(outermostGroup())
	}
	sum := uint64(14695981039346656037) // FNV-1a
	for _, b := range []byte(build + "\x00" + line) {
		sum = (sum ^ uint64(b)) * 1099511628211
	}
	return strconv.FormatUint(sum, 16) + "\n"
}

// outermostGroup returns the process group that stands for the build that this command belongs to, as the manager tells builds apart
// (package machine): ninja gives each command a group of its own, which counts as part of the group that it was started from.
func outermostGroup() int {
	session, group := sessionOf(0), syscall.Getpgrp()
	for range 8 { // builds that start builds
		parent := parentOf(group)
		if parent <= 1 || parent == session || sessionOf(parent) != session {
			break
		}
		outer, err := syscall.Getpgid(parent)
		if err != nil || outer == group {
			break
		}
		group = outer
	}
	return group
}

func sessionOf(pid int) int {
	sid, _, _ := syscall.RawSyscall(syscall.SYS_GETSID, uintptr(pid), 0, 0)
	return int(sid)
}

// parentOf returns the parent of a process, or 0 if it is not known.
func parentOf(pid int) int {
	fd, err := syscall.Open("/proc/"+strconv.Itoa(pid)+"/stat", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer syscall.Close(fd)
	var buf [256]byte // the name has at most 64 bytes
	n, _ := syscall.Read(fd, buf[:])
	stat := string(buf[:max(n, 0)])
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:]) // the name may contain any byte
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}
