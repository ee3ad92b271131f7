//go:build amd64 || arm64

package sandbox

import "golang.org/x/sys/unix"

// always lists the calls that gcc, clang, their assemblers and the Go runtime make, and some related ones
// that give no more. Those on the file system are limited by Landlock or the tree.
var always = append([]uintptr{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_OPENAT, unix.SYS_CLOSE, unix.SYS_LSEEK, unix.SYS_READLINKAT, unix.SYS_TIMES,
	unix.SYS_FUTEX, unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MREMAP, unix.SYS_MADVISE, unix.SYS_MINCORE, unix.SYS_MSYNC, unix.SYS_BRK,
	unix.SYS_PREAD64, unix.SYS_PWRITE64, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_PREADV, unix.SYS_PWRITEV, unix.SYS_PREADV2, unix.SYS_PWRITEV2,
	unix.SYS_FSTAT, unix.SYS_STATX, unix.SYS_STATFS, unix.SYS_FSTATFS, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_GETDENTS64, unix.SYS_GETCWD,
	unix.SYS_CHDIR, unix.SYS_FCHDIR, unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT, unix.SYS_SYMLINKAT,
	unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_UTIMENSAT, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_FADVISE64,
	unix.SYS_COPY_FILE_RANGE, unix.SYS_SENDFILE, unix.SYS_UMASK, unix.SYS_FLOCK,
	unix.SYS_DUP, unix.SYS_DUP3, unix.SYS_PIPE2, unix.SYS_PPOLL, unix.SYS_PSELECT6, unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_RT_SIGSUSPEND, unix.SYS_RT_SIGPENDING, unix.SYS_RT_SIGTIMEDWAIT, unix.SYS_SIGALTSTACK,
	unix.SYS_EXECVE, unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_WAIT4, unix.SYS_WAITID, unix.SYS_RESTART_SYSCALL,
	unix.SYS_SET_TID_ADDRESS, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_MEMBARRIER, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_GETCPU,
	unix.SYS_GETPID, unix.SYS_GETPPID, unix.SYS_GETTID, unix.SYS_GETPGID, unix.SYS_GETSID, unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID,
	unix.SYS_GETGROUPS, unix.SYS_GETRESUID, unix.SYS_GETRESGID, unix.SYS_CAPGET, unix.SYS_GETPRIORITY, unix.SYS_GETRUSAGE, unix.SYS_SYSINFO, unix.SYS_UNAME,
	unix.SYS_GETRANDOM, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_NANOSLEEP, unix.SYS_GETTIMEOFDAY,
	unix.SYS_GETITIMER, unix.SYS_SETITIMER,
	// Useless without a socket; only the thread that starts commands has one.
	unix.SYS_RECVMSG, unix.SYS_SENDMSG, unix.SYS_SENDTO,
}, alwaysHere...)

// never lists the calls that no compiler makes: a process that does is suspicious.
var never = append([]uintptr{
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_FSOPEN, unix.SYS_FSCONFIG,
	unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_UNSHARE, unix.SYS_SETNS,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF,
	unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_SYSLOG, unix.SYS_FANOTIFY_INIT, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_VHANGUP,
}, neverHere...)

