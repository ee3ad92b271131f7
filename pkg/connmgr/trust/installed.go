package trust

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Installed says whether only root and the user uid can decide what file is: it and
// all above it, on the way by its name and where that leads, are theirs and closed to
// others' writing.
func Installed(file string, uid uint32) bool {
	if !filepath.IsAbs(file) || strings.Contains(file+"/", "/../") { // behind a link .. is elsewhere
		return false
	}
	// Each link on the way has a way of its own; few are more than two.
	for range 40 {
		at := "/"
		next := ""
		for _, name := range strings.Split(filepath.Clean(file), "/")[1:] {
			if !ours(at, uid) {
				return false
			}
			at = filepath.Join(at, name)
			if to, err := os.Readlink(at); err == nil {
				if !filepath.IsAbs(to) {
					to = filepath.Join(filepath.Dir(at), to)
				}
				next = filepath.Join(to, strings.TrimPrefix(filepath.Clean(file), at))
				break
			}
		}
		if next == "" {
			return ours(at, uid)
		}
		file = next
	}
	return false
}

// ours says whether a file or directory is root's or the user's, and closed to
// others' writing.
func ours(name string, uid uint32) bool {
	var st syscall.Stat_t
	return syscall.Lstat(name, &st) == nil && (st.Uid == 0 || st.Uid == uid) && st.Mode&0o022 == 0
}
