package files

import (
	"sync"

	"github.com/rdistcc/rdistcc/internal/stamp"
	"github.com/rdistcc/rdistcc/internal/store"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// learnt is what is known of this machine's own headers. All methods may be called at any time.
type learnt struct {
	mu    sync.RWMutex
	files map[string]*learntFile
}

type learntFile struct {
	at      stamp.Stamp
	content *store.Content
}

// share has a tenant have the content of the file name, in the state at, and returns it pinned. If want does not say
// which content that is it is filled in. Nil: nothing is known of that state, or it is another content.
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

// has reports whether the file name is known in the state at.
func (l *learnt) has(name string, at stamp.Stamp) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	f := l.files[name]
	return f != nil && f.at == at
}

// put keeps a content, which is pinned, for the file name.
func (l *learnt) put(name string, f *learntFile) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropLocked(name)
	if l.files == nil {
		l.files = make(map[string]*learntFile)
	}
	l.files[name] = f
}

func (l *learnt) dropLocked(name string) {
	if f := l.files[name]; f != nil {
		f.content.Unpin()
		delete(l.files, name)
	}
}

// forget drops all but the files of these states.
func (l *learnt) forget(but map[string]stamp.Stamp) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, f := range l.files {
		if at, ok := but[name]; !ok || at != f.at {
			l.dropLocked(name)
		}
	}
}

// len is how many files are known.
func (l *learnt) len() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.files)
}
