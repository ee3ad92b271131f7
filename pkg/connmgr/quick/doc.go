// Package quick does most compiles before the Go runtime starts. The runtime takes longer to start, in CPU time and page faults, than
// everything that the wrapper does for a compile whose result the manager has or gets: some seven eighths.
//
// The wrapper's process begins here. It sends the manager words, environment and a few facts, unread (ipc.Whole); if the answer is a
// silent success, it puts the files in their places and ends. In every other case the runtime starts, and the wrapper goes on as if
// nothing had been, with the connection and the answer that are Left: if there is no manager or none to be trusted, if
// the manager leaves the command to the wrapper, if a host was lost or the compiler has said something, if a file cannot be placed.
//
// So this code may give up at any point, but what it does must be right. It has no heap, no goroutines, no panics and no other
// packages' code: only system calls and static memory. TestCallsNothing holds it to that.
package quick
