package sources

import (
	"path"
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/internal/job"
)

// Options say what is to be packed, and where to.
type Options struct {
	FD  int    // of the slot
	Off uint64 // in it, of the first file's content
	Max uint64 // the slot's size

	Names []string // that the compile reads, the source first, as the compiler spells them
	More  []string // further files that it may read, if they exist
	Probe []string // files that it may only look for
	// Places are directories of which it matters that they exist.
	Places []string
	// Dirs are where the command says that headers are, in order. Own asks where this
	// compiler looks besides; nil when that is not known. It is called at most once, and
	// only when it matters.
	Dirs []string
	Own  func() []string

	Cwd string // the working directory, as names of its files would begin

	Twins   bool    // the list lacks links to files with #pragma once, and copies of them
	Clock   [3]bool // __TIME__, __DATE__, __TIMESTAMP__: the command says what it is
	Asm     bool    // the source is assembly
	AsmDirs bool    // the command names directories to the assembler
	// Since is when the list was begun to be made: a file that changed after it makes the
	// list worthless. (File systems note times in steps of a few milliseconds, in which
	// no compiler has read anything yet.)
	Since syscall.Timespec
}

// Pack is what a compile reads.
type Pack struct {
	Files []job.SourceFile
	Dirs  []string // that names lead through, and in which nothing is
	Links []job.Link
	Len   uint64 // of all contents
	// Unsure: a message may quote a file that is not among these.
	Unsure bool
	// Absent are names that were looked for in vain.
	Absent []string
}

// Make packs the files of o. An error is a Reason.
func Make(o *Options) (*Pack, error) {
	p := &pack{
		o: o, base: o.Off,
		names: make(map[string]struct{}, len(o.Names)+8),
		inode: make(map[inode]uint32, len(o.Names)+8),
		asked: make(map[string]struct{}),
	}
	p.Files = make([]job.SourceFile, 0, len(o.Names)+8)
	p.follow("")
	for _, dir := range o.Dirs {
		p.follow(dir)
	}
	for _, dir := range o.Places {
		if err := p.way(dir + "/"); err != nil {
			return nil, err
		}
		p.Dirs = append(p.Dirs, dir)
	}
	p.finder.init()
	for _, name := range o.Names {
		p.names[name] = struct{}{}
	}
	for i, name := range o.Names {
		if precompiled(name, i) || 0 < i && i < firstHeaders && p.precompiledElsewhere(name) {
			return nil, ErrPCH
		}
		if err := p.read(name, true); err != nil {
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

// pack is a Pack while it is made.
type pack struct {
	Pack
	o      *Options
	finder finder

	names   map[string]struct{}   // that are packed, or are going to be
	inode   map[inode]uint32      // 1 + index in Files, of those with their content
	ways    map[string]struct{}   // directories whose links are noted
	onces   map[string]struct{}   // base names of headers with #pragma once
	like    map[likeness]struct{} // of these headers
	asked   map[string]struct{}   // headers whose candidates are packed
	others  []string              // other names for __has_include
	search  []string              // directories for headers
	imports bool                  // something is read by #import
	marked  int                   // files that are here for messages
	queue   []queued              // to be packed behind the list
	probes  []string              // to be packed behind these, without content
	once    map[string]struct{}   // absolute names of files that have several
	real    map[string]string     // directories without links

	// buf holds contents that belong at base in the slot: they are looked at while they
	// are warm, and written many at a time.
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
	bufFree = 64 << 10 // most files fit
)

// known reports whether name is packed, or is going to be.
func (p *pack) known(name string) bool {
	_, ok := p.names[name]
	return ok
}

// add lists a file of size bytes. It reports whether its content belongs there: not where
// the file is packed already under another name.
func (p *pack) add(name string, st *syscall.Stat_t, size uint64) bool {
	id := inode{st.Dev, st.Ino}
	f := job.SourceFile{Name: name, Len: size, MTime: st.Mtim.Nano(), Exec: st.Mode&0o111 != 0, Same: p.inode[id]}
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
		// Spelled otherwise. The way there has to exist.
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

// absolute is one for all names that a file of one directory has, and that are the same
// but for dots and slashes. Behind a link a ".." leads elsewhere, where the file may have
// a second name: it has to be there over there, too.
func (p *pack) absolute(name string) string {
	dir, _ := p.follow(name[:strings.LastIndexByte(name, '/')+1])
	if name[0] != '/' {
		name = p.o.Cwd + "/" + name
	}
	return dir + "\x00" + path.Clean(name)
}

// firstHeaders is how far down the list gcc may take a precompiled header: it takes one
// only for the first header, which comes behind the source and what gcc itself includes.
const firstHeaders = 4

// precompiled reports whether name, the i-th in the list, is a precompiled header or has
// one beside it.
func precompiled(name string, i int) bool {
	if strings.HasSuffix(name, ".gch") || strings.HasSuffix(name, ".pch") || strings.Contains(name, ".gch/") {
		return true
	}
	var st syscall.Stat_t
	return 0 < i && i < firstHeaders && stat(name+".gch", &st) == nil
}

// precompiledElsewhere reports whether some directory for headers has a precompiled
// header by the name that led to the header name in another one.
func (p *pack) precompiledElsewhere(name string) bool {
	for _, from := range p.o.Dirs {
		rest, ok := strings.CutPrefix(name, from+"/")
		if !ok {
			continue
		}
		var st syscall.Stat_t
		for _, dir := range p.o.Dirs {
			if stat(dir+"/"+rest+".gch", &st) == nil {
				return true
			}
		}
	}
	return false
}

// read packs the file name with its content; look: and looks through that.
func (p *pack) read(name string, look bool) error {
	if err := p.way(name); err != nil {
		return err
	}
	fd, err := open(name)
	file := name
	if err == syscall.ELOOP {
		// A link: so it is over there.
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
	if syscall.Fstat(fd, &st) != nil || st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return ErrFile
	}
	size := len(p.buf) - start
	if st.Size != int64(size) || later(st.Ctim, p.o.Since) {
		return ErrChanged
	}
	if !p.add(file, &st, uint64(size)) {
		p.buf = p.buf[:start]
		return nil // it was looked at under its other name
	}
	if look {
		return p.scan(name, file, p.buf[start:])
	}
	return nil
}

// fill reads all of fd behind what buf holds, and returns where it starts.
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
		// Files end with a short read; the size, which is checked, says if not.
		if len(p.buf) < cap(p.buf) {
			return start, nil
		}
	}
}

// flush writes what buf holds to where it belongs. What was handed out of buf stays.
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
			return ErrTooBig // no memory left for the slot
		}
		b, p.base = b[n:], p.base+uint64(n)
	}
	if cap(p.buf) != bufSize {
		p.buf = make([]byte, bufSize)
	}
	p.buf = p.buf[:0]
	return nil
}

