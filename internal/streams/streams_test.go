package streams

import (
	"testing"

	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/job"
)

// FuzzParse: any private data is a request or refused with a line.
func FuzzParse(f *testing.F) {
	f.Add([]byte("RDCS\x01\x00\x01"))
	f.Add(append([]byte("RDCS\x01\x00\x01"), make([]byte, psk.RequestLen)...))
	f.Add([]byte("RDCC"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, no := Parse(b)
		switch {
		case no != nil:
			if no.Detail == "" || no.Cause != job.CauseMalformed && no.Cause != job.CauseVersion {
				t.Errorf("%+v", no)
			}
		case !Wanted(b), r.Service != HTTP && r.Service != Toolchains, len(b) != greetingLen && !r.Proof:
			t.Errorf("% x is read as %+v", b, r)
		}
	})
}
