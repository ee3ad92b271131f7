package files

import (
	"sync"

	"github.com/rdistcc/rdistcc/internal/stamp"
	"github.com/rdistcc/rdistcc/internal/store"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// learnt holds what is known of this machine's own headers. All methods may be called at any time.
type learnt struct {
	mu    sync.RWMutex
	files map[string]*learntFile
}

// learntFile is the content of a file in a certain state.
type learntFile struct {
	at      stamp.Stamp
	content *store.Content // pinned
}

// share gives a tenant the content of the file name in the state at, and returns it pinned. A zero want is
// set to the content's ID. share returns nil if that state is not known, or if want is another content.
func (l *learnt) share(name string, at stamp.Stamp, want *unit.ContentID, keeps *store.Tenant) *store.Content {
	if l == nil {
		return nil
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	f := l.files[name]
	if f == nil || f.at != at || *want != (unit.ContentID{}) && *want != f.content.ID() {
		return nil
	}
	c := keeps.Share(f.content)
	if c != nil {
		*want = f.content.ID()
	}
	return c
}

// has reports whether the content of the file name in the state at is known.
func (l *learnt) has(name string, at stamp.Stamp) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	f := l.files[name]
	return f != nil && f.at == at
}

// put keeps f for the file name, in place of an earlier state. It takes over the pin of f's content.
func (l *learnt) put(name string, f *learntFile) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropLocked(name)
	if l.files == nil {
		l.files = make(map[string]*learntFile)
	}
	l.files[name] = f
}

// dropLocked drops the file name, if it is known, and unpins its content.
func (l *learnt) dropLocked(name string) {
	if f := l.files[name]; f != nil {
		f.content.Unpin()
		delete(l.files, name)
	}
}

// forget drops all files except those that are in the state that but has for them.
func (l *learnt) forget(but map[string]stamp.Stamp) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, f := range l.files {
		if at, ok := but[name]; !ok || at != f.at {
			l.dropLocked(name)
		}
	}
}

// len returns how many files are known.
func (l *learnt) len() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.files)
}
