// Package probe asks a sandbox what it lets through. It stands where a compiler
// would: a program that runs confined and assumes that somebody has taken over the
// compiler's process. It tries every way out that it knows (Attempts), and what a
// compile cannot do without (the class Need), and says of each what came of it.
//
//	host := probe.NewHost()          outside: a secret, directories, sockets, a process
//	host.Targets().Args()       ─▶   Main(), confined: a line an attempt on stdout
//	Parse(stdout)               ─▶   Report: Reachable(), Works()
//	host.Touched()                   outside: what arrived, whatever the report says
//
// An attempt counts as reachable when the kernel let it happen, or when it got past
// the kernel's question who may do it. It takes nothing with it: what it makes it
// removes, what it changes it changes to what it was, and processes that it meets
// it only looks at.
//
// Each attempt is made in a process of its own, forked without exec, as some
// sandboxes kill for a system call, and a program cannot always be started twice.
// The program needs what Go's runtime needs: beside those of a compiler the system
// calls sched_getaffinity, sigaltstack, rt_sigaction, rt_sigprocmask, rt_sigreturn,
// gettid, tgkill, futex, nanosleep, epoll_create1, epoll_ctl, epoll_pwait, eventfd2
// and clone for threads and processes; about 1.5 GiB of addresses and 20 MiB of
// memory.
package probe
