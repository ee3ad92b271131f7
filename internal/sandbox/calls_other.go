//go:build !amd64 && !arm64

package sandbox

// arch is 0: there is no list of system calls for this machine.
const arch = 0

func newFilter(*Hold, *Policy, int, bool, bool) *filter { return &filter{} }
