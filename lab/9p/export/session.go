package export

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/lab/9p/p9"
)

// Bounds of a session, so that a client cannot take more than its share of the server.
const (
	MaxFIDs  = 16 << 10 // a kernel keeps one for each directory and file that it has in use
	MaxOpen  = 1 << 10  // each is a file descriptor
	maxPath  = 4 << 10  // bytes, as in Linux
	MaxMsize = 64 << 10 // bytes of a message: a connection has a buffer of that for each request under way
)

// Session is one client's use of a tree: what it has walked to and opened. It is for one caller at a time.
type Session struct {
	tree  *Tree
	msize int // 0 before a version is agreed on
	fids  map[uint32]*fid
	open  int // fids with a file
}

// fid is what a client's number stands for: a path in the tree, and its file once it is open.
type fid struct {
	path string
	file *os.File // nil: only walked to
	dir  *listing // set for an open directory
}

// NewSession returns a session on t. Close releases what its client has left open.
func NewSession(t *Tree) *Session {
	return &Session{tree: t, fids: make(map[uint32]*fid)}
}

// Close ends the session.
func (s *Session) Close() {
	for n := range s.fids {
		s.clunk(n)
	}
}

// Handle answers request, one whole message, in buf, which has at least MaxMsize bytes, and returns the answer. An error
// means that there is none, as what came is no message: the connection should end.
func (s *Session) Handle(request, buf []byte) ([]byte, error) {
	r, err := p9.Parse(request)
	if errors.Is(err, p9.ErrHeader) {
		return nil, err
	}
	buf = buf[:MaxMsize]
	if s.msize > 0 {
		buf = buf[:s.msize]
	}
	if err != nil {
		return p9.Error(buf, r.Tag, uint32(syscall.EINVAL)), nil
	}
	reply := p9.NewReply(buf, r.Type+1, r.Tag)
	if err = s.answer(&r, reply); err == nil && reply.Full() {
		err = syscall.ENAMETOOLONG // a link, the only thing that may be longer than the least msize
	}
	if err != nil {
		return p9.Error(buf, r.Tag, uint32(errno(err))), nil
	}
	return reply.Bytes(), nil
}

// errno returns the number that tells a Linux client of err.
func errno(err error) syscall.Errno {
	if n := syscall.Errno(0); errors.As(err, &n) {
		return n
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		return syscall.ENOENT
	case errors.Is(err, os.ErrClosed):
		return syscall.EBADF
	case strings.Contains(err.Error(), "escapes"): // os.Root has no error of its own to compare with
		return syscall.EACCES
	}
	return syscall.EIO
}

// answer does what r asks for and appends the body of the answer to reply.
func (s *Session) answer(r *p9.Request, reply *p9.Reply) error {
	if r.Type == p9.Tversion {
		return s.version(r, reply)
	}
	if s.msize == 0 {
		return syscall.EPROTO // the version comes first
	}
	if r.Type.Writes() {
		if r.Type == p9.Tremove { // gives the fid back whatever comes of it
			s.clunk(r.FID)
		}
		return syscall.EROFS
	}
	switch r.Type {
	case p9.Tattach:
		return s.attach(r, reply)
	case p9.Tflush:
		return nil // requests are answered in turn: the older one has been
	case p9.Twalk:
		return s.walk(r, reply)
	case p9.Tauth, p9.Txattrwalk: // there is nothing to prove, and there are no attributes
		return syscall.EOPNOTSUPP
	case p9.Tclunk:
		if !s.clunk(r.FID) {
			return syscall.EBADF
		}
		return nil
	}
	f := s.fids[r.FID]
	if f == nil {
		return syscall.EBADF
	}
	switch r.Type {
	case p9.Tgetattr:
		return s.getattr(f, reply)
	case p9.Tlopen:
		return s.lopen(f, r.Flags, reply)
	case p9.Tread:
		return f.read(r, reply)
	case p9.Treaddir:
		return s.readdir(f, r, reply)
	case p9.Treadlink:
		target, err := s.tree.root.Readlink(f.path)
		reply.Str(target)
		return err
	case p9.Tstatfs:
		st, err := s.tree.statfs()
		reply.StatFS(&st)
		return err
	case p9.Tfsync:
		return nil // nothing was written
	}
	return syscall.EOPNOTSUPP
}

// version agrees on the version and on the size of messages, and begins anew: fids of before are gone.
func (s *Session) version(r *p9.Request, reply *p9.Reply) error {
	s.Close()
	s.msize = 0
	if r.Msize < p9.MinMsize {
		return syscall.EINVAL
	}
	msize := min(r.Msize, MaxMsize)
	if r.Version == p9.Version {
		s.msize = int(msize)
	}
	reply.U32(msize)
	if s.msize > 0 {
		reply.Str(p9.Version)
	} else {
		reply.Str(p9.Unknown)
	}
	return nil
}

