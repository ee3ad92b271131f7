// Package simfarm simulates farms and builds around pkg/scheduler, with one instance for each
// client as in reality, and around rules to compare it with; and around pkg/worker/lend,
// with one instance for each host.
//
// Time is simulated and events come in a fixed order: a case, a rule and a seed give
// one outcome. What is modelled, and how:
//
//   - hosts share their cores evenly among all processes, including those of others; speed,
//     foreign load and state may change in mid-build (Change)
//   - a daemon does what pkg/worker/lend decides: whose job gets a core, and who is granted a
//     credit or asked for some. Each client is a tenant of its own that does not say how
//     many places it has use for, or how long jobs take; memory is never short
//   - a link has a round-trip time and a rate, and carries one message at a time each way
//   - hosts that have stores (Stores) keep what each client sends, and are sent the headers
//     that jobs share once; a host that has dropped some says so, and is sent them a round
//     trip later. Without stores each job brings everything that it reads
//   - a client is make -j: a job lists its files on the client's cores, at most twice
//     as many at a time as there are cores, then waits for the rule's decision
//   - a manager sees a host through results and by reading its load board, as pkg/connmgr
//     does, and learns of a host's end from a reset or from the heartbeat
//
// Jobs are recorded compiles (testdata, made with ./record) or lognormal ones. They
// depend on nothing, as the compiles of most builds; what make cannot start yet
// is not simulated.
package simfarm
