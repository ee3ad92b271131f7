package inputs

import (
	"crypto/sha256"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/stamp"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// Listed returns the Set of a job that its wrapper has made: the files of body, whose contents follow one another in
// text, which the Set shares. Nothing is known of them beyond that, so the Set says which contents are to be sent, and no
// result is kept by its Sum. Listed returns nil if a List cannot describe the files: if the source has a second name.
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