// newNamespaces has the flags of clone for new namespaces.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// newFilter returns the filter for h.
func newFilter(h *Hold, p *Policy, abi int, listen, signals bool) *filter {
	f := &filter{deny: errno(unix.EPERM)}
	if listen {
		f.deny = tell
	}
	// with returns a clause for a caller that has the key.
	with := func(arg int) []clause {
		return []clause{{[]test{{arg: arg, upper: true, op: unix.BPF_JEQ, value: h.key}}, allow}}
	}
	// A process that guesses keys is suspicious.
	guess := func(arg int) clause {
		return clause{[]test{{arg: arg, upper: true, op: unix.BPF_JEQ, value: 0, not: true}, {arg: arg, upper: true, op: unix.BPF_JEQ, value: ^uint32(0), not: true}}, f.deny}
	}
	if p.Names {
		f.names(with, guess) // of two rules for one call the first counts
	}
	refuse := errno(unix.EPERM)
	if !p.Alone {
		// Landlock does not see changes of the mode or times of any file of the same user, by name.
		for _, nr := range append([]uintptr{unix.SYS_FCHMODAT, unix.SYS_FCHMOD}, changeHere...) {
			f.rules = append(f.rules, rule{nr: nr, otherwise: refuse})
		}
		f.rules = append(f.rules, rule{unix.SYS_UTIMENSAT, []clause{{[]test{{arg: 1, op: unix.BPF_JEQ}, {arg: 1, upper: true, op: unix.BPF_JEQ}}, allow}}, refuse})
	}
	f.files(abi, refuse)
	for _, nr := range always {
		f.rules = append(f.rules, rule{nr: nr, otherwise: allow}) // of two rules for one call the first counts
	}
	equal := func(arg int, values ...uint32) (list []clause) {
		for _, v := range values {
			list = append(list, clause{[]test{{arg: arg, op: unix.BPF_JEQ, value: v}}, allow})
		}
		return list
	}
	own := test{arg: 0, op: unix.BPF_JEQ, value: 0}
	f.rules = append(f.rules,
		rule{unix.SYS_CLONE, []clause{
			{[]test{{arg: 0, op: unix.BPF_JSET, value: newNamespaces}}, f.deny},
			{[]test{{arg: 0, op: unix.BPF_JSET, value: unix.CLONE_PARENT | unix.CLONE_PTRACE | unix.CLONE_UNTRACED}}, refuse},
		}, allow},
		rule{unix.SYS_CLONE3, nil, errno(unix.ENOSYS)}, // its flags are in memory, where a filter does not see them: the C library falls back to clone
		rule{unix.SYS_PRLIMIT64, append(with(0), guess(0),
			clause{[]test{own, {arg: 2, op: unix.BPF_JEQ}, {arg: 2, upper: true, op: unix.BPF_JEQ}}, allow}, // only reads the limit
			clause{[]test{own, {arg: 1, op: unix.BPF_JEQ, value: unix.RLIMIT_STACK}}, allow},                // gcc's driver raises it
		), refuse},
		rule{unix.SYS_SETPGID, append(with(1), guess(1)), refuse},
		rule{unix.SYS_SETPRIORITY, append(with(1), guess(1)), refuse},
		rule{unix.SYS_IOCTL, append(append(with(0), equal(1, unix.TCGETS, unix.TIOCINQ, unix.TIOCGWINSZ, fioclex, fionclex)...),
			clause{[]test{{arg: 1, op: unix.BPF_JEQ, value: unix.TIOCSTI}}, f.deny}), errno(unix.ENOTTY)},
		rule{unix.SYS_FCNTL, equal(1, unix.F_DUPFD, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL, unix.F_GETLK, unix.F_SETLK, unix.F_SETLKW,
			unix.F_DUPFD_CLOEXEC, unix.F_OFD_GETLK, unix.F_OFD_SETLK, unix.F_OFD_SETLKW, unix.F_GET_SEALS), refuse},
		rule{unix.SYS_PRCTL, equal(0, unix.PR_SET_NAME, unix.PR_GET_NAME, unix.PR_SET_VMA, unix.PR_SET_PDEATHSIG, unix.PR_GET_PDEATHSIG, unix.PR_GET_DUMPABLE,
			unix.PR_SET_NO_NEW_PRIVS, unix.PR_GET_NO_NEW_PRIVS, unix.PR_CAPBSET_READ, unix.PR_GET_SECCOMP, unix.PR_GET_TIMERSLACK), refuse},
		rule{unix.SYS_PERSONALITY, equal(0, 0, ^uint32(0)), refuse}, // only the query, and the default
	)
	f.signals(h, with(0), guess(0), signals)
	if p.UID != 0 || p.GID != 0 { // a command becomes that user under the filter
		f.rules = append(f.rules, rule{unix.SYS_SETUID, equal(0, uint32(p.UID)), refuse}, rule{unix.SYS_SETGID, equal(0, uint32(p.GID)), refuse},
			rule{unix.SYS_SETGROUPS, equal(0, 0), refuse})
	}
	for _, nr := range never {
		f.rules = append(f.rules, rule{nr: nr, otherwise: f.deny})
	}
	return f
}

// files refuses to make a set-user-id file and, where Landlock does not see it, to empty a file by opening
// it for reading. Of two rules for one call the first counts.
func (f *filter) files(abi int, refuse action) {
	const setID = unix.S_ISUID | unix.S_ISGID
	open := func(nr uintptr, flags int) {
		list := []clause{{[]test{{arg: flags, op: unix.BPF_JSET, value: unix.O_CREAT}, {arg: flags + 1, op: unix.BPF_JSET, value: setID}}, refuse}}
		if abi < 3 {
			list = append(list, clause{[]test{{arg: flags, op: unix.BPF_JSET, value: unix.O_TRUNC}, {arg: flags, op: unix.BPF_JSET, value: unix.O_ACCMODE, not: true}}, refuse})
		}
		f.rules = append(f.rules, rule{nr, list, allow})
	}
	open(unix.SYS_OPENAT, 2)
	for _, nr := range openHere {
		open(nr, 1)
	}
	mode := map[uintptr]int{unix.SYS_FCHMOD: 1, unix.SYS_FCHMODAT: 2, unix.SYS_MKDIRAT: 2}
	for _, nr := range modeHere {
		mode[nr] = 1
	}
	for nr, arg := range mode {
		f.rules = append(f.rules, rule{nr, []clause{{[]test{{arg: arg, op: unix.BPF_JSET, value: setID}}, refuse}}, allow})
	}
}

// signals permits signals that cannot leave the command, if the kernel contains them, but none to the
// process that starts commands, where that could be reached.
func (f *filter) signals(h *Hold, with []clause, guess clause, contained bool) {
	refuse := errno(unix.EPERM)
	if !contained {
		f.rules = append(f.rules, rule{unix.SYS_KILL, append(with, guess, clause{[]test{{op: unix.BPF_JEQ}}, allow}), refuse})
		return
	}
	one := append(with, guess)
	var thread []clause
	for _, pid := range h.spare {
		no := clause{[]test{{op: unix.BPF_JEQ, value: uint32(pid)}}, refuse}
		one, thread = append(one, no), append(thread, no)
	}
	f.rules = append(f.rules, rule{unix.SYS_KILL, one, allow}, rule{unix.SYS_TGKILL, thread, allow})
}

// Close-on-exec, as requests of ioctl (ioctl(2)).
const (
	fioclex  = 0x5451
	fionclex = 0x5450
)
