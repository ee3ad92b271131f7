//go:build amd64 || arm64

package entrypoint

// short and long are where a process begins, before the Go runtime does, when its program is linked with
// `-ldflags '-E github.com/rdistcc/rdistcc/internal/entrypoint.long'`: short for a program that runs for milliseconds.
// They never return.
//
//nolint:unused // by the linker
func short()

//nolint:unused // as short
func long()
