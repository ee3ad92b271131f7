// Package sandbox confines compilers: it takes from a thread, and from everything that the thread starts,
// what a compile does not need of the machine, and reports by which measures.
package sandbox
