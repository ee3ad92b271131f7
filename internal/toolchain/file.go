package toolchain

import (
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// stamp identifies a state of a file. It includes ctime, as package managers set mtime back.
type stamp struct {
	Dev, Ino     uint64        `json:",omitempty"`
	Size         int64         `json:",omitempty"`
	MTime, CTime unix.Timespec `json:",omitzero"`
	Absent       bool          `json:",omitempty"`
}

// digest is a file's SHA-256.
type digest = [sha256.Size]byte

// stampOf returns the stamp of a file, following links. A file that cannot be examined counts as absent.
func stampOf(path string) stamp {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return stamp{Absent: true}
	}
	return stampFrom(&st)
}

func stampFrom(st *unix.Stat_t) stamp {
	return stamp{Dev: uint64(st.Dev), Ino: st.Ino, Size: st.Size, MTime: st.Mtim, CTime: st.Ctim}
}

// maxSums bounds the remembered digests; a compiler has about twenty files.
const maxSums = 4096

// sums remembers the digests of files, as compilers share libraries.
type sums struct {
	mu   sync.Mutex
	seen map[stamp]digest
	buf  []byte
}

var errChanged = errors.New("changed while it was read")

// of returns the SHA-256 of a file's content and the stamp that it had. One file is read at a time.
func (s *sums) of(path string) (sum digest, at stamp, err error) {
	f, err := os.Open(path)
	if err != nil {
		return sum, stamp{Absent: true}, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return sum, at, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	at = stampFrom(&st)
	s.mu.Lock()
	defer s.mu.Unlock()
	if sum, ok := s.seen[at]; ok {
		return sum, at, nil
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return sum, at, &os.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
	}
	if s.buf == nil {
		s.buf = make([]byte, 256<<10)
	}
	h := sha256.New()
	if _, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{f}, s.buf); err != nil {
		return sum, at, err
	}
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || stampFrom(&st) != at {
		return sum, at, &os.PathError{Op: "read", Path: path, Err: errChanged}
	}
	h.Sum(sum[:0])
	if s.seen == nil || len(s.seen) >= maxSums {
		s.seen = make(map[stamp]digest)
	}
	s.seen[at] = sum
	return sum, at, nil
}
