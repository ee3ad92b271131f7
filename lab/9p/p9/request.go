// Package p9 is the wire format of 9P2000.L, the variant of Plan 9's file protocol that Linux speaks, as far as a server
// needs it that only lets files be read. It does no I/O.
//
// Every message begins with its size, which counts these four bytes too, its type and a tag. Numbers are little-endian. A
// string is two bytes of length and its bytes. The type of an answer is that of its request plus one, or Rlerror:
//
//	0      4      5     7
//	| size | type | tag | ...
//
// The formats are those of Plan 9's manual, section 5, and of the description of 9P2000.L that comes with the server diod.
package p9

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// Type is the type of a message.
type Type uint8

// The types of requests. The answer to each is the next number.
const (
	Rlerror      Type = 7 // an answer: a Linux errno
	Tstatfs      Type = 8
	Tlopen       Type = 12
	Tlcreate     Type = 14
	Tsymlink     Type = 16
	Tmknod       Type = 18
	Trename      Type = 20
	Treadlink    Type = 22
	Tgetattr     Type = 24
	Tsetattr     Type = 26
	Txattrwalk   Type = 30
	Txattrcreate Type = 32
	Treaddir     Type = 40
	Tfsync       Type = 50
	Tlink        Type = 70
	Tmkdir       Type = 72
	Trenameat    Type = 74
	Tunlinkat    Type = 76
	Tversion     Type = 100
	Tauth        Type = 102
	Tattach      Type = 104
	Tflush       Type = 108
	Twalk        Type = 110
	Tread        Type = 116
	Twrite       Type = 118
	Tclunk       Type = 120
	Tremove      Type = 122
)

// Writes reports whether a request of this type would change something, whatever is in it.
func (t Type) Writes() bool {
	switch t {
	case Tlcreate, Tsymlink, Tmknod, Trename, Tsetattr, Txattrcreate, Tlink, Tmkdir, Trenameat, Tunlinkat, Twrite, Tremove:
		return true
	}
	return false
}

// Numbers of the protocol.
const (
	HeaderSize = 7                  // bytes: size, type, tag
	QIDSize    = 13                 // bytes
	ReadHeader = HeaderSize + 4     // bytes of an Rread or Rreaddir before its data
	MaxWalk    = 16                 // names in one Twalk
	MaxName    = 255                // bytes of a name in a directory
	NoTag      = ^uint16(0)         // of a Tversion
	NoFID      = ^uint32(0)         // where a fid is not given
	Version    = "9P2000.L"         // the only version that is spoken here
	Unknown    = "unknown"          // the answer to any other
	MinMsize   = 4 << 10            // bytes: the least that a message may be limited to
	AllBasic   = uint64(0x000007ff) // Getattr's mask: everything that stat has
)

// Request is one request. Which fields are set depends on its type.
type Request struct {
	Type Type
	Tag  uint16

	FID    uint32 // all but Tversion and Tflush; Tauth's afid
	NewFID uint32 // Twalk, Txattrwalk
	AFID   uint32 // Tattach

	Msize   uint32   // Tversion
	Version string   // Tversion
	User    string   // Tauth, Tattach
	Tree    string   // Tauth, Tattach: what is to be attached
	UID     uint32   // Tauth, Tattach
	OldTag  uint16   // Tflush
	Names   []string // Twalk, at most MaxWalk
	Name    string   // Txattrwalk
	Flags   uint32   // Tlopen: those of Linux's open
	Mask    uint64   // Tgetattr
	Offset  uint64   // Tread: bytes; Treaddir: the cookie of the last entry, or 0
	Count   uint32   // Tread, Treaddir: bytes
}

// ErrHeader means that a message is too short, or has another length than it says. There is nothing to answer, as its tag
// means nothing.
var ErrHeader = errors.New("no 9P message")

// ErrMalformed means that a request does not have the form of its type. Its type and tag are valid.
var ErrMalformed = errors.New("malformed request")

// Parse returns the request that is in b, one whole message. It copies what it keeps of b. The bodies of requests that
// write, and of unknown types, are not looked at. The error is ErrHeader or ErrMalformed, with more words.
func Parse(b []byte) (Request, error) {
	var r Request
	if len(b) < HeaderSize {
		return r, fmt.Errorf("%w: %d bytes", ErrHeader, len(b))
	}
	if size := binary.LittleEndian.Uint32(b); size != uint32(len(b)) {
		return r, fmt.Errorf("%w: %d bytes that say to be %d", ErrHeader, len(b), size)
	}
	r.Type, r.Tag = Type(b[4]), binary.LittleEndian.Uint16(b[5:])
	p := parser{left: b[HeaderSize:]}
	switch r.Type {
	case Tversion:
		r.Msize, r.Version = p.u32(), p.str()
	case Tauth:
		r.FID, r.User, r.Tree, r.UID = p.u32(), p.str(), p.str(), p.u32()
	case Tattach:
		r.FID, r.AFID, r.User, r.Tree, r.UID = p.u32(), p.u32(), p.str(), p.str(), p.u32()
	case Tflush:
		r.OldTag = p.u16()
	case Twalk:
		r.FID, r.NewFID, r.Names = p.u32(), p.u32(), p.names()
	case Tlopen:
		r.FID, r.Flags = p.u32(), p.u32()
	case Tgetattr:
		r.FID, r.Mask = p.u32(), p.u64()
	case Tread, Treaddir:
		r.FID, r.Offset, r.Count = p.u32(), p.u64(), p.u32()
	case Txattrwalk:
		r.FID, r.NewFID, r.Name = p.u32(), p.u32(), p.str()
	case Tfsync:
		r.FID = p.u32()
		p.u32() // whether the data suffice
	case Tstatfs, Treadlink, Tclunk, Tremove:
		r.FID = p.u32()
	default:
		return r, nil
	}
	if p.short || len(p.left) > 0 {
		return r, fmt.Errorf("%w of type %d", ErrMalformed, r.Type)
	}
	return r, nil
}

// parser takes fields from the front of a message's body. Once the body was too short for one, every field is zero.
type parser struct {
	left  []byte
	short bool
}

func (p *parser) take(n int) []byte {
	if p.short || n > len(p.left) {
		p.short = true
		return nil
	}
	b := p.left[:n]
	p.left = p.left[n:]
	return b
}

func (p *parser) u16() uint16 {
	if b := p.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (p *parser) u32() uint32 {
	if b := p.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (p *parser) u64() uint64 {
	if b := p.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// str takes a string. One with a NUL byte is malformed: no name of a file has one.
func (p *parser) str() string {
	s := string(p.take(int(p.u16())))
	if strings.IndexByte(s, 0) >= 0 {
		p.short = true
	}
	return s
}

func (p *parser) names() []string {
	n := int(p.u16())
	if n > MaxWalk {
		p.short = true
	}
	if p.short || n == 0 {
		return nil
	}
	names := make([]string, 0, n)
	for range n {
		names = append(names, p.str())
	}
	return names
}
