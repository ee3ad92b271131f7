package made

import (
	"crypto/sha256"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/stamp"
)

// Look returns the stamp of an image. ok is false if there is no regular file of that name.
func Look(name string) (at stamp.Stamp, ok bool) {
	var st unix.Stat_t
	if unix.Lstat(name, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return stamp.Stamp{}, false
	}
	return stamp.Of(&st), true
}

// Faithful reports whether any change of an image shows in its stamp, where it lies.
func Faithful(name string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(name, &fs) == nil && stamp.Faithful(&fs)
}

// Sum returns the SHA-256 of the image with that stamp. ok is false if the file of that name is another one, or was changed
// meanwhile.
func Sum(name string, at stamp.Stamp) (sum [sha256.Size]byte, ok bool) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return sum, false
	}
	defer f.Close()
	is := func() bool {
		var st unix.Stat_t
		return unix.Fstat(int(f.Fd()), &st) == nil && stamp.Of(&st) == at && at.Settled(time.Now().UnixNano())
	}
	if !at.Is(unix.S_IFREG) || !is() {
		return sum, false
	}
	h := sha256.New()
	if n, err := io.Copy(h, io.LimitReader(f, at.Size+1)); err != nil || n != at.Size || !is() {
		return sum, false
	}
	return [sha256.Size]byte(h.Sum(nil)), true
}
