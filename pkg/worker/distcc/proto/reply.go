package proto

import (
	"fmt"

	"github.com/rdistcc/rdistcc/pkg/worker/distcc/lzo"
)

// Reply is the answer to a request. There is none that says no: a server that does not do what it is asked ends the connection.
type Reply struct {
	Status         int // as wait(2) has it: the exit status times 256, or a signal
	Stderr, Stdout []byte
	Object         []byte // not sent unless Status is 0
	Deps           []byte // version 3: make's rules; may be empty
}

// Append appends the answer to a request of a version.
func (p *Reply) Append(dst []byte, version int) []byte {
	dst = appendToken(dst, "DONE", version)
	dst = appendToken(dst, "STAT", p.Status)
	dst = appendContent(dst, "SERR", p.Stderr, version)
	dst = appendContent(dst, "SOUT", p.Stdout, version)
	if p.Status != 0 {
		return appendToken(dst, "DOTO", 0)
	}
	dst = appendContent(dst, "DOTO", p.Object, version)
	if version == Sources {
		dst = appendContent(dst, "DOTD", p.Deps, version)
	}
	return dst
}

func appendToken(dst []byte, kind string, n int) []byte { return fmt.Appendf(dst, "%s%08x", kind, n) }

func appendContent(dst []byte, kind string, b []byte, version int) []byte {
	if version == Plain || len(b) == 0 {
		return append(appendToken(dst, kind, len(b)), b...)
	}
	at := len(dst)
	dst = lzo.Append(appendToken(dst, kind, 0), b)
	copy(dst[at:], appendToken(nil, kind, len(dst)-at-tokenLen))
	return dst
}
