package privatetree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/sandbox"
)

// host is where the host's root is mounted while the tree is being built.
const host = "/.host"

// maxHops bounds the symbolic links on the way to one file, as the kernel does.
const maxHops = 40

// stepError is the failure of a step of the building.
type stepError struct {
	step  string
	err   error
	right bool // it requires a right that this process lacks
}

func (e *stepError) Error() string { return e.step + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

// builder makes a tree in this process's own mount namespace, or the marks of one (marks).
type builder struct {
	from  string          // where the toolchain is: host, or a directory below it
	in    string          // the tree's root; "": this process's own
	marks *marks          // nil: what is shown is mounted
	made  map[string]bool // canonical names that exist in the tree
	whole []string        // canonical names of directories mounted whole
	lacks []string

	family *sandbox.Family // see child
	noProc bool
}

// maxInodes bounds the files of a job, including the tree's own and those that it keeps. An inode and its
// entry take about 1 KiB of kernel memory, which the size does not include.
const maxInodes = 1<<16 + mostKept

// build makes the tree the root of this namespace and returns a descriptor of it.
func (b *builder) build(s *Spec) (int, error) {
	unix.Umask(0)
	if err := b.enter(s.Size); err != nil {
		return -1, err
	}
	b.from = host
	b.made = map[string]bool{"/": true, host: true}
	if err := b.fill(s); err != nil {
		return -1, err
	}
	b.proc()
	boundTasks()
	if err := unix.Unmount(host, unix.MNT_DETACH); err != nil {
		return -1, &stepError{"leave the host's root", err, true}
	}
	if err := unix.Rmdir(host); err != nil {
		return -1, &stepError{"leave the host's root", err, false}
	}
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &stepError{"open root", err, false}
	}
	unix.Umask(0o022)
	return root, nil
}

// fill makes everything in an empty root except /proc's content.
func (b *builder) fill(s *Spec) error {
	for _, d := range []struct {
		name string
		mode uint32
	}{{"/tmp", 0o1777}, {"/dev", 0o755}, {"/proc", 0o755}} {
		if err := b.mkdir(d.name, d.mode); err != nil {
			return err
		}
	}
	if b.marks != nil {
		for _, name := range procDirs {
			if err := b.mkdir(name, 0o755); err != nil {
				return err
			}
		}
	}
	if err := b.devices(); err != nil {
		return err
	}
	if s.Root != "" {
		b.from = path.Join(host, s.Root)
	}
	for _, name := range s.Dirs {
		if err := b.show(name, true); err != nil {
			return err
		}
	}
	for _, name := range s.Files {
		if err := b.show(name, false); err != nil {
			return err
		}
	}
	return nil
}

// enter makes an empty tmpfs the root, with the host's root below it. Where it is first mounted is hidden
// only until the root changes. Nothing that a job writes can be executed or loaded: what it brings must not
// replace a program that the toolchain looks for in several places.
func (b *builder) enter(size int64) error {
	const place = "/proc"
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return &stepError{"make mounts private", err, true}
	}
	opts := fmt.Sprintf("size=%d,nr_inodes=%d,mode=0755", size, maxInodes)
	if err := unix.Mount(Arg0, place, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, opts); err != nil {
		return &stepError{"mount a tmpfs", err, true}
	}
	if err := unix.Mkdir(place+host, 0o700); err != nil {
		return &stepError{"make a directory in the tmpfs", err, true}
	}
	if err := unix.PivotRoot(place, place+host); err != nil {
		return &stepError{"pivot_root", err, true}
	}
	if err := unix.Chdir("/"); err != nil {
		return &stepError{"chdir to the new root", err, false}
	}
	return nil
}

func (b *builder) mkdir(name string, mode uint32) error {
	if b.made[name] {
		return nil
	}
	err := unix.Mkdir(b.in+name, mode)
	if err == nil && b.in != "" {
		err = unix.Chmod(b.in+name, mode) // independent of the umask
	}
	if err != nil {
		return &stepError{"make " + name, err, false}
	}
	b.made[name] = true
	return nil
}

