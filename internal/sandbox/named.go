//go:build amd64 || arm64

package sandbox

import "golang.org/x/sys/unix"

// named lists the calls that name files, or where a command is, with the argument in which the key of the thread that answers them is: a
// directory's descriptor, an int; -1: that thread does not make the call. Calls that execute programs are not among them.
var named = append([]namedCall{
	{unix.SYS_OPENAT, 0}, {unix.SYS_STATX, 0}, {unix.SYS_FACCESSAT, 0}, {unix.SYS_FACCESSAT2, 0}, {unix.SYS_READLINKAT, 0},
	{unix.SYS_MKDIRAT, 0}, {unix.SYS_UNLINKAT, 0}, {unix.SYS_RENAMEAT2, 0}, {unix.SYS_LINKAT, 0}, {unix.SYS_SYMLINKAT, 1}, {unix.SYS_FCHDIR, 0},
	{unix.SYS_RENAMEAT, -1}, {unix.SYS_STATFS, -1}, {unix.SYS_CHDIR, -1}, {unix.SYS_GETCWD, -1},
}, namedHere...)

type namedCall struct {
	nr  uintptr
	key int
}

// names has calls that name files told, except those that the answering thread makes for them. The rest of what a filter has for these
// calls is then up to that thread.
func (f *filter) names(with func(arg int) []clause, guess func(arg int) clause) {
	for _, c := range named {
		r := rule{nr: c.nr, otherwise: tell}
		if c.key >= 0 {
			r.if_ = with(c.key)
		}
		f.rules = append(f.rules, r)
	}
	// What would be executed from a file, but no program: libraries.
	f.rules = append(f.rules, rule{unix.SYS_MMAP, []clause{
		{[]test{{arg: 2, op: unix.BPF_JSET, value: unix.PROT_EXEC, not: true}}, allow},
		{[]test{{arg: 3, op: unix.BPF_JSET, value: unix.MAP_ANONYMOUS}}, allow},
	}, tell})
	for _, nr := range []uintptr{unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV} {
		f.rules = append(f.rules, rule{nr, append(with(0), guess(0)), f.deny})
	}
}
