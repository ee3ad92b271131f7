package ipc

import (
	"errors"
	"strconv"
	"syscall"
)

// Reasons to distrust a directory or a manager.
var (
	ErrOwner    = errors.New("it belongs to another user")
	ErrWritable = errors.New("other users can write to it (chmod go-w)")
)

// CheckDir returns an error if dir is not this user's own directory (ErrOwner), or if others may write to it
// (ErrWritable): a user who can replace the socket in it could answer with forged objects.
func CheckDir(dir string) error {
	var st syscall.Stat_t
	if err := retry(func() error { return syscall.Lstat(dir, &st) }); err != nil {
		return err
	}
	switch {
	case st.Mode&syscall.S_IFMT != syscall.S_IFDIR:
		return syscall.ENOTDIR
	case int(st.Uid) != syscall.Geteuid():
		return ErrOwner
	case st.Mode&0o022 != 0:
		return ErrWritable
	}
	return nil
}

// Trusted returns nil if a manager that runs as user uid behind the socket path may serve this user. It may if
// uid is this user or root, or if it is the manager of the machine. That one is recognized by all of this:
//
//   - the socket and its directory belong to uid;
//   - only uid may write to the directory, which is open to a group but not to all users (mode 0750);
//   - only root or uid can have put the directory where it is, unlike one in /tmp, where every user can.
func Trusted(path string, uid uint32) error {
	if uid == 0 || int(uid) == syscall.Geteuid() {
		return nil
	}
	dir := path
	for len(dir) > 0 && dir[len(dir)-1] != '/' {
		dir = dir[:len(dir)-1]
	}
	if dir == "" {
		dir = "."
	}
	var d, s syscall.Stat_t
	if err := retry(func() error { return syscall.Stat(dir, &d) }); err != nil {
		return err
	}
	if err := retry(func() error { return syscall.Lstat(path, &s) }); err != nil {
		return err
	}
	if d.Uid != uid || s.Uid != uid || d.Mode&0o027 != 0 || d.Mode&0o050 != 0o050 {
		return ErrOwner
	}
	return placedBy(dir, uid)
}

// placedBy returns nil if only root and uid can decide what is found at dir: all directories above it, with
// links followed, belong to them, and no other user may write to them.
func placedBy(dir string, uid uint32) error {
	var fd int
	err := retry(func() (err error) {
		fd, err = syscall.Open(dir, oPath|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	var buf [syscall.PathMax]byte
	n, err := syscall.Readlink("/proc/self/fd/"+strconv.Itoa(fd), buf[:])
	if err != nil {
		return err
	}
	for n > 1 {
		for n--; n > 0 && buf[n] != '/'; n-- {
		}
		above := string(buf[:max(n, 1)])
		var st syscall.Stat_t
		if err := retry(func() error { return syscall.Lstat(above, &st) }); err != nil {
			return err
		}
		if st.Uid != 0 && st.Uid != uid {
			return ErrOwner
		}
		if st.Mode&0o022 != 0 {
			return ErrWritable
		}
	}
	return nil
}

// Names in the state directory.
const (
	SocketName = "cm.sock"
	LockName   = "start.lock"
	LogName    = "cm.log"
	ToldName   = "told"
)

// StateDir returns the directory of the socket, according to the environment: RDISTCC_DIR if set, otherwise
// the first of XDG_RUNTIME_DIR/rdistcc, HOME/.cache/rdistcc and /tmp/rdistcc-UID that this user can write to
// or create. It checks because package builds have a HOME that does not exist, su keeps the XDG_RUNTIME_DIR
// of the other user, and a home in a container may be read-only.
func StateDir(getenv func(string) string) string {
	if d := getenv("RDISTCC_DIR"); d != "" {
		return d
	}
	if d := getenv("XDG_RUNTIME_DIR"); d != "" && ours(d, "/rdistcc") {
		return d + "/rdistcc"
	}
	if d := getenv("HOME"); d != "" && ours(d, "/.cache", "/rdistcc") {
		return d + "/.cache/rdistcc"
	}
	return "/tmp/rdistcc-" + strconv.Itoa(syscall.Geteuid())
}

// ours reports whether this user can write to the directory base plus names, or create it. base itself must
// exist.
func ours(base string, names ...string) bool {
	const modeWX = 3 // W_OK | X_OK
	for i := len(names); ; i-- {
		dir := base
		for _, name := range names[:i] {
			dir += name
		}
		err := retry(func() error { return syscall.Access(dir, modeWX) })
		if err != syscall.ENOENT || i == 0 {
			return err == nil
		}
	}
}

// SocketPath returns the path of the manager's socket, according to the environment: RDISTCC_CM_SOCKET if set,
// otherwise cm.sock in StateDir.
func SocketPath(getenv func(string) string) string {
	if s := getenv("RDISTCC_CM_SOCKET"); s != "" {
		return s
	}
	return StateDir(getenv) + "/" + SocketName
}
