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

// CheckDir refuses a directory that is not this user's own (ErrOwner) or that
// others may write to (ErrWritable): whoever can replace the socket in it could
// answer with objects of his own.
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

// Trusted says whether a manager of user uid behind the socket path may serve
// this user: it is the user himself, root, or the manager of the machine: then
// the socket and its directory are uid's own, nobody else may write to the
// directory, it is open to a group, not to all (0750), and only root, or uid, can have
// put it where it is: in /tmp everybody can.
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

// placedBy says whether only root and uid can decide what lies at dir: all that is above
// it, where links lead to, is theirs and closed to others.
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
)

// StateDir is the directory of the socket, from the environment: RDISTCC_DIR, else the
// first of XDG_RUNTIME_DIR/rdistcc, HOME/.cache/rdistcc and /tmp/rdistcc-UID that this
// user can write to, or make. A package is built with a HOME that does not exist, su
// keeps the XDG_RUNTIME_DIR of somebody else, and a container's home is read-only.
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

// ours reports whether this user can write to what lies below base by these names, or
// make it. base itself has to be there.
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

// SocketPath is the manager's socket, from the environment: RDISTCC_CM_SOCKET,
// else cm.sock in StateDir.
func SocketPath(getenv func(string) string) string {
	if s := getenv("RDISTCC_CM_SOCKET"); s != "" {
		return s
	}
	return StateDir(getenv) + "/" + SocketName
}
