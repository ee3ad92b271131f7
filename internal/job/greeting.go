package job

import "github.com/rdistcc/rdistcc/internal/wire"

// magic begins the private data of both sides' MPA start-up.
const magic = "RDCC"

// GreetingLen is the length of a Greeting without Auth, in bytes.
const GreetingLen = 4 + 2 + 16

// Append appends the encoding of g, as MPA private data, to dst.
func (g *Greeting) Append(dst []byte) []byte {
	dst = append(dst, magic...)
	dst = wire.AppendUint16(dst, g.Version)
	dst = append(dst, g.Boot[:]...)
	return append(dst, g.Auth...)
}

// ParseGreeting decodes the private data of a Request, or of a Reply with R=0. For another
// version it reads only the version: the caller compares it with Version and can then report it.
func ParseGreeting(b []byte) (Greeting, error) {
	r := newReader(b)
	if string(r.Take(len(magic))) != magic {
		return Greeting{}, malformed("peer is no rdistcc")
	}
	g := Greeting{Version: r.Uint16()}
	if r.Fault == "" && g.Version != Version {
		return g, nil
	}
	g.Boot = r.array16()
	if n := len(r.Rest); n == AskLen || n == AnswerLen {
		g.Auth = append([]byte(nil), r.Take(n)...)
	}
	if err := r.end(); err != nil {
		return Greeting{}, err
	}
	return g, nil
}

// Append appends the encoding of j, as MPA private data, to dst. It contains our version: with
// CauseVersion it tells the peer which one would have been accepted.
func (j *Rejection) Append(dst []byte) []byte {
	dst = append(dst, magic...)
	dst = wire.AppendUint16(dst, Version)
	dst = append(dst, byte(j.Cause))
	return appendShort(dst, Clip(j.Detail, MaxDetail), MaxDetail)
}

// ParseRejection decodes the private data of a Reply with R=1, of any version.
func ParseRejection(b []byte) (Rejection, error) {
	r := newReader(b)
	if string(r.Take(len(magic))) != magic {
		return Rejection{}, malformed("peer is no rdistcc")
	}
	r.Uint16()
	j := Rejection{Cause: Cause(r.Uint8())}
	if j.Cause >= numCauses {
		j.Cause = CauseInternal // defined by a later version
	}
	j.Detail = r.short(MaxDetail)
	if err := r.end(); err != nil {
		return Rejection{}, err
	}
	return j, nil
}
