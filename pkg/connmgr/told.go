package connmgr

import (
	"slices"
	"sync"
	"time"
)

const (
	// forgetBuild is how long a build without commands is remembered. It must be forgotten at some time
	// because a process group, which distinguishes builds, can live on: a container's shell may be one for
	// everything typed there.
	forgetBuild = 5 * time.Minute
	maxBuilds   = 1024 // builds remembered at a time
)

// told remembers what builds have been told, so that each is told a reason once and not with every command.
// It is safe for concurrent use.
type told struct {
	mu     sync.Mutex
	builds map[uint64]*toldBuild
}

type toldBuild struct {
	heard   time.Time // when a command of the build was last answered
	reasons []string
}

// news reports whether build has not been told reason yet.
func (t *told) news(now time.Time, build uint64, reason string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.builds == nil {
		t.builds = make(map[uint64]*toldBuild)
	}
	b := t.builds[build]
	if b == nil || now.Sub(b.heard) > forgetBuild {
		if len(t.builds) >= maxBuilds {
			for k, old := range t.builds {
				if now.Sub(old.heard) > forgetBuild {
					delete(t.builds, k)
				}
			}
			if len(t.builds) >= maxBuilds {
				clear(t.builds)
			}
		}
		b = new(toldBuild)
		t.builds[build] = b
	}
	b.heard = now
	if slices.Contains(b.reasons, reason) {
		return false
	}
	b.reasons = append(b.reasons, reason)
	return true
}
