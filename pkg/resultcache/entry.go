package resultcache

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/internal/compress"
	"github.com/rdistcc/rdistcc/internal/wire"
)

// Entry is the result of a compile. It does not change once it is kept.
type Entry struct {
	Key
	Origin
	Exit           uint8
	Stdout, Stderr []byte
	Files          []File // what it wrote, by ascending Index; each Index once
	// Signed is set by Decode if the entry is signed. Append leaves it out.
	Signed *Signed
}

// Origin tells where a result comes from. Only Base is for more than what people are told.
type Origin struct {
	Made     time.Time     // when it was compiled
	Host     string        // that compiled it, as the manager named it
	Builder  string        // the build host that asked for it
	Source   string        // as the command named it
	Compiler string        // usual name, say "gcc 12.2.0"
	Base     string        // directory that its Key does not depend on; its rules for make do. Empty: none (package move)
	CPU      time.Duration // CPU time of the compile, in whole microseconds up to an hour
	Wall     time.Duration // its wall time, likewise
}

// File is one output of a compile.
type File struct {
	Index uint8 // in the outputs of the command
	Data  []byte
}

// Errors of stores and of Decode. Others are trouble with the store.
var (
	// ErrMiss says that a store has no such entry.
	ErrMiss = errors.New("no such result")
	// ErrDamaged is wrapped by what Decode says of an entry that is not what was kept, or not for this Key.
	ErrDamaged = errors.New("a damaged result")
	// ErrTooBig is wrapped by what Put says of an entry that would take too much of the store.
	ErrTooBig = errors.New("a result too big for the store")
	// ErrReadOnly is wrapped by what Put and Drop say of a store that allows this user to read only.
	ErrReadOnly = errors.New("the store may only be read")
	// ErrVersion says that an entry is of another version of this format.
	ErrVersion = errors.New("a result in the format of another version")
)

// Layout of an entry:
//
//	0         8         40         72        76
//	| magic   | key     | sum      | head    | head ... | outputs, packed or not |
//
// sum is the SHA-256 of magic, key and everything behind itself, and head the length of the head. The outputs
// are those of stdout, stderr and the files, one after another. A signed entry has another version, and something
// behind the outputs (signed.go).
const (
	magic   = "rdistcc\x01" // ends with the version of the format
	keyAt   = len(magic)
	sumAt   = keyAt + sha256.Size
	headAt  = sumAt + sha256.Size
	headLen = 4
	// HeaderLen is how many bytes of an entry are enough to know for which Key it is, and whether it is one.
	HeaderLen = headAt + headLen
)

// Bounds of what Decode accepts.
const (
	// MaxHead bounds the description of an entry, besides HeaderLen.
	MaxHead  = 64 << 10
	maxFiles = 64
	// MaxLen bounds an entry as it is kept, and its outputs.
	MaxLen = 1 << 30
	// packFrom is how long outputs have to be, in bytes, to be packed: shorter ones gain nothing.
	packFrom = 256
)

// Len returns the length of e's outputs, in bytes.
func (e *Entry) Len() int {
	n := len(e.Stdout) + len(e.Stderr)
	for i := range e.Files {
		n += len(e.Files[i].Data)
	}
	return n
}

// Parts returns e's outputs in the order in which they are kept: stdout, stderr, the files.
func (e *Entry) Parts() []*[]byte {
	parts := []*[]byte{&e.Stdout, &e.Stderr}
	for i := range e.Files {
		parts = append(parts, &e.Files[i].Data)
	}
	return parts
}

// Append appends e as it is kept to dst.
func (e *Entry) Append(dst []byte) ([]byte, error) {
	n := e.Len()
	if n > MaxLen {
		return dst, fmt.Errorf("result of %d bytes: too big to keep", n)
	}
	raw := make([]byte, 0, n)
	raw = append(append(raw, e.Stdout...), e.Stderr...)
	for i := range e.Files {
		raw = append(raw, e.Files[i].Data...)
	}
	outputs, packed := raw, false
	if n >= packFrom {
		p, err := compress.Pack(make([]byte, 0, n/2), raw)
		if err != nil {
			return dst, fmt.Errorf("pack a result: %w", err)
		}
		if len(p) < n {
			outputs, packed = p, true
		}
	}
	r := Raw{Key: e.Key, Origin: e.Origin, Exit: e.Exit, Stdout: uint32(len(e.Stdout)), Stderr: uint32(len(e.Stderr)), Packed: packed, Outputs: outputs}
	for i := range e.Files {
		r.Files = append(r.Files, RawFile{Index: e.Files[i].Index, Len: uint32(len(e.Files[i].Data))})
	}
	dst, err := r.AppendFront(dst)
	if err != nil {
		return dst, err
	}
	return append(dst, outputs...), nil
}

