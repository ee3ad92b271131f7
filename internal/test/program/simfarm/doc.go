// Package simfarm simulates farms and builds around pkg/scheduler, one instance a
// client as in truth, and around rules to hold it against; and around pkg/worker/lend,
// one instance a host.
//
// Time is simulated and events come in a fixed order: a case, a rule and a seed give
// one outcome. What is modelled, and after what:
//
//   - hosts share their cores evenly among all processes, those of others too; speed,
//     foreign load and life may change in mid-build (Change)
//   - a daemon does what pkg/worker/lend decides: whose job a core takes, and who gets a
//     credit or is asked for some. Each client is a tenant of its own that does not say how
//     many places it has use for, or how long jobs take; memory is never short
//   - a link has a round-trip time and a rate, and carries one message at a time each way
//   - hosts that have stores (Stores) keep what each client sends, and are sent the headers
//     that jobs share once; a host that has dropped some says so, and is sent them a round
//     trip later. Without stores each job brings all that it reads
//   - a client is make -j: a job lists its files on the client's cores, at most twice
//     as many at a time as there are cores, then waits for the rule's word
//   - a manager sees a host by results and by reading its load board, as pkg/connmgr
//     does, and hears of a host's end by a reset or by the heartbeat
//
// Jobs are recorded compiles (testdata, made with ./record) or lognormal ones. They
// depend on nothing, as the compiles of most builds; what make cannot start yet
// is not simulated.
package simfarm
