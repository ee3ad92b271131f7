// Package scheduler chooses the host of a job. It does no I/O, starts no
// goroutine and is told the time.
//
// Its owner reports what happens to hosts (Ensure, Connecting, Starting, Up, Toolchains,
// Identifying, Credits, Load, Link, Draining, Lost) and to jobs (Started, Done). After each
// change it asks Hedges for jobs that are late, Order and Pick for those that wait, and
// Hedges again for when to come back.
//
//	unknown ─▶ connecting ─▶ up ─▶ draining
//	              ▲   │       │        │
//	         Due  │   ▼       ▼        ▼
//	              └── lost (breaker open until a pause is over)
//
// # Which host
//
// A job goes where it is expected to finish first: the earliest finish of HEFT
// (H. Topcuoglu, S. Hariri, M.-Y. Wu, IEEE TPDS 13(3), 2002), over a list schedule of
// the jobs already placed (R. L. Graham, SIAM J. Appl. Math. 17(2), 1969):
//
//	finish = max(arrival, core free) + length + way back
//	length = time on a core of speed 1 / speed of the host x contention there
//
// The time comes with the job (Cost, from pkg/connmgr/history), or else from its size and the
// time per byte so far. Speed is learned for each host and toolchain from the CPU time
// that Done reports. A host that has run nothing yet is assumed to be as fast as the
// others, or as it claims. Three bad mispredictions in a row reset the learned speed.
// Contention is the ratio of wall to CPU time of the latest jobs. That ages quickly;
// then the part of the load average that is not compiles counts. Where most running
// jobs are late, the host is taken to be as slow as they are before any of them ends.
// When a core becomes free follows from the expected ends of our jobs there, and from the
// jobs of other managers in the host's view of itself; an old view decays to what is
// usual there. Arrival counts the bytes on the link ahead of this job.
//
// A full host may be worth waiting for. Jobs that wait hold their place in its schedule
// against the jobs that are asked for after them, so that one quick host does not attract
// the whole queue. No job waits several times its runtime elsewhere. Hosts whose finishes
// are practically equal are filled evenly.
//
// A host gets as many jobs as it has cores, plus Depth: those that end while one travels.
// The cores of this machine form a host too (LocalHost), at a small penalty, as the
// preprocessors and linkers of others wait for them. A job that is expected to need more
// memory than a host has free goes elsewhere.
//
// # In which order
//
// Builds take turns, the one with the fewest jobs running first. Within a build the
// longest job goes first, but it overtakes earlier jobs by no more than its own length
// (Order).
//
// # What goes wrong
//
//   - A job that runs longer than 19 of 20 comparable ones, beyond any queue, gets a
//     duplicate on another host where it would end sooner, within a budget (Hedges;
//     J. Dean, L. A. Barroso: The Tail at Scale, CACM 56(2), 2013). If its time was
//     a guess and the host answers other jobs, it is taken for a long job: the time
//     it has taken so far then predicts its length, there and elsewhere.
//   - A host whose jobs are overtaken by duplicates looks slower with each. After three of
//     them it gets no jobs for a while, and those it has count as late. The same happens
//     to a host that loses jobs, fails them, or kills the compilers of three different
//     sources; never to one whose compiler reports errors. Pauses double. After the pause
//     the host is half open: one job at a time, until one went well.
//   - A job without any other host makes lost ones due at once (Decision.Redial) and waits
//     for the outcome of the attempt; a Strict one waits for any host that can come up.
//     Jobs that ask at nearly the same time share an attempt.
//   - A host that grants no credit is waited for with Patience, and not suspected
//     while jobs of ours run there.
//   - A host that was not heard of for long gets a short job now and then, so that an
//     old opinion of it does not stand for ever.
//   - Drain keeps new jobs away by hand, Quarantine because of wrong results.
package scheduler
