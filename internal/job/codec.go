package job

import "github.com/rdistcc/rdistcc/internal/wire"

// Message is one Send's content: a pointer to one of the types named by a Kind.
type Message interface {
	Kind() Kind
	appendTo(dst []byte) []byte
	parse(r *reader)
}

// Append appends the encoding of m to dst. A field past its limit is a bug of the caller and panics:
// what a peer or a user provides must be checked before.
func Append(dst []byte, m Message) []byte {
	start := len(dst)
	dst = m.appendTo(append(dst, byte(m.Kind())))
	if len(dst)-start-carried(m) > MaxMessage {
		panic("job: message past MaxMessage")
	}
	return dst
}

// carried returns how many bytes of m's encoding do not count against MaxMessage.
func carried(m Message) int {
	if j, ok := m.(*Job); ok {
		return len(j.Carried)
	}
	return 0
}

// Parse decodes one message, which must be the whole of b. Of b, the result keeps only Job.Carried. Every error
// is an ErrMalformed; on a QP it ends the connection, as the sender does not speak this version.
func Parse(b []byte) (Message, error) {
	if len(b) == 0 || len(b) > MaxMessage && Kind(b[0]) != KindJob || len(b) > MaxMessage+MaxEager {
		return nil, malformed("message length")
	}
	m := newMessage(Kind(b[0]))
	if m == nil {
		return nil, malformed("unknown kind")
	}
	r := newReader(b[1:])
	m.parse(r)
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
	case KindKeep:
		return new(Keep)
	}
	return nil
}

// parseError is an ErrMalformed that says what is wrong.
type parseError string

func malformed(what string) error    { return parseError(what) }
func (e parseError) Error() string   { return "malformed message: " + string(e) }
func (parseError) Is(err error) bool { return err == ErrMalformed }

// reader reads the fields of a message.
type reader struct{ wire.Reader[[]byte] }

func newReader(b []byte) *reader { return &reader{wire.Reader[[]byte]{Rest: b}} }

// end requires that everything has been read.
func (r *reader) end() error { return fault(r.End()) }

// fault returns the error for a Reader's fault, or nil.
func fault(what string) error {
	if what == "" {
		return nil
	}
	return malformed(what)
}

func (r *reader) array16() (a [16]byte) {
	copy(a[:], r.Take(16))
	return a
}

// short reads a string with a length byte. It must not hold control characters, as it goes to logs
// and terminals.
func (r *reader) short(max int) string {
	n := int(r.Uint8())
	if n > max {
		r.Fail("text too long")
		return ""
	}
	b := r.Take(n)
	for _, c := range b {
		if c < ' ' || c == 0x7f {
			r.Fail("control character in text")
			return ""
		}
	}
	return string(b)
}

// count reads the length byte of a list.
func (r *reader) count(max int) int {
	n := int(r.Uint8())
	if n > max {
		r.Fail("list too long")
		return 0
	}
	return n
}

// appendShort is the counterpart of short.
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
