package job

import "encoding/binary"

// Message is one Send's content: a pointer to one of the types named by a Kind.
type Message interface {
	Kind() Kind
	appendTo(dst []byte) []byte
	parse(r *reader)
}

// Append encodes m behind dst. A field past its limit is a bug of the caller's
// and panics: what a peer or a user says is checked before it gets here.
func Append(dst []byte, m Message) []byte {
	start := len(dst)
	dst = m.appendTo(append(dst, byte(m.Kind())))
	if len(dst)-start > MaxMessage {
		panic("job: message past MaxMessage")
	}
	return dst
}

// Parse decodes one message, the whole of b. The result keeps no part of b.
// Every error is an ErrMalformed; on a QP it ends the connection, as the
// sender does not speak this version.
func Parse(b []byte) (Message, error) {
	if len(b) == 0 || len(b) > MaxMessage {
		return nil, malformed("message length")
	}
	m := newMessage(Kind(b[0]))
	if m == nil {
		return nil, malformed("unknown kind")
	}
	r := reader{b: b[1:]}
	m.parse(&r)
	if err := r.end(); err != nil {
		return nil, err
	}
	return m, nil
}

func newMessage(k Kind) Message {
	switch k {
	case KindHello:
		return new(Hello)
	case KindWelcome:
		return new(Welcome)
	case KindToolchains:
		return new(Toolchains)
	case KindGrant:
		return new(Grant)
	case KindRecall:
		return new(Recall)
	case KindReturn:
		return new(Return)
	case KindJob:
		return new(Job)
	case KindResult:
		return new(Result)
	case KindCancel:
		return new(Cancel)
	case KindHeartbeat:
		return new(Heartbeat)
	case KindDrain:
		return new(Drain)
	case KindAck:
		return new(Ack)
	case KindRelease:
		return new(Release)
	case KindDemand:
		return new(Demand)
	case KindProof:
		return new(Proof)
	case KindCompilers:
		return new(Compilers)
	}
	return nil
}

// parseError is an ErrMalformed that says what was wrong.
type parseError string

func malformed(what string) error    { return parseError(what) }
func (e parseError) Error() string   { return "malformed message: " + string(e) }
func (parseError) Is(err error) bool { return err == ErrMalformed }

var le = binary.LittleEndian

// reader takes fields from the front of b. The first fault sticks: later reads
// give zeros, so that a parser needs one check at its end.
type reader struct {
	b    []byte
	what string // the first fault
}

func (r *reader) fail(what string) {
	if r.what == "" {
		r.what = what
	}
	r.b = nil
}

// end wants that all was read.
func (r *reader) end() error {
	if r.what == "" && len(r.b) != 0 {
		r.what = "bytes behind the end"
	}
	if r.what != "" {
		return malformed(r.what)
	}
	return nil
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.fail("cut short")
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) u8() uint8 {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u16() uint16 {
	if b := r.take(2); b != nil {
		return le.Uint16(b)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return le.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return le.Uint64(b)
	}
	return 0
}

func (r *reader) bool() bool {
	v := r.u8()
	if v > 1 {
		r.fail("neither true nor false")
	}
	return v == 1
}

func (r *reader) array16() (a [16]byte) {
	copy(a[:], r.take(16))
	return a
}

// short reads a string with a length byte; it holds no control characters, as
// it goes to logs and terminals.
func (r *reader) short(max int) string {
	n := int(r.u8())
	if n > max {
		r.fail("text too long")
		return ""
	}
	b := r.take(n)
	for _, c := range b {
		if c < ' ' || c == 0x7f {
			r.fail("control character in text")
			return ""
		}
	}
	return string(b)
}

// count reads a length byte of a list.
func (r *reader) count(max int) int {
	n := int(r.u8())
	if n > max {
		r.fail("list too long")
		return 0
	}
	return n
}

// appendShort is short's counterpart.
func appendShort(dst []byte, s string, max int) []byte {
	if len(s) > max {
		panic("job: text past its limit")
	}
	return append(append(dst, byte(len(s))), s...)
}

func appendCount(dst []byte, n, max int) []byte {
	if n > max {
		panic("job: list past its limit")
	}
	return append(dst, byte(n))
}

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}