// Raw is an Entry whose outputs are in one piece, as a host has them.
type Raw struct {
	Key
	Origin
	Exit           uint8
	Stdout, Stderr uint32    // their lengths
	Files          []RawFile // by ascending Index; each Index once
	// Outputs are stdout, stderr and the files, one after another. If Packed is set, they are a frame of
	// package compress.
	Outputs []byte
	Packed  bool

	signed *Signed // by open
}

// RawFile is one output of a compile.
type RawFile struct {
	Index uint8 // in the outputs of the command
	Len   uint32
}

// AppendFront appends to dst what is in front of r's Outputs in the entry as it is kept.
func (r *Raw) AppendFront(dst []byte) ([]byte, error) {
	at := len(dst)
	dst, sum, err := r.appendFront(dst, magic)
	if err == nil {
		copy(dst[at+sumAt:], sum[:])
	}
	return dst, err
}

// appendFront appends the same without the sum, which it returns.
func (r *Raw) appendFront(dst []byte, magic string) (_ []byte, sum [sha256.Size]byte, err error) {
	if len(r.Outputs) > MaxLen || len(r.Files) > maxFiles {
		return dst, sum, fmt.Errorf("result of %d bytes in %d files: too big to keep", len(r.Outputs), len(r.Files))
	}
	at := len(dst)
	dst = append(append(dst, magic...), r.Key[:]...)
	dst = append(dst, make([]byte, sha256.Size+headLen)...)
	dst = r.appendHead(dst)
	head := len(dst) - at - HeaderLen
	if head > MaxHead {
		return dst[:at], sum, fmt.Errorf("result whose description has %d bytes: too big to keep", head)
	}
	binary.LittleEndian.PutUint32(dst[at+headAt:], uint32(head))
	h := sha256.New()
	h.Write(dst[at : at+sumAt])
	h.Write(dst[at+headAt:])
	h.Write(r.Outputs)
	h.Sum(sum[:0])
	return dst, sum, nil
}

// MadeBy returns an entry as it is kept, which Decode has accepted for key, with another Host and without a
// signature.
func MadeBy(b []byte, key Key, host string) ([]byte, error) {
	r, err := open(b, key)
	if err != nil {
		return nil, err
	}
	r.Host = host
	return r.bare(len(b) + len(host))
}

// Renamed returns an entry as it is kept, which Decode has accepted for key, with the Key to, whose compile has the
// same result. A signature stays with it. It does not prove anything any more, but tells for ever whose word the entry
// goes back to.
func Renamed(b []byte, key, to Key) ([]byte, error) {
	r, err := open(b, key)
	if err != nil {
		return nil, err
	}
	r.Key = to
	if r.signed == nil {
		return r.bare(len(b))
	}
	return r.seal(len(b), func([sha256.Size]byte) ([]byte, error) { return r.signed.Signature, nil })
}

// bare returns r as it is kept, without a signature. It has about n bytes.
func (r *Raw) bare(n int) ([]byte, error) {
	front, err := r.AppendFront(make([]byte, 0, n))
	if err != nil {
		return nil, err
	}
	return append(front, r.Outputs...), nil
}

// sumOf returns the sum of an entry that is not signed.
func sumOf(b []byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	h.Write(b[:sumAt])
	h.Write(b[headAt:])
	h.Sum(sum[:0])
	return sum
}

func (r *Raw) appendHead(b []byte) []byte {
	b = wire.AppendUint64(b, uint64(r.Made.UnixNano()))
	for _, s := range [...]string{r.Host, r.Builder, r.Source, r.Compiler, r.Base} {
		b = wire.AppendString(b, s)
	}
	b = wire.AppendUint32(b, microseconds(r.CPU))
	b = wire.AppendUint32(b, microseconds(r.Wall))
	b = append(b, r.Exit)
	b = wire.AppendBool(b, r.Packed)
	b = wire.AppendUint32(b, r.Stdout)
	b = wire.AppendUint32(b, r.Stderr)
	b = wire.AppendUint32(b, uint32(len(r.Files)))
	for i := range r.Files {
		b = append(b, r.Files[i].Index)
		b = wire.AppendUint32(b, r.Files[i].Len)
	}
	return b
}

func microseconds(d time.Duration) uint32 {
	return uint32(min(max(d, 0), time.Hour).Microseconds())
}

