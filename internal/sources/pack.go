package sources

import (
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/internal/unit"
)

// Options says what to pack, and where.
type Options struct {
	FD  int    // of the slot
	Off uint64 // offset in the slot of the first file's content
	Max uint64 // the slot's size

	Names []string // of the files that the compile reads, the source first, as the compiler spells them
	More  []string // further files that it may read, if they exist
	Probe []string // files that it may only look for
	// Maps are files that the command names in the place of header directories. Those that are header maps count, and for others
	// it only matters that they exist.
	Maps []string
	// Places are directories whose existence matters.
	Places []string
	// Dirs are the header directories that the command names, in order. Own returns the further
	// directories in which this compiler looks, or nil when they are not known. It is called at
	// most once, and only when it matters.
	Dirs []string
	Own  func() []string

	Cwd string // the working directory, as it would appear in names of its files

	// Includers says that a quoted header is looked for beside each file that includes the one that asks for it, whether
	// directly or not.
	Includers bool

	Twins   bool     // the list lacks links to, and copies of, files with #pragma once
	Clock   [3]bool  // __TIME__, __DATE__, __TIMESTAMP__: the command sets the value
	Asm     bool     // the source is assembly
	Opaque  bool     // the source is no text
	AsmDirs []string // directories that the command gives to the assembler
	// Since is when the compiler began to make the list: a file that changed after that makes the
	// list worthless. (File systems record times in steps of a few milliseconds, within which no
	// compiler has read anything yet.)
	Since syscall.Timespec
}

// Pack is what a compile reads.
type Pack struct {
	Files []unit.File
	Dirs  []string // directories that names lead through and that contain no file
	Links []unit.Link
	Len   uint64 // of all contents
	// Unsure means that a message may quote a file that is not packed.
	Unsure bool
	// Absent lists names that were looked for in vain.
	Absent []string
	// Images are precompiled headers that the compiler may use in the places of Files.
	Images []string
}

// Make packs the files of o. Its error is a Reason.
func Make(o *Options) (*Pack, error) {
	p := &pack{
		o: o, base: o.Off,
		names: make(map[string]struct{}, len(o.Names)+8),
		inode: make(map[inode]uint32, len(o.Names)+8),
		asked: make(map[string]struct{}),
	}
	p.Files = make([]unit.File, 0, len(o.Names)+8)
	p.follow("")
	for _, dir := range o.Dirs {
		p.follow(dir)
	}
	if p.astray {
		return nil, ErrPaths
	}
	for _, dir := range o.Places {
		if err := p.way(dir + "/"); err != nil {
			return nil, err
		}
		p.Dirs = append(p.Dirs, dir)
	}
	for _, name := range o.Maps {
		if m := readHeaderMap(name); m != nil {
			p.maps = append(p.maps, m)
			if err := p.further(name, false); err != nil {
				return nil, err
			}
		} else if err := p.candidate(name, false); err != nil {
			return nil, err
		}
	}
	p.finder.init()
	for _, name := range o.Names {
		p.names[name] = struct{}{}
	}
	for i, name := range o.Names {
		if err := p.precompiled(name, i); err != nil {
			return nil, err
		}
		if err := p.read(name, i > 0 || !o.Opaque); err != nil {
			return nil, err
		}
	}
	if err := p.packTwins(); err != nil {
		return nil, err
	}
	for _, name := range o.More {
		if err := p.further(name, false); err != nil {
			return nil, err
		}
	}
	for _, name := range o.Probe {
		if err := p.candidate(name, false); err != nil {
			return nil, err
		}
	}
	for len(p.queue) > 0 {
		q := p.queue[0]
		p.queue = p.queue[1:]
		if err := p.read(q.name, q.look); err != nil {
			return nil, err
		}
	}
	if err := p.scanAliases(); err != nil {
		return nil, err
	}
	for _, name := range p.probes {
		if err := p.probe(name); err != nil {
			return nil, err
		}
	}
	if err := p.flush(); err != nil {
		return nil, err
	}
	p.Len = p.base - o.Off
	return &p.Pack, nil
}

// pack is a Pack being made.
type pack struct {
	Pack
	o      *Options
	finder finder

	names   map[string]struct{}   // names packed, or to be packed
	inode   map[inode]uint32      // 1 + index in Files of the entry with the content
	ways    map[string]struct{}   // directories whose links are recorded
	onces   map[string]struct{}   // base names of headers with #pragma once
	like    map[likeness]struct{} // of these headers
	asked   map[string]struct{}   // headers whose candidates are packed
	others  []string              // other names for __has_include
	search  []string              // header directories
	maps    []*HeaderMap          // of Options.Maps
	beside  []string              // directories of the files that include others, once needed; with a trailing slash, or empty
	imports bool                  // #import is used
	marked  int                   // number of files packed for messages
	queue   []queued              // to be packed after the list
	probes  []string              // to be packed after those, without content
	once    map[string]struct{}   // absolute names of files that have several
	real    map[string]string     // directories with links resolved
	astray  bool                  // one of them leads through /proc, which differs on a host

	// buf holds contents that belong at base in the slot. They are scanned while they are still in
	// the cache, and written many at a time.
	buf  []byte
	base uint64
}

