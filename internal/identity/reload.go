package identity

import (
	"io/fs"
	"os"
	"syscall"
	"time"
)

const (
	// lookEvery is the least time between two checks of the files.
	lookEvery = time.Second
	// settled is the age at which a file's stamp reliably tells it from another: clocks of file systems tick in
	// milliseconds, some every two seconds.
	settled = 2 * time.Second
)

// stamp distinguishes one state of a file from another.
type stamp struct {
	ino      uint64
	size     int64
	mod      time.Time
	changed  syscall.Timespec
	unstated bool // stat failed
}

type stamps [4]stamp

// stampOf returns the stamp of a file; path "" means no file.
func stampOf(path string) stamp {
	if path == "" {
		return stamp{}
	}
	st, err := os.Stat(path)
	if err != nil {
		return stamp{unstated: true}
	}
	s := stamp{size: st.Size(), mod: st.ModTime()}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		s.ino, s.changed = sys.Ino, sys.Ctim
	}
	return s
}

func (id *Identity) stamps() stamps {
	return stamps{stampOf(id.s.PSKFile), stampOf(id.s.Cert), stampOf(id.s.Key), stampOf(id.s.CA)}
}

// fresh reports whether a file is so new that its next state may have the same stamp.
func fresh(s []stamp, now time.Time) bool {
	for i := range s {
		if age := now.Sub(s[i].mod); !s[i].mod.IsZero() && age < settled && age > -settled {
			return true
		}
	}
	return false
}

// Reload reads the files again. On error the old ones stay in force. Existing connections are not affected.
func (id *Identity) Reload() error {
	if id.mode == Open {
		return nil
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.reloadLocked(id.stamps())
}

func (id *Identity) reloadLocked(s stamps) error {
	now := id.now()
	id.looked, id.seen = now, s
	if fresh(s[:], now) {
		id.seen = stamps{} // read again at the next check
	}
	c, err := load(id.role, id.mode, id.s, now)
	if err != nil {
		return err
	}
	id.current.Store(c)
	id.told = ""
	return nil
}

// credentials returns those in force, after checking the files for changes.
func (id *Identity) credentials() *credentials {
	id.mu.Lock()
	defer id.mu.Unlock()
	old := id.current.Load()
	now := id.now()
	if age := now.Sub(id.looked); age < lookEvery {
		return old
	}
	id.looked = now
	s := id.stamps()
	if s == id.seen {
		return old
	}
	if err := id.reloadLocked(s); err != nil {
		if err.Error() != id.told {
			id.told = err.Error()
			id.logger().Warn("new certificates or keys are not taken: those before stay in force", "err", err)
		}
		return old
	}
	current := id.current.Load()
	if !current.same(old) {
		id.logger().Info("new certificates or keys are in force for new connections")
	}
	return current
}

// pathError returns what is wrong with opening a file, without its name.
func pathError(err error) error {
	if pe, ok := err.(*fs.PathError); ok {
		return pe.Err
	}
	return err
}
