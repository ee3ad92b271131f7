// Package proto reads the requests of distcc's clients, and encodes the answers: versions 1 (plain), 2 (packed by LZO1X) and 3
// (packed, and preprocessed by the server) of distcc's protocol. It does no I/O of its own, starts no goroutine and reads no
// clock.
//
// Both directions are sequences of tokens, each of four letters and eight hexadecimal digits. Some of them announce as many
// bytes as the digits say:
//
//	DIST version
//	CDIR working directory              version 3
//	ARGC n, then n times ARGV word
//	DOTI source, preprocessed           versions 1 and 2
//	NFIL n, then n times NAME name and  version 3
//	     FILE content, or LINK target
//
//	DONE version
//	STAT status, as wait(2) has it
//	SERR messages, SOUT messages
//	DOTO object
//	DOTD dependencies                   version 3
//
// In versions 2 and 3, what DOTI, FILE, SERR, SOUT, DOTO and DOTD bring is packed, and nothing stands for itself.
package proto

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rdistcc/rdistcc/pkg/worker/distcc/lzo"
)

// Port is the TCP port on which distcc's clients expect a server.
const Port = 3632

// Versions of the protocol.
const (
	Plain   = 1
	Packed  = 2
	Sources = 3
)

// ErrMalformed is the error for a request that does not follow the protocol.
var ErrMalformed = errors.New("not a request of distcc's protocol")

// ErrTooMuch is the error for a request that is longer than Limits allow.
var ErrTooMuch = errors.New("more than is taken")

// Limits bound a request. Nothing is allocated for what exceeds them.
type Limits struct {
	Words  int // in the command
	Text   int // bytes of the command, or of all names of files together
	Files  int
	Source int // bytes of the source, or of all files together, unpacked; as many again may arrive packed
	// Take, if not nil, is called before memory is allocated, with the number of bytes. Its error ends the request.
	Take func(n int) error
}

// File is a file that a request of version 3 brings.
type File struct {
	Name   string
	Target string // of a symbolic link; empty: it is a regular file
	Text   []byte
}

// Request is what a client asks for.
type Request struct {
	Version int
	Cwd     string   // version 3
	Args    []string // the command, from the compiler's name on
	Source  []byte   // versions 1 and 2
	Files   []File   // version 3
}

// Read reads a request from r, and no byte behind it. What it has read is part of the result even if there is an error.
func Read(r io.Reader, lim Limits) (*Request, error) {
	q := &Request{}
	d := decoder{r: r, lim: lim, text: lim.Text, source: lim.Source}
	q.Version = d.number("DIST")
	if d.err == nil && (q.Version < Plain || q.Version > Sources) {
		d.fail("version %d; 1, 2 and 3 are spoken", q.Version)
	}
	if q.Version == Sources {
		q.Cwd = d.words("CDIR")
	}
	n := d.count("ARGC", lim.Words)
	if d.err == nil && n == 0 {
		d.fail("a command of no words")
	}
	for i := 0; i < n && d.err == nil; i++ {
		q.Args = append(q.Args, d.words("ARGV"))
	}
	if q.Version != Sources {
		q.Source = d.content("DOTI", q.Version)
		return q, d.err
	}
	d.text = lim.Text
	n = d.count("NFIL", lim.Files)
	for i := 0; i < n && d.err == nil; i++ {
		f := File{Name: d.words("NAME")}
		switch kind, length := d.token(); {
		case d.err != nil:
		case kind == "LINK":
			if f.Target = d.string(length); f.Target == "" {
				d.fail("a link without a target")
			}
		case kind == "FILE":
			f.Text = d.bytes(length, q.Version)
		default:
			d.fail("%q in place of FILE or LINK", kind)
		}
		q.Files = append(q.Files, f)
	}
	return q, d.err
}

// decoder reads tokens until the first error.
type decoder struct {
	r      io.Reader
	lim    Limits
	text   int // bytes of names and words that may follow
	source int // bytes of content that may follow
	err    error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
	}
}

func (d *decoder) tooMuch(what string, n uint32, most int) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s of %d, at most %d", ErrTooMuch, what, n, most)
	}
}

// take says that n bytes are about to be allocated.
func (d *decoder) take(n int) {
	if d.err == nil && d.lim.Take != nil {
		d.err = d.lim.Take(n)
	}
}

// tokenLen is the length of a token.
const tokenLen = 12

// token reads a token of any kind, and its number.
func (d *decoder) token() (kind string, n uint32) {
	if d.err != nil {
		return "", 0
	}
	var b [tokenLen]byte
	if _, d.err = io.ReadFull(d.r, b[:]); d.err != nil {
		return "", 0
	}
	for _, c := range b[4:] {
		v := strings.IndexByte("0123456789abcdef", c|0x20)
		if v < 0 || c < '0' {
			d.fail("token %q", b[:])
			return "", 0
		}
		n = n<<4 | uint32(v)
	}
	return string(b[:4]), n
}

func (d *decoder) expect(kind string) uint32 {
	got, n := d.token()
	if d.err == nil && got != kind {
		d.fail("%q in place of %s", got, kind)
	}
	return n
}

// number reads a token that is a small number.
func (d *decoder) number(kind string) int { return int(min(d.expect(kind), 1<<30)) }

// count reads a token that says how many others follow.
func (d *decoder) count(kind string, most int) int {
	n := d.expect(kind)
	if d.err == nil && uint64(n) > uint64(most) {
		d.tooMuch(kind, n, most)
	}
	if d.err != nil {
		return 0
	}
	return int(n)
}

// words reads a token with a name, or a word of a command.
func (d *decoder) words(kind string) string { return d.string(d.expect(kind)) }

func (d *decoder) string(n uint32) string {
	if d.err == nil && uint64(n) > uint64(d.text) {
		d.tooMuch("names or words", n, d.text)
	}
	b := d.raw(int(n))
	d.text -= len(b)
	if strings.IndexByte(string(b), 0) >= 0 {
		d.fail("a zero byte in a name or a word")
	}
	return string(b)
}

// content reads a token with the content of a file.
func (d *decoder) content(kind string, version int) []byte { return d.bytes(d.expect(kind), version) }

func (d *decoder) bytes(n uint32, version int) []byte {
	if d.err == nil && uint64(n) > uint64(d.source) {
		d.tooMuch("content", n, d.source)
	}
	b := d.raw(int(n))
	if d.err == nil && version != Plain && n > 0 {
		b = d.unpack(b)
	}
	d.source -= len(b)
	return b
}

func (d *decoder) unpack(b []byte) []byte {
	n, err := lzo.Size(b, d.source)
	if errors.Is(err, lzo.ErrTooBig) {
		d.err = fmt.Errorf("%w: content that unpacks to more than %d bytes", ErrTooMuch, d.source)
		return nil
	}
	if err != nil {
		d.fail("%v", err)
		return nil
	}
	d.take(n)
	if d.err != nil {
		return nil
	}
	if b, err = lzo.Unpack(b, n); err != nil {
		d.fail("%v", err)
	}
	return b
}

// piece is how many bytes are allocated at a time, so that who announces many has to send them.
const piece = 256 << 10

// raw reads n bytes.
func (d *decoder) raw(n int) []byte {
	var all []byte
	for len(all) < n && d.err == nil {
		more := min(n-len(all), max(piece, len(all)))
		d.take(more)
		if d.err != nil {
			break
		}
		at := len(all)
		all = append(all, make([]byte, more)...)
		_, d.err = io.ReadFull(d.r, all[at:])
	}
	if d.err != nil {
		return nil
	}
	return all
}
