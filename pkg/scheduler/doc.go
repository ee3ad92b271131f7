// Package scheduler chooses the host of a job. It does no I/O, starts no
// goroutine and is told the time.
//
// Its owner tells it what happens to hosts (Ensure, Connecting, Starting, Up, Toolchains,
// Identifying, Credits, Load, Link, Draining, Lost) and to jobs (Started, Done). After each change
// it asks Hedges for jobs that are late, Order and Pick for those that wait, and
// Hedges again for when to come back.
//
//	unknown ─▶ connecting ─▶ up ─▶ draining
//	              ▲   │       │        │
//	         Due  │   ▼       ▼        ▼
//	              └── lost (breaker open until a pause is over)
//
// # Which host
//
// A job goes where it is expected to be done first: the earliest finish of HEFT
// (H. Topcuoglu, S. Hariri, M.-Y. Wu, IEEE TPDS 13(3), 2002), over a list schedule of
// what is there already (R. L. Graham, SIAM J. Appl. Math. 17(2), 1969):
//
//	finish = max(arrival, core free) + length + way back
//	length = time on a core of speed 1 / speed of the host x contention there
//
// The time comes with the job (Cost, from internal/history), or else from its size and
// what a byte took so far. Speed is learned for each host and toolchain from the CPU
// time that Done reports; a host of which nothing is known is as fast as the others,
// or as it says. Three jobs running that are far off make it another host.
// Contention is wall time beside CPU time of the latest jobs, which is soon old, else
// the load average as far as it is not compiles; and where most jobs that run are
// late, the host is as slow as they are, before anything has ended.
// A core is free by the ends that are expected of our jobs there, and by the jobs of
// other managers that the host's view of itself tells; an old view decays to what is
// usual there. Arrival counts the bytes on the link before this job.
//
// A host that is full may be worth waiting for. Those that wait hold their place in
// its schedule for the jobs that are asked for after them, so that one quick host does
// not keep the whole queue. Nobody waits several times as long as he would take
// elsewhere. Hosts whose finishes are as good as equal are filled evenly.
//
// A host gets as many jobs as it has cores, and Depth more: those that end while one
// travels. The cores of this machine are a host (LocalHost), somewhat dearer than they
// are, as the preprocessors and linkers of others wait for them. A job that is expected
// to need more memory than a host has free goes elsewhere.
//
// # In which order
//
// Builds take turns, the one with the fewest jobs running first. Within a build the
// longest job goes first, but by no more than its length before those that came
// earlier (Order).
//
// # What goes wrong
//
//   - A job that is later than 19 of 20 of its like, beyond any queue, gets a
//     duplicate on another host where it would end sooner, within a budget (Hedges;
//     J. Dean, L. A. Barroso: The Tail at Scale, CACM 56(2), 2013). Where its time was
//     a guess and the host answers others, it is taken for a long job: what it has
//     had so far then tells its length, there and elsewhere.
//   - A host whose jobs are overtaken so looks slower with each, and after three of
//     them gets none for a while, and the jobs it has count as late. So does one that loses jobs, fails them, or kills
//     compilers of three different sources; never one whose compiler objects.
//     Pauses double. Then it is half open: one job at a time, until one went well.
//   - A job that has no other host makes lost ones due at once (Decision.Redial) and waits
//     for what comes of the attempt; a Strict one waits for any host that can come up.
//     Who asks next to each other shares an attempt.
//   - A host that grants no credit is waited for with Patience, and not suspected
//     while jobs of ours run there.
//   - A host that was not heard of for long gets a short job now and then, so that
//     what was believed of it once does not stand for ever.
//   - Drain and Quarantine keep new jobs away by hand and because of wrong results.
package scheduler
