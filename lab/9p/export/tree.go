// Package export lets clients read a directory by 9P2000.L: it answers one request after the other and does not care how they
// come. Everything that writes is refused with EROFS.
//
// A client cannot leave the directory: names are followed one by one with [os.Root], links are never followed but told to the
// client, and ".." ends at the directory itself. What it can read is what the server's own user can, whoever asks.
package export

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/lab/9p/p9"
)

// Tree is a directory with all that is below it. It may be used by many sessions at once.
type Tree struct {
	root *os.Root
	top  *os.File // the directory itself
	dev  uint64   // the file system that it is on
}

// Open opens the directory dir.
func Open(dir string) (*Tree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	top, err := root.Open(".")
	if err != nil {
		root.Close()
		return nil, err
	}
	t := &Tree{root: root, top: top}
	st, err := t.lstat(".")
	if err != nil {
		t.Close()
		return nil, err
	}
	t.dev = st.Dev
	return t, nil
}

// Close closes the directory. Sessions must have ended.
func (t *Tree) Close() {
	t.top.Close()
	t.root.Close()
}

func (t *Tree) lstat(name string) (*syscall.Stat_t, error) {
	return sys(t.root.Lstat(name))
}

// stat looks at what f stands for.
func (t *Tree) stat(f *fid) (*syscall.Stat_t, error) {
	if f.file != nil {
		return sys(f.file.Stat())
	}
	return t.lstat(f.path)
}

// sys returns what the system has told of a file.
func sys(fi fs.FileInfo, err error) (*syscall.Stat_t, error) {
	if err != nil {
		return nil, err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, fmt.Errorf("%s: its file system tells no inode", fi.Name())
	}
	return st, nil
}

func isDir(st *syscall.Stat_t) bool { return st.Mode&syscall.S_IFMT == syscall.S_IFDIR }

// openFile opens a file or directory to be read. Anything else, such as a device, is refused: its client has its own.
func (t *Tree) openFile(name string) (*os.File, *syscall.Stat_t, error) {
	before, err := t.lstat(name)
	if err != nil {
		return nil, nil, err
	}
	if kind := before.Mode & syscall.S_IFMT; kind != syscall.S_IFREG && kind != syscall.S_IFDIR {
		return nil, nil, syscall.ENXIO
	}
	// Something else may be there by now. A FIFO would wait for a writer.
	file, err := t.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	st, err := sys(file.Stat())
	if err == nil && (st.Dev != before.Dev || st.Ino != before.Ino) {
		err = syscall.ESTALE
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, st, nil
}

// qid returns the QID of a file. Its path is the inode's number; of another file system than the directory's, mixed with
// that one's.
func (t *Tree) qid(st *syscall.Stat_t) p9.QID {
	q := p9.QID{Path: st.Ino, Version: uint32(st.Mtim.Nsec) ^ uint32(st.Mtim.Sec)<<8 ^ uint32(st.Size)}
	if st.Dev != t.dev {
		q.Path ^= st.Dev * 0x9e3779b97f4a7c15 // an odd number with bits all over
	}
	switch st.Mode & syscall.S_IFMT {
	case syscall.S_IFDIR:
		q.Type = p9.QTDir
	case syscall.S_IFLNK:
		q.Type = p9.QTSymlink
	}
	return q
}

func (t *Tree) attr(st *syscall.Stat_t) p9.Attr {
	at := func(ts syscall.Timespec) p9.Time { return p9.Time{Sec: uint64(ts.Sec), Nsec: uint64(ts.Nsec)} }
	return p9.Attr{
		Valid: p9.AllBasic, QID: t.qid(st), Mode: st.Mode, UID: st.Uid, GID: st.Gid, NLink: uint64(st.Nlink), RDev: uint64(st.Rdev),
		Size: uint64(st.Size), BlkSz: uint64(st.Blksize), Blocks: uint64(st.Blocks), ATime: at(st.Atim), MTime: at(st.Mtim), CTime: at(st.Ctim),
	}
}

// magic9P is the type of file system that Linux gives 9P.
const magic9P = 0x01021997

func (t *Tree) statfs() (p9.StatFS, error) {
	var fs unix.Statfs_t
	c, err := t.top.SyscallConn()
	if err != nil {
		return p9.StatFS{}, err
	}
	var serr error
	if err := c.Control(func(fd uintptr) { serr = unix.Fstatfs(int(fd), &fs) }); err != nil {
		return p9.StatFS{}, err
	}
	return p9.StatFS{
		Type: magic9P, BSize: uint32(fs.Bsize), Blocks: fs.Blocks, BFree: fs.Bfree, BAvail: fs.Bavail, Files: fs.Files, FFree: fs.Ffree,
		NameLen: p9.MaxName,
	}, serr
}

// listing reads an open directory. An entry's offset is its place in the order in which the file system gives them, from 1
// on; "." and ".." are the first two.
type listing struct {
	tree *Tree
	path string
	file *os.File
	at   uint64        // entries that are behind us
	some []fs.DirEntry // the next ones
}

// listed is how many entries are read at a time.
const listed = 128

// fill writes the entries after offset that fit into b, and returns how many bytes they are; none at the end.
func (l *listing) fill(b []byte, offset uint64) (int, error) {
	if offset != l.at {
		if err := l.seek(offset); err != nil {
			return 0, err
		}
	}
	n := 0
	for {
		name, err := l.peek()
		if err == io.EOF || err != nil && n > 0 {
			return n, nil // an error will be there again at the next call
		}
		if err != nil {
			return 0, err
		}
		if p9.DirEntrySize(name) > len(b)-n {
			if n == 0 {
				return 0, syscall.EINVAL // there is an entry, and never room for it
			}
			return n, nil
		}
		l.skip()
		st, err := l.tree.lstat(l.entry(name))
		if err != nil {
			continue // it has just been removed
		}
		typ := uint8(st.Mode >> 12 & 0xf) // as readdir(3) numbers them
		n += p9.DirEntry(b[n:], l.tree.qid(st), l.at, typ, name)
	}
}

// entry returns the path of an entry.
func (l *listing) entry(name string) string {
	switch name {
	case ".":
		return l.path
	case "..":
		return path.Dir(l.path)
	}
	return path.Join(l.path, name)
}

// peek returns the name of the next entry, or io.EOF.
func (l *listing) peek() (string, error) {
	if l.at < 2 {
		return [...]string{".", ".."}[l.at], nil
	}
	if len(l.some) == 0 {
		var err error
		if l.some, err = l.file.ReadDir(listed); len(l.some) == 0 {
			return "", err
		}
	}
	return l.some[0].Name(), nil
}

// skip goes on to the entry after the one that peek returned.
func (l *listing) skip() {
	if l.at >= 2 {
		l.some = l.some[1:]
	}
	l.at++
}

// seek goes to the entry after offset, from the start.
func (l *listing) seek(offset uint64) error {
	if _, err := l.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	l.at, l.some = 0, nil
	for l.at < offset {
		if _, err := l.peek(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		l.skip()
	}
	return nil
}
