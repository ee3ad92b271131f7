// Package checkout finds the directory of the checkout, or of the worktree, that a directory belongs to.
package checkout

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Root returns the directory of the checkout that dir is in, an absolute path, as dir spells it; "" if it is in none that counts.
//
// A worktree inside another one is a checkout of its own. A submodule belongs to the checkout around it, whose builds name files
// of both. What looks like a checkout and is none, because its .git leads nowhere, is passed over. So is the root of the file
// system, as there is nothing beside it.
func Root(dir string) string {
	for filepath.IsAbs(dir) && dir != "/" {
		if is(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	return ""
}

// is reports whether a directory is a checkout's.
func is(dir string) bool {
	for _, own := range []string{".hg/store", ".jj/repo"} {
		if exists(filepath.Join(dir, own)) { // in another workspace of .jj, a file that names it
			return true
		}
	}
	git := filepath.Join(dir, ".git")
	st, err := os.Stat(git)
	if err != nil {
		return false
	}
	if st.IsDir() {
		return exists(filepath.Join(git, "HEAD"))
	}
	if st.Size() > maxPointer {
		return false
	}
	text, err := os.ReadFile(git)
	to, points := strings.CutPrefix(string(text), "gitdir:")
	if to = strings.TrimSpace(to); err != nil || !points || to == "" {
		return false
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(dir, to)
	}
	// A worktree of a submodule has both in its path, the last one being its own.
	submodule := strings.LastIndex(to, "/modules/") > strings.LastIndex(to, "/worktrees/")
	return !submodule && exists(filepath.Join(to, "HEAD"))
}

// maxPointer is more than a .git file has, in bytes.
const maxPointer = 8 << 10

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// Roots remembers roots for a while. Its zero value is ready for use. It is safe for concurrent use.
type Roots struct {
	mu    sync.Mutex
	known map[string]root
}

type root struct {
	dir string
	at  time.Time
}

const (
	// lasts is how long a root is believed: it decides which results are shared, and not what they are.
	lasts = 10 * time.Second
	// mostKnown bounds the directories that are remembered. When it is exceeded, all are forgotten.
	mostKnown = 4096
)

// Of returns the Root of dir, as it was at most ten seconds ago.
func (r *Roots) Of(dir string) string {
	now := time.Now()
	r.mu.Lock()
	x, ok := r.known[dir]
	r.mu.Unlock()
	if ok && now.Sub(x.at) < lasts {
		return x.dir
	}
	x = root{Root(dir), now} // a file system may take its time, which is not that of others
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil || len(r.known) >= mostKnown {
		r.known = make(map[string]root)
	}
	r.known[dir] = x
	return x.dir
}
