//go:build amd64 || arm64

package main

// entry is where the process begins, before the Go runtime does, when the program is linked with
// `-ldflags '-E main.entry'`, as the Makefile has it. It never returns.
//
//nolint:unused // by the linker
func entry()
