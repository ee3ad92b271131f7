package inputs

import (
	"crypto/sha256"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/stamp"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// Listed returns the Set of a job that its wrapper assembled: the files of body, whose contents are concatenated in text,
// which the Set shares. Nothing else is known of them, so the Set only serves to decide which contents to send, and its
// Sum names no results. Listed returns nil if the source has a second name, which a List cannot describe.
func Listed(body *job.Body, text []byte) *Set {
	s := &Set{Files: make([]*Input, 0, len(body.Files)), Dirs: body.Dirs, Links: body.Links, Timed: true}
	for i := range body.Files {
		f := &body.Files[i]
		if f.Same == 1 || f.Len > uint64(len(text)) {
			return nil
		}
		n := &Input{Name: f.Name, Len: f.Len, MTime: f.MTime, Exec: f.Exec, text: text[:f.Len:f.Len], st: stamp.Stamp{Ino: uint64(i) + 1}}
		if f.Same != 0 {
			n.st.Ino = uint64(f.Same)
		} else {
			n.ID, n.System = sha256.Sum256(n.text), unit.IsSystemFile(f.Name)
		}
		text = text[f.Len:]
		s.Files, s.Len = append(s.Files, n), s.Len+f.Len
	}
	if len(s.Files) == 0 || len(text) > 0 {
		return nil
	}
	return s
}