// Decode reads an entry that a store has returned for key. room returns memory for n bytes of outputs, which
// is what Entry's slices refer to; it may refuse. Decode keeps no part of b.
//
// Its errors wrap ErrDamaged or ErrVersion, or are room's.
func Decode(b []byte, key Key, room func(n int) ([]byte, error)) (*Entry, error) {
	r, err := open(b, key)
	if err != nil {
		return nil, err
	}
	n, is := r.len(), uint64(len(r.Outputs))
	if r.Packed {
		is, err = compress.Len(r.Outputs)
	}
	if err != nil || is != n || n > MaxLen {
		return nil, fmt.Errorf("%w: its outputs are not as long as it says", ErrDamaged)
	}
	mem, err := room(int(n))
	if err != nil {
		return nil, err
	}
	mem = mem[:n:n]
	if r.Packed {
		got, err := compress.Unpack(mem[:0:n], r.Outputs, n)
		if err != nil || uint64(len(got)) != n {
			return nil, fmt.Errorf("%w: its outputs cannot be unpacked", ErrDamaged)
		}
	} else {
		copy(mem, r.Outputs)
	}
	take := func(l uint32) (part []byte) {
		part, mem = mem[:l:l], mem[l:]
		return part
	}
	e := &Entry{Key: key, Origin: r.Origin, Exit: r.Exit, Stdout: take(r.Stdout), Stderr: take(r.Stderr), Signed: r.signed.clone()}
	for _, f := range r.Files {
		e.Files = append(e.Files, File{f.Index, take(f.Len)})
	}
	return e, nil
}

// Describe returns what an entry tells of itself, after it has verified all of it: its Key and its Origin.
func Describe(b []byte) (Key, Origin, error) {
	if len(b) < HeaderLen {
		return Key{}, Origin{}, fmt.Errorf("%w: cut short", ErrDamaged)
	}
	r, err := open(b, Key(b[keyAt:sumAt]))
	if err != nil {
		return Key{}, Origin{}, err
	}
	return r.Key, r.Origin, nil
}

// open verifies an entry. The Outputs of what it returns are a part of b.
func open(b []byte, key Key) (*Raw, error) {
	switch {
	case len(b) < HeaderLen || len(b) > MaxLen+MaxHead+maxSigned:
		return nil, fmt.Errorf("%w: %d bytes", ErrDamaged, len(b))
	case string(b[:keyAt-1]) != magic[:keyAt-1]:
		return nil, fmt.Errorf("%w: something else is in its place", ErrDamaged)
	case b[keyAt-1] != magic[keyAt-1] && b[keyAt-1] != magicSigned[keyAt-1]:
		return nil, ErrVersion
	case Key(b[keyAt:sumAt]) != key:
		return nil, fmt.Errorf("%w: it is the result of another compile", ErrDamaged)
	}
	b, signed, right := unsign(b)
	if !right {
		return nil, fmt.Errorf("%w: its sum differs", ErrDamaged)
	}
	d := wire.Reader[[]byte]{Rest: b[headAt:]}
	n := d.Uint32()
	if n > MaxHead || int(n) > len(d.Rest) {
		return nil, fmt.Errorf("%w: its description is cut short", ErrDamaged)
	}
	r := &Raw{Key: key, Outputs: d.Rest[n:], signed: signed}
	if fault := r.parseHead(d.Rest[:n]); fault != "" {
		return nil, fmt.Errorf("%w: %s", ErrDamaged, fault)
	}
	return r, nil
}

// len returns the length of r's outputs when they are not packed.
func (r *Raw) len() uint64 {
	n := uint64(r.Stdout) + uint64(r.Stderr)
	for _, f := range r.Files {
		n += uint64(f.Len)
	}
	return n
}

// parseHead reads what appendHead has written. It returns what is wrong with it, or "".
func (r *Raw) parseHead(b []byte) (fault string) {
	d := wire.Reader[[]byte]{Rest: b}
	r.Made = time.Unix(0, int64(d.Uint64()))
	for _, s := range [...]*string{&r.Host, &r.Builder, &r.Source, &r.Compiler, &r.Base} {
		*s = d.Text()
	}
	r.CPU = time.Duration(d.Uint32()) * time.Microsecond
	r.Wall = time.Duration(d.Uint32()) * time.Microsecond
	r.Exit = d.Uint8()
	r.Packed = d.Bool()
	r.Stdout, r.Stderr = d.Uint32(), d.Uint32()
	n := d.Count(1 + 4)
	if n > maxFiles {
		d.Fail("too many files")
		n = 0
	}
	last := -1
	for range n {
		f := RawFile{Index: d.Uint8(), Len: d.Uint32()}
		if int(f.Index) <= last {
			d.Fail("files out of order")
		}
		last = int(f.Index)
		r.Files = append(r.Files, f)
	}
	return d.End()
}
