package sandbox

import "golang.org/x/sys/unix"

const arch = unix.AUDIT_ARCH_AARCH64

var openHere, changeHere, modeHere []uintptr

// alwaysHere and neverHere are the calls that other architectures do not have.
var (
	alwaysHere = []uintptr{unix.SYS_FSTATAT, unix.SYS_GETRLIMIT}
	neverHere  = []uintptr{unix.SYS_KEXEC_FILE_LOAD}
)

// namedHere lists the calls that name files here only (named).
var namedHere = []namedCall{
	{unix.SYS_FSTATAT, 0},
}
