package sandbox

import "golang.org/x/sys/unix"

const arch = unix.AUDIT_ARCH_X86_64

var openHere = []uintptr{unix.SYS_OPEN} // with the flags as second argument

var changeHere = []uintptr{unix.SYS_CHMOD, unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT}

// modeHere lists calls with a file's mode as second argument.
var modeHere = []uintptr{unix.SYS_CHMOD, unix.SYS_CREAT, unix.SYS_MKDIR}

// alwaysHere and neverHere are the calls that other architectures do not have.
var alwaysHere = []uintptr{
	unix.SYS_NEWFSTATAT, unix.SYS_READLINK, unix.SYS_OPEN, unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_ACCESS, unix.SYS_UNLINK, unix.SYS_RENAME,
	unix.SYS_LINK, unix.SYS_SYMLINK, unix.SYS_MKDIR, unix.SYS_RMDIR, unix.SYS_CHMOD, unix.SYS_CREAT, unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT, unix.SYS_GETDENTS,
	unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_PIPE, unix.SYS_DUP2, unix.SYS_POLL, unix.SYS_SELECT, unix.SYS_EPOLL_CREATE, unix.SYS_EPOLL_WAIT, unix.SYS_EVENTFD,
	unix.SYS_GETPGRP, unix.SYS_ALARM, unix.SYS_PAUSE, unix.SYS_TIME, unix.SYS_GETRLIMIT, unix.SYS_ARCH_PRCTL,
}

var neverHere = []uintptr{unix.SYS_KEXEC_FILE_LOAD, unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT}

// namedHere lists the calls that name files here only (named).
var namedHere = []namedCall{
	{unix.SYS_NEWFSTATAT, 0}, {unix.SYS_OPEN, -1}, {unix.SYS_STAT, -1}, {unix.SYS_LSTAT, -1}, {unix.SYS_ACCESS, -1}, {unix.SYS_READLINK, -1},
	{unix.SYS_CREAT, -1}, {unix.SYS_MKDIR, -1}, {unix.SYS_RMDIR, -1}, {unix.SYS_UNLINK, -1}, {unix.SYS_RENAME, -1}, {unix.SYS_LINK, -1}, {unix.SYS_SYMLINK, -1},
}
