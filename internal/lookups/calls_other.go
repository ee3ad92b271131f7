//go:build !amd64 && !arm64

package lookups

import "golang.org/x/sys/unix"

const arch = 0 // of no process: nothing can be watched

var first, second []uint32

func arguments(*unix.PtraceRegs) [2]uint64 { return [2]uint64{} }
