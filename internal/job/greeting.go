package job

import (
	"cmp"

	"github.com/rdistcc/rdistcc/internal/wire"
)

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

// Speaks reports whether this side speaks a version of the protocol: the newest, or the one before it. So an upgrade may take
// as long as it likes, host by host, in any order.
//
// The manager's Greeting names the newest version that it speaks. A daemon that speaks it answers with the same version, and the
// connection is of that version. A daemon that does not rejects the connection and names its own (Rejection.Version); if the
// manager speaks that one (Instead), it dials again.
func Speaks(version uint16) bool { return Oldest <= version && version <= Version }

// Instead returns the version with which to dial again after a Greeting of version tried was rejected. ok is false if there is none.
func (j *Rejection) Instead(tried uint16) (version uint16, ok bool) {
	return j.Version, j.Cause == CauseVersion && j.Version < tried && Speaks(j.Version)
}

// ParseGreeting decodes the private data of a Request, or of a Reply with R=0. Of a version that this side does not speak it
// reads only the version, so that the caller can report it.
func ParseGreeting(b []byte) (Greeting, error) {
	r := newReader(b)
	if string(r.Take(len(magic))) != magic {
		return Greeting{}, malformed("peer is no rdistcc")
	}
	g := Greeting{Version: r.Uint16()}
	if r.Fault == "" && !Speaks(g.Version) {
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

// Append appends the encoding of j, as MPA private data, to dst. It contains a version: with
// CauseVersion it tells the peer which one would have been accepted.
func (j *Rejection) Append(dst []byte) []byte {
	dst = append(dst, magic...)
	dst = wire.AppendUint16(dst, cmp.Or(j.Version, Version))
	dst = append(dst, byte(j.Cause))
	return appendShort(dst, Clip(j.Detail, MaxDetail), MaxDetail)
}

// ParseRejection decodes the private data of a Reply with R=1, of any version.
func ParseRejection(b []byte) (Rejection, error) {
	r := newReader(b)
	if string(r.Take(len(magic))) != magic {
		return Rejection{}, malformed("peer is no rdistcc")
	}
	j := Rejection{Version: r.Uint16(), Cause: Cause(r.Uint8())}
	if j.Cause >= numCauses {
		j.Cause = CauseInternal // defined by a later version
	}
	j.Detail = r.short(MaxDetail)
	if err := r.end(); err != nil {
		return Rejection{}, err
	}
	return j, nil
}
