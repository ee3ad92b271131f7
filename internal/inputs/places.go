package inputs

import (
	"crypto/sha256"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// What follows is for compiles that run on this machine, where a compiler sees more than the files of its Set: it finds what
// is there at the moment when it looks.

// Places returns the directories on which the answer to q depends, by every name under which they count, including those
// that do not exist. It is nil if no Set for q is known.
func (t *Table) Places(q *Query) (dirs []string) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	u := t.units[sha256.Sum256([]byte(q.Key))]
	if u == nil || u.set == nil {
		return nil
	}
	for id := range u.dirs.all {
		d := t.ids[id]
		dirs = append(dirs, d.path)
		if d.there && d.way.real != d.path && d.way.real != "" {
			dirs = append(dirs, d.way.real)
		}
	}
	return dirs
}

// Asked reports whether the answer to any query depends on a name in a directory, which is named as Places does.
func (t *Table) Asked(dir, name string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	d := t.dirs[dir]
	return d != nil && d.names[name] != nil
}

// Clock returns the time that the kernel would record of a change of a file at this moment, in nanoseconds since 1970.
func Clock() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts) != nil {
		return 0 // since which everything has changed
	}
	return ts.Nano()
}

// Rested reports whether any change of a file of s from now on would show in its stamp, where now is what Clock has returned.
// It would not in one that was changed in the same step of the clock.
func (s *Set) Rested(now int64) bool {
	const second = int64(time.Second)
	return !slices.ContainsFunc(s.Files, func(f *Input) bool {
		if f.st.CTime%second == 0 { // a file system may record no more than seconds
			return f.st.CTime+second >= now
		}
		return f.st.CTime >= now
	})
}
