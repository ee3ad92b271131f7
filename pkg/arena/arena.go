// Package arena keeps recycled shared memory: sparse memfds, one a slot, mapped
// and pre-faulted, whose descriptors can be handed to another process.
package arena
