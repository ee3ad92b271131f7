package lookups

import "golang.org/x/sys/unix"

const arch = unix.AUDIT_ARCH_AARCH64

// first and second list the calls that look up a name which is their first argument, or their second one in the directory that is
// the first.
var (
	first  = []uint32{unix.SYS_STATFS}
	second = []uint32{
		unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_FSTATAT, unix.SYS_STATX, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_READLINKAT,
	}
)

// arguments returns the first two arguments of the call that a thread is in.
func arguments(r *unix.PtraceRegs) [2]uint64 { return [2]uint64{r.Regs[0], r.Regs[1]} }