// devices shows the parts of /dev that programs expect, as far as the host has them. There is no terminal.
func (b *builder) devices() error {
	for _, name := range []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/urandom"} {
		if _, _, err := b.look(name); err != nil {
			b.lacks = append(b.lacks, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		if err := b.bind(name, unix.MS_NOSUID|unix.MS_NOEXEC); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0",
		"/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2",
	} {
		if err := b.symlink(target, name); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) symlink(target, name string) error {
	if b.made[name] {
		return nil
	}
	if err := unix.Symlink(target, b.in+name); err != nil {
		return &stepError{"make link " + name, err, false}
	}
	b.made[name] = true
	return nil
}

// boundTasks bounds the processes and threads of this pid namespace, if the kernel has a bound for each
// namespace: before Linux 6.14 this would change the whole machine's.
func boundTasks() {
	var u unix.Utsname
	var major, minor int
	if unix.Uname(&u) != nil {
		return
	}
	if n, _ := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); n == 2 && (major > 6 || major == 6 && minor >= 14) {
		// Numbers below 300 are not reused after the first wrap.
		_ = os.WriteFile(host+"/proc/sys/kernel/pid_max", fmt.Append(nil, 300+sharedTasks), 0) // best effort: limits.go has others
	}
}

// proc mounts /proc, through which clang finds itself: a procfs that shows only this namespace's processes. The kernel refuses one
// where the host's own is partly covered, as in containers. That one shows processes of the host, so then there is none.
func (b *builder) proc() {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_RDONLY
	// Nothing of the machine itself: kernel symbols, settings, devices (since Linux 5.8).
	err := unix.Mount("proc", "/proc", "proc", flags, "subset=pid")
	if err != nil {
		err = unix.Mount("proc", "/proc", "proc", flags, "")
	}
	proc := "/proc"
	if b.noProc = err != nil; b.noProc {
		b.lacks = append(b.lacks, fmt.Sprintf("%s%v: where parts of it are covered, as in containers, compiles have none (docs/kubernetes.md)", noProc, err))
		proc = host + proc // for this process alone
		for _, name := range procDirs {
			_ = b.mkdir(name, 0o755) // as a command may do
		}
	}
	b.family, _ = sandbox.OpenFamily(proc) // else Measures shows it
}

// show makes name visible: it walks there as if the toolchain's root were the host's, and creates in the tree the directories and symbolic
// links that it meets. What is in a directory shown whole is there already, but a link may lead out of it.
func (b *builder) show(name string, dir bool) error {
	if !path.IsAbs(name) {
		return &stepError{"show " + name, errors.New("not an absolute name"), false}
	}
	at := "/" // canonical: without links, in the tree and below the toolchain's root
	todo := strings.Split(name, "/")
	slices.Reverse(todo) // a stack
	for hops := 0; len(todo) > 0; {
		c := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		switch c {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, c)
		if next == host && b.marks == nil { // the host's own root, which is writable here
			return &stepError{"show " + name, errors.New("the name is reserved"), false}
		}
		mode, target, err := b.look(next)
		switch {
		case err != nil:
		case mode == unix.S_IFLNK:
			if hops++; hops > maxHops {
				return &stepError{"show " + name, unix.ELOOP, false}
			}
			if !b.inWhole(next) {
				err = b.symlink(target, next)
			}
			if path.IsAbs(target) {
				at = "/"
			}
			more := strings.Split(target, "/")
			slices.Reverse(more)
			todo = append(todo, more...)
		case mode == unix.S_IFDIR:
			at = next
			if !b.inWhole(next) {
				err = b.mkdir(next, 0o755)
			}
		case len(todo) > 0:
			err = unix.ENOTDIR
		case mode != unix.S_IFREG:
			err = errors.New("not a regular file")
		case dir:
			err = unix.ENOTDIR
		case !b.inWhole(next):
			return b.bind(next, unix.MS_NOSUID|unix.MS_NODEV)
		default:
			return nil
		}
		if err != nil {
			if e := new(stepError); errors.As(err, &e) {
				return err
			}
			return &stepError{"show " + name, err, false}
		}
	}
	if !dir {
		return &stepError{"show " + name, unix.EISDIR, false}
	}
	if at == "/" {
		return &stepError{"show " + name, errors.New("the whole root"), false}
	}
	return b.bindWhole(at)
}

func (b *builder) inWhole(name string) bool {
	return slices.ContainsFunc(b.whole, func(d string) bool {
		return len(name) > len(d) && name[len(d)] == '/' && strings.HasPrefix(name, d)
	})
}

// look returns the type of a name of the toolchain, and the target if it is a link; it does not follow links.
func (b *builder) look(name string) (mode uint32, target string, err error) {
	var st unix.Stat_t
	if err := unix.Lstat(b.from+name, &st); err != nil {
		return 0, "", err
	}
	mode = st.Mode & unix.S_IFMT
	if mode == unix.S_IFLNK {
		target, err = os.Readlink(b.from + name)
	}
	return mode, target, err
}

// bind shows a file under the same name, read-only.
func (b *builder) bind(name string, flags uintptr) error {
	if b.made[name] {
		return nil
	}
	fd, err := unix.Open(b.in+name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o444)
	if err != nil {
		return &stepError{"make " + name, err, false}
	}
	unix.Close(fd)
	if b.made[name] = true; b.marks != nil {
		b.marks.files = append(b.marks.files, name)
		return nil
	}
	err = unix.Mount(b.from+name, name, "", unix.MS_BIND, "")
	if err == nil {
		err = setReadOnly(name, flags)
	}
	if err != nil {
		return bindError(name, err)
	}
	return nil
}

// bindWhole shows a directory under the same name, read-only, and without what is mounted below
// it if the kernel permits that.
func (b *builder) bindWhole(name string) error {
	if slices.Contains(b.whole, name) || b.inWhole(name) {
		return nil
	}
	if b.marks != nil {
		b.whole, b.marks.dirs = append(b.whole, name), append(b.marks.dirs, name)
		return nil
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV
	err := unix.Mount(b.from+name, name, "", unix.MS_BIND, "")
	if err == nil {
		err = setReadOnly(name, flags)
	} else if errors.Is(err, unix.EINVAL) {
		// A user namespace must not reveal what a mount covers.
		if err = unix.Mount(b.from+name, name, "", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = unix.MountSetattr(unix.AT_FDCWD, name, unix.AT_RECURSIVE, &unix.MountAttr{
				Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
			})
		}
	}
	if err != nil {
		return bindError(name, err)
	}
	b.whole = append(b.whole, name)
	return nil
}

func bindError(name string, err error) error {
	right := errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EINVAL)
	return &stepError{"bind-mount " + name, err, right}
}

// setReadOnly makes a bind mount read-only and adds flags. In a user namespace the flags that it already has
// must stay.
func setReadOnly(name string, flags uintptr) error {
	var st unix.Statfs_t
	if err := unix.Statfs(name, &st); err != nil {
		return err
	}
	// The ST_ flags have the values of the MS_ flags; access times stay as they are if not mentioned.
	flags |= uintptr(st.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	return unix.Mount("", name, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|flags, "")
}