type inode struct{ dev, ino uint64 }

type queued struct {
	name string
	look bool
}

const (
	bufSize = 256 << 10
	bufFree = 64 << 10 // room for most files
)

// known reports whether name is packed, or is about to be.
func (p *pack) known(name string) bool {
	_, ok := p.names[name]
	return ok
}

// add lists a file of size bytes. It reports whether its content must be packed: not if the file is already
// packed under another name.
func (p *pack) add(name string, st *syscall.Stat_t, size uint64) bool {
	id := inode{st.Dev, st.Ino}
	f := unit.File{Name: name, Len: size, MTime: st.Mtim.Nano(), Exec: st.Mode&0o111 != 0, Same: p.inode[id]}
	if f.Same == 0 {
		p.Files = append(p.Files, f)
		p.inode[id] = uint32(len(p.Files))
		return true
	}
	if p.once == nil {
		p.once = make(map[string]struct{})
	}
	p.once[p.absolute(p.Files[f.Same-1].Name)] = struct{}{}
	key := p.absolute(name)
	if _, there := p.once[key]; there {
		// The same file under another spelling. The path must exist.
		if dir := name[:strings.LastIndexByte(name, '/')+1]; strings.Contains(dir, "../") {
			p.Dirs = append(p.Dirs, dir)
		}
		return false
	}
	p.once[key] = struct{}{}
	f.Len = 0
	p.Files = append(p.Files, f)
	return false
}

// absolute returns one name for all names of a file in a directory that differ only in dots and slashes.
// After a link a ".." leads elsewhere, where the file may have a second name: that has to exist on the
// host, too.
func (p *pack) absolute(name string) string {
	dir, _ := p.follow(name[:strings.LastIndexByte(name, '/')+1])
	if name[0] != '/' {
		name = p.o.Cwd + "/" + name
	}
	return dir + "\x00" + path.Clean(name)
}

// firstHeaders is how far down the list gcc may use a precompiled header. It uses one only for the first
// header, which comes after the source and what gcc includes by itself.
const firstHeaders = 4

// precompiled records the precompiled headers that gcc may use in the place of name, the i-th in the list: beside it, or under the
// name that led to it in another header directory.
func (p *pack) precompiled(name string, i int) error {
	switch {
	case strings.HasSuffix(name, ".gch"), strings.HasSuffix(name, ".pch"), strings.Contains(name, ".gch/"):
		return ErrPCH // it is listed itself
	case i == 0 || i >= firstHeaders:
		return nil
	}
	if err := p.image(name + ".gch"); err != nil {
		return err
	}
	for _, from := range p.o.Dirs {
		rest, ok := strings.CutPrefix(name, from+"/")
		if !ok {
			continue
		}
		for _, dir := range p.o.Dirs {
			if err := p.image(dir + "/" + rest + ".gch"); err != nil {
				return err
			}
		}
	}
	return nil
}

// image records a precompiled header, if it exists. gcc tries all files of a directory, in no certain order.
func (p *pack) image(name string) error {
	var st syscall.Stat_t
	switch {
	case lstat(name, &st) != nil || slices.Contains(p.Images, name):
		return nil
	case !regular(&st):
		return ErrPCH
	}
	p.Images = append(p.Images, name)
	return nil
}

// read packs the file name with its content; with look it scans that too.
func (p *pack) read(name string, look bool) error {
	if err := p.way(name); err != nil {
		return err
	}
	fd, err := open(name)
	file := name
	if err == syscall.ELOOP {
		// A link, which is a link on the host too.
		if file = p.link(name); file == "" {
			return ErrFile
		}
		if err := p.way(file); err != nil {
			return err
		}
		fd, err = open(file)
	}
	if err != nil {
		return ErrFile
	}
	defer syscall.Close(fd)
	start, err := p.fill(fd)
	if err != nil {
		return err
	}
	var st syscall.Stat_t
	if syscall.Fstat(fd, &st) != nil || !regular(&st) {
		return ErrFile
	}
	size := len(p.buf) - start
	if st.Size != int64(size) || later(st.Ctim, p.o.Since) {
		return ErrChanged
	}
	if !p.add(file, &st, uint64(size)) {
		p.buf = p.buf[:start]
		return nil // it was scanned under its other name
	}
	if look {
		return p.scan(name, file, p.buf[start:])
	}
	return nil
}

