package trust

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Installed reports whether only root and the user uid can decide what file is. The file and all directories
// above it, along its name and wherever links lead, must belong to them, and no other user may write to them.
func Installed(file string, uid uint32) bool {
	if !filepath.IsAbs(file) || strings.Contains(file+"/", "/../") { // after a link, .. is another directory
		return false
	}
	// Each link on the path starts a new path. More than two are rare.
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

// ours reports whether a file or directory belongs to root or uid, and no other user may write to it.
func ours(name string, uid uint32) bool {
	var st syscall.Stat_t
	return syscall.Lstat(name, &st) == nil && (st.Uid == 0 || st.Uid == uid) && st.Mode&0o022 == 0
}