func (s *Session) attach(r *p9.Request, reply *p9.Reply) error {
	if r.Tree != "" && r.Tree != "/" {
		return syscall.ENOENT
	}
	if r.AFID != p9.NoFID {
		return syscall.EOPNOTSUPP
	}
	st, err := s.tree.lstat(".")
	if err != nil {
		return err
	}
	if err := s.add(r.FID, "."); err != nil {
		return err
	}
	reply.QID(s.tree.qid(st))
	return nil
}

// add makes a fid for path.
func (s *Session) add(n uint32, path string) error {
	switch {
	case n == p9.NoFID:
		return syscall.EINVAL
	case s.fids[n] != nil:
		return syscall.EBADF // it is in use
	case len(s.fids) >= MaxFIDs:
		return syscall.ENFILE
	}
	s.fids[n] = &fid{path: path}
	return nil
}

// clunk forgets a fid, and reports whether there was one.
func (s *Session) clunk(n uint32) bool {
	f := s.fids[n]
	if f == nil {
		return false
	}
	if f.file != nil {
		f.file.Close()
		s.open--
	}
	delete(s.fids, n)
	return true
}

// walk follows names from a fid. If the first one leads nowhere that is an error; otherwise the answer says how far it got,
// and there is a new fid only if that is all the way.
func (s *Session) walk(r *p9.Request, reply *p9.Reply) error {
	f := s.fids[r.FID]
	switch {
	case f == nil:
		return syscall.EBADF
	case f.file != nil:
		return syscall.EBUSY
	case r.NewFID != r.FID && s.fids[r.NewFID] != nil:
		return syscall.EBADF
	}
	at := f.path
	st, err := s.tree.lstat(at)
	if err != nil {
		return err
	}
	qids := make([]p9.QID, 0, p9.MaxWalk)
	for _, name := range r.Names {
		next, nst, err := s.tree.step(at, st, name)
		if err != nil && len(qids) == 0 {
			return err
		}
		if err != nil {
			break
		}
		at, st = next, nst
		qids = append(qids, s.tree.qid(st))
	}
	if len(qids) == len(r.Names) {
		if r.NewFID == r.FID {
			f.path = at
		} else if err := s.add(r.NewFID, at); err != nil {
			return err
		}
	}
	reply.U16(uint16(len(qids)))
	for _, q := range qids {
		reply.QID(q)
	}
	return nil
}

func (s *Session) getattr(f *fid, reply *p9.Reply) error {
	st, err := s.tree.stat(f)
	if err != nil {
		return err
	}
	a := s.tree.attr(st)
	reply.Attr(&a)
	return nil
}

// Flags of Tlopen that ask for more than to read: what Linux on most processors has for O_ACCMODE, O_CREAT and O_TRUNC.
const writeFlags = 0o3 | 0o100 | 0o1000

func (s *Session) lopen(f *fid, flags uint32, reply *p9.Reply) error {
	switch {
	case flags&writeFlags != 0:
		return syscall.EROFS
	case f.file != nil:
		return syscall.EBUSY
	case s.open >= MaxOpen:
		return syscall.EMFILE
	}
	file, st, err := s.tree.openFile(f.path)
	if err != nil {
		return err
	}
	s.open++
	f.file = file
	if isDir(st) {
		f.dir = &listing{tree: s.tree, path: f.path, file: file}
	}
	reply.QID(s.tree.qid(st))
	reply.U32(0) // as many bytes at a time as fit a message
	return nil
}

func (f *fid) read(r *p9.Request, reply *p9.Reply) error {
	switch {
	case f.file == nil:
		return syscall.EBADF
	case f.dir != nil:
		return syscall.EISDIR
	case r.Offset > 1<<62:
		return syscall.EINVAL
	}
	return reply.Data(int(min(r.Count, MaxMsize)), func(b []byte) (int, error) {
		n, err := f.file.ReadAt(b, int64(r.Offset))
		if n > 0 || errors.Is(err, io.EOF) {
			err = nil
		}
		return n, err
	})
}

func (s *Session) readdir(f *fid, r *p9.Request, reply *p9.Reply) error {
	if f.dir == nil {
		return syscall.ENOTDIR
	}
	return reply.Data(int(min(r.Count, MaxMsize)), func(b []byte) (int, error) { return f.dir.fill(b, r.Offset) })
}

// step returns where name leads to from the directory at. Links are not followed: a client does that by itself, in the tree
// that it shows its users.
func (t *Tree) step(at string, st *syscall.Stat_t, name string) (string, *syscall.Stat_t, error) {
	switch {
	case !isDir(st):
		return "", nil, syscall.ENOTDIR
	case name == "" || name == "." || strings.Contains(name, "/"):
		return "", nil, syscall.EINVAL
	case len(name) > p9.MaxName || len(at)+1+len(name) > maxPath:
		return "", nil, syscall.ENAMETOOLONG
	}
	to := path.Join(at, name)
	if name == ".." {
		to = path.Dir(at) // of the root, which is ".", itself
	}
	st, err := t.lstat(to)
	if err != nil {
		return "", nil, fmt.Errorf("walk: %w", err)
	}
	return to, st, nil
}
