// Package sandbox keeps compilers in: it takes from a thread, and from all that is
// started by it, what a compile does not need of the machine, and tells by which
// measures.
package sandbox