// further packs a file that exists and is not in the list, behind all others, as what
// is being looked at lies in the buffer. look: it is looked through, too.
func (p *pack) further(name string, look bool) error {
	if p.known(name) {
		return nil
	}
	var st syscall.Stat_t
	if stat(name, &st) != nil || st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		p.Absent = append(p.Absent, name)
		return nil
	}
	p.names[name] = struct{}{}
	p.queue = append(p.queue, queued{name, look})
	return nil
}

// candidate packs a file that the compiler asks for: whether it exists, and with
// content also what is in it.
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

// probe packs a file of which only the existence matters, if it exists: were it read, it
// would be in the list.
func (p *pack) probe(name string) error {
	var st syscall.Stat_t
	if stat(name, &st) != nil || st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		p.Absent = append(p.Absent, name)
		return nil
	}
	if err := p.way(name); err != nil {
		return err
	}
	p.add(name, &st, 0)
	return nil
}

// searchList is where the compiler looks for <x>.
func (p *pack) searchList() (dirs []string, known bool) {
	if p.search == nil && p.o.Own != nil {
		if own := p.o.Own(); own != nil {
			p.search = append(append(make([]string, 0, len(p.o.Dirs)+len(own)), p.o.Dirs...), own...)
		}
		p.o.Own = nil
	}
	return p.search, p.search != nil
}

func stat(name string, st *syscall.Stat_t) error {
	for {
		if err := syscall.Stat(name, st); err != syscall.EINTR {
			return err
		}
	}
}

func open(name string) (fd int, err error) {
	for {
		// Not to be kept by a pipe.
		fd, err = syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK|syscall.O_NOCTTY|syscall.O_NOFOLLOW, 0)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}

func later(a, b syscall.Timespec) bool {
	return a.Sec > b.Sec || a.Sec == b.Sec && a.Nsec > b.Nsec
}
