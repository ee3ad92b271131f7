package offload

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"time"
)

// Share is the part of a program's CPU time, from 0 to 1, in user and in system mode.
type Share struct{ User, System float64 }

// Profile says whose the samples of a daemon's CPU profile are.
type Profile struct {
	Total   time.Duration
	Stack   Share // the software stack: FPDUs, CRCs, placement, and its system calls on sockets
	Runtime Share // no function of the project: scheduler, poller, garbage collector
	Daemon  Share // all else
}

// stackPackage is in the names of the stack's functions, but for package inproc and the like, which a daemon does not link.
const stackPackage = "/pkg/iwarp"

// ParseTraces reads what `go tool pprof -traces` prints of a CPU profile: stacks, each with the time that was spent there,
// innermost function first. A stack with a function of the software stack in it is the stack's, whoever has called it.
func ParseTraces(r io.Reader) (*Profile, error) {
	p := new(Profile)
	sums := map[*Share]*Share{&p.Stack: {}, &p.Runtime: {}, &p.Daemon: {}} // in seconds
	var spent time.Duration
	var frames []string
	flush := func() {
		if len(frames) == 0 || spent == 0 {
			return
		}
		of := &p.Runtime
		for _, f := range frames {
			if strings.Contains(f, stackPackage) {
				of = &p.Stack
				break
			}
			if strings.Contains(f, "rdistcc/") || strings.HasPrefix(f, "main.") {
				of = &p.Daemon
			}
		}
		to := &sums[of].User
		if inKernel(frames[0]) {
			to = &sums[of].System
		}
		*to += spent.Seconds()
		p.Total += spent
	}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "-----------+") {
			flush()
			frames, spent = nil, 0
			continue
		}
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if d, err := time.ParseDuration(f[0]); err == nil && len(f) > 1 {
			spent, frames = d, append(frames, f[1])
		} else if len(frames) > 0 {
			frames = append(frames, f[0])
		}
	}
	flush()
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if p.Total == 0 {
		return nil, errors.New("a profile without samples")
	}
	for to, sum := range sums {
		*to = Share{sum.User / p.Total.Seconds(), sum.System / p.Total.Seconds()}
	}
	return p, nil
}

// inKernel reports whether a stack that ends in function f was in a system call. Samples do not say it themselves.
func inKernel(f string) bool {
	for _, s := range []string{".Syscall6", ".RawSyscall6", "runtime.futex", "runtime.epollwait", "runtime.usleep", "runtime.write1", "runtime.read", "runtime.madvise"} {
		if strings.HasSuffix(f, s) {
			return true
		}
	}
	return false
}

// Whole returns the share as one number.
func (s Share) Whole() float64 { return s.User + s.System }
