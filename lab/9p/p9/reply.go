package p9

import "encoding/binary"

// QID identifies a file on its server: equal QIDs are the same file in the same state.
type QID struct {
	Type    uint8 // QTDir, QTSymlink or 0
	Version uint32
	Path    uint64
}

// Types of QIDs.
const (
	QTDir     uint8 = 0x80
	QTSymlink uint8 = 0x02
)

// Attr is what Rgetattr tells of a file. Sizes are in bytes, Blocks in units of 512.
type Attr struct {
	Valid  uint64 // which fields are: AllBasic
	QID    QID
	Mode   uint32 // with the type of the file, as in st_mode
	UID    uint32
	GID    uint32
	NLink  uint64
	RDev   uint64
	Size   uint64
	BlkSz  uint64
	Blocks uint64
	ATime  Time
	MTime  Time
	CTime  Time
}

// Time is a time of a file.
type Time struct{ Sec, Nsec uint64 }

// StatFS is what Rstatfs tells of a file system, as statfs(2) does.
type StatFS struct {
	Type, BSize                         uint32
	Blocks, BFree, BAvail, Files, FFree uint64
	FSID                                uint64
	NameLen                             uint32
}

// Reply is an answer under construction in a buffer of its sender's, which bounds it. Once something did not fit, Full
// reports that, and Bytes is of no use.
type Reply struct {
	b    []byte // what there is so far
	full bool
}

// NewReply begins an answer of type t in buf, whose length is the most that it may have. It has at least MinMsize bytes.
func NewReply(buf []byte, t Type, tag uint16) *Reply {
	r := &Reply{b: buf[:0:len(buf)]}
	r.U32(0) // the size, known at the end
	r.U8(uint8(t))
	r.U16(tag)
	return r
}

// Bytes ends the message and returns it.
func (r *Reply) Bytes() []byte {
	binary.LittleEndian.PutUint32(r.b, uint32(len(r.b)))
	return r.b
}

// Full reports whether something did not fit.
func (r *Reply) Full() bool { return r.full }

// Room returns how many bytes still fit.
func (r *Reply) Room() int { return cap(r.b) - len(r.b) }

// grow returns the next n bytes of the buffer, which become a part of the message.
func (r *Reply) grow(n int) []byte {
	if n > r.Room() {
		r.full = true
		return nil
	}
	at := len(r.b)
	r.b = r.b[:at+n]
	return r.b[at:]
}

// U8 appends a byte.
func (r *Reply) U8(v uint8) {
	if b := r.grow(1); b != nil {
		b[0] = v
	}
}

// U16 appends a number of two bytes.
func (r *Reply) U16(v uint16) {
	if b := r.grow(2); b != nil {
		binary.LittleEndian.PutUint16(b, v)
	}
}

// U32 appends a number of four bytes.
func (r *Reply) U32(v uint32) {
	if b := r.grow(4); b != nil {
		binary.LittleEndian.PutUint32(b, v)
	}
}

// U64 appends a number of eight bytes.
func (r *Reply) U64(v uint64) {
	if b := r.grow(8); b != nil {
		binary.LittleEndian.PutUint64(b, v)
	}
}

// Str appends a string, which must be shorter than 64 KiB.
func (r *Reply) Str(s string) {
	if len(s) >= 1<<16 {
		r.full = true
		return
	}
	r.U16(uint16(len(s)))
	copy(r.grow(len(s)), s)
}

// QID appends a QID.
func (r *Reply) QID(q QID) {
	r.U8(q.Type)
	r.U32(q.Version)
	r.U64(q.Path)
}

// Attr appends the body of an Rgetattr.
func (r *Reply) Attr(a *Attr) {
	r.U64(a.Valid)
	r.QID(a.QID)
	r.U32(a.Mode)
	r.U32(a.UID)
	r.U32(a.GID)
	for _, v := range []uint64{a.NLink, a.RDev, a.Size, a.BlkSz, a.Blocks} {
		r.U64(v)
	}
	for _, t := range []Time{a.ATime, a.MTime, a.CTime, {}} { // no file system tells all the time when a file was made
		r.U64(t.Sec)
		r.U64(t.Nsec)
	}
	r.U64(0) // generation
	r.U64(0) // version of the data
}

// StatFS appends the body of an Rstatfs.
func (r *Reply) StatFS(s *StatFS) {
	r.U32(s.Type)
	r.U32(s.BSize)
	for _, v := range []uint64{s.Blocks, s.BFree, s.BAvail, s.Files, s.FFree, s.FSID} {
		r.U64(v)
	}
	r.U32(s.NameLen)
}

// Data lets fill write the data of an Rread, at most max bytes, where they are sent from. It returns how many there are.
func (r *Reply) Data(max int, fill func([]byte) (int, error)) error {
	r.U32(0)
	at := len(r.b)
	n, err := fill(r.b[at : at+min(max, r.Room())])
	if err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(r.b[at-4:], uint32(n))
	r.b = r.b[:at+n]
	return nil
}

// DirEntrySize returns the bytes of an entry in an Rreaddir.
func DirEntrySize(name string) int { return QIDSize + 8 + 1 + 2 + len(name) }

// DirEntry writes an entry of an Rreaddir to b, which has at least DirEntrySize bytes, and returns how many there are. next
// is the offset to continue from, typ what readdir(3) tells of the file.
func DirEntry(b []byte, q QID, next uint64, typ uint8, name string) int {
	e := Reply{b: b[:0]}
	e.QID(q)
	e.U64(next)
	e.U8(typ)
	e.Str(name)
	return len(e.b)
}

// Error writes an Rlerror with a Linux errno to buf and returns it.
func Error(buf []byte, tag uint16, errno uint32) []byte {
	r := NewReply(buf, Rlerror, tag)
	r.U32(errno)
	return r.Bytes()
}