// fill reads all of fd after what buf holds, and returns where it starts.
func (p *pack) fill(fd int) (start int, err error) {
	if cap(p.buf)-len(p.buf) < bufFree {
		if err := p.flush(); err != nil {
			return 0, err
		}
	}
	start = len(p.buf)
	for {
		if len(p.buf) == cap(p.buf) {
			// Larger than the room: alone in a buffer of its own size.
			var st syscall.Stat_t
			if err := syscall.Fstat(fd, &st); err != nil || st.Size >= int64(p.o.Max) {
				return 0, ErrTooBig
			}
			part := append([]byte(nil), p.buf[start:]...)
			p.buf = p.buf[:start]
			if err := p.flush(); err != nil {
				return 0, err
			}
			start = 0
			p.buf = append(make([]byte, 0, max(bufSize, int(st.Size)+bufFree, 2*len(part))), part...)
		}
		n, err := syscall.Read(fd, p.buf[len(p.buf):cap(p.buf)])
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return 0, ErrFile
		}
		p.buf = p.buf[:len(p.buf)+n]
		// Files end with a short read; checking the size reveals exceptions.
		if len(p.buf) < cap(p.buf) {
			return start, nil
		}
	}
}

// flush writes what buf holds to where it belongs. Slices of buf given out before stay valid.
func (p *pack) flush() error {
	if p.base+uint64(len(p.buf)) >= p.o.Max {
		return ErrTooBig
	}
	for b := p.buf; len(b) > 0; {
		n, err := syscall.Pwrite(p.o.FD, b, int64(p.base))
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return ErrTooBig // the slot's memory is exhausted
		}
		b, p.base = b[n:], p.base+uint64(n)
	}
	if cap(p.buf) != bufSize {
		p.buf = make([]byte, bufSize)
	}
	p.buf = p.buf[:0]
	return nil
}

// further packs, after all others, a file that exists and is not in the list: what is being scanned is still in the
// buffer. With look it is scanned, too.
func (p *pack) further(name string, look bool) error {
	if p.known(name) {
		return nil
	}
	var st syscall.Stat_t
	if stat(name, &st) != nil || st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return p.lack(name)
	}
	p.names[name] = struct{}{}
	p.queue = append(p.queue, queued{name, look})
	return nil
}

// candidate packs a file that the compiler tests for existence; with content, its content too.
func (p *pack) candidate(name string, content bool) error {
	if content {
		return p.further(name, false)
	}
	if !p.known(name) {
		p.names[name] = struct{}{}
		p.probes = append(p.probes, name)
	}
	return nil
}

// probe packs a file, if it exists, of which only the existence matters: if it were read, it would be in the list.
func (p *pack) probe(name string) error {
	var st syscall.Stat_t
	if stat(name, &st) != nil || st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return p.lack(name)
	}
	if err := p.way(name); err != nil {
		return err
	}
	p.add(name, &st, 0)
	return nil
}

// lack records a file that was looked for in vain. On a host it is absent too, unless its name leads somewhere else there.
func (p *pack) lack(name string) error {
	if shared, ok := unit.Shared(name); !ok || shared != name {
		return ErrPaths
	}
	p.Absent = append(p.Absent, name)
	return nil
}

// searchList returns the directories in which the compiler looks for <x>.
func (p *pack) searchList() (dirs []string, known bool) {
	if p.search == nil && p.o.Own != nil {
		if own := p.o.Own(); own != nil {
			p.search = append(append(make([]string, 0, len(p.o.Dirs)+len(own)), p.o.Dirs...), own...)
			p.show(own)
		}
		p.o.Own = nil
	}
	return p.search, p.search != nil
}

// show packs the compiler's own directories that exist: clang's driver searches no directory of a C++ library of which another one does
// not exist. gcc's does not look.
func (p *pack) show(own []string) {
	if p.o.Twins {
		return
	}
	for _, dir := range own {
		if real := RealPath(dir); real != "" && p.way(dir+"/") == nil {
			p.Dirs = append(p.Dirs, real)
		}
	}
}

func stat(name string, st *syscall.Stat_t) error {
	for {
		if err := syscall.Stat(name, st); err != syscall.EINTR {
			return err
		}
	}
}

func regular(st *syscall.Stat_t) bool { return st.Mode&syscall.S_IFMT == syscall.S_IFREG }

// open opens a regular file, or one that has just replaced it. Another file is not even opened, or whoever writes to a pipe
// would take that for the compiler: what it writes would be gone, or its writing fail once the pipe is closed here.
// The error is ELOOP for a link.
func open(name string) (fd int, err error) {
	var st syscall.Stat_t
	if err := lstat(name, &st); err != nil {
		return 0, err
	}
	switch {
	case st.Mode&syscall.S_IFMT == syscall.S_IFLNK:
		return 0, syscall.ELOOP
	case !regular(&st):
		return 0, ErrFile
	}
	for {
		// Not to be blocked by a pipe.
		fd, err = syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK|syscall.O_NOCTTY|syscall.O_NOFOLLOW, 0)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}

func later(a, b syscall.Timespec) bool {
	return a.Sec > b.Sec || a.Sec == b.Sec && a.Nsec > b.Nsec
}
