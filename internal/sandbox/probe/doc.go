// Package probe tests what a sandbox lets through. It takes the place of a compiler:
// a program that runs confined, under the assumption that an attacker has taken over the
// compiler's process. It tries every way out that it knows (Attempts), and what a
// compile cannot do without (the class Need), and reports the outcome of each.
//
//	host := probe.NewHost()          outside: a secret, directories, sockets, a process
//	host.Targets().Args()       ─▶   Main(), confined: a line an attempt on stdout
//	Parse(stdout)               ─▶   Report: Reachable(), Works()
//	host.Touched()                   outside: what arrived, whatever the report says
//
// An attempt counts as reachable if the kernel let it happen, or if it got past the
// kernel's check of rights. It does no damage: it removes what it makes, sets what it
// changes to the value that it had, and only looks at processes that it meets.
//
// Each attempt is made in a process of its own, forked without exec, as some
// sandboxes kill for a system call, and a program cannot always be started twice.
// The program needs what Go's runtime needs: in addition to those of a compiler the system
// calls sched_getaffinity, sigaltstack, rt_sigaction, rt_sigprocmask, rt_sigreturn,
// gettid, tgkill, futex, nanosleep, epoll_create1, epoll_ctl, epoll_pwait, eventfd2
// and clone for threads and processes; about 1.5 GiB of address space and 20 MiB of
// memory.
package probe
