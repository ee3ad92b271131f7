// Package rdistcc holds what belongs to the whole: this overview, the test of
// the import rules and the end-to-end tests.
//
// rdistcc compiles C and C++ on other machines. Three programs take part:
//
//	 build host                                        compile host
//	rdistcc ──Unix socket──▶ rdistcc-cm ◀═══iWARP═══▶ rdistccd
//	one short run            lives on: warm QPs,        lives on: slots,
//	per source file          slots, scheduler           credits, workers
//
// cmd/rdistcc stands before the compiler on the command line. It understands the
// command (pkg/compile), leases a piece of shared memory from the connection
// manager (pkg/connmgr/ipc) and packs into it the files that the compile reads
// (internal/sources), or, for hosts that show no private trees, has the preprocessor
// write there. It puts the files that come back where the compiler would have put
// them. What it does not know for certain it compiles here.
//
// cmd/rdistcc-cm is the connection manager (pkg/connmgr): one a user, started on
// demand. It keeps connections to all hosts warm, owns the memory that goes over
// them (internal/shm) and chooses a host for each job (pkg/scheduler).
//
// cmd/rdistccd is the daemon of a compile host (pkg/worker). It grants credits,
// each the right to write one job's sources into one slot of its memory and have
// them compiled, runs compilers that it has identified by content (internal/toolchain) and
// writes results into the manager's memory.
//
// Between the two runs iWARP (pkg/iwarp and the packages below it): RDMA over
// TCP, here in user space. internal/job says what is sent over it.
//
// ARCHITECTURE.md has the package map, the invariants and the life of a compile.
package rdistcc
