package images

import (
	"path/filepath"
	"testing"
)

// TestKept: results of compiles that use a precompiled header are kept, and found as long as that is made by the same command of
// the same files; another one is another input.
func TestKept(t *testing.T) {
	const cached = "cached:"
	s := start(t)
	s.Vars = append(s.Vars, "RDISTCC_CACHE=on")
	for _, m := range makers(t) {
		t.Run(m.cc, func(t *testing.T) {
			s := &site{t, s.Farm, s.ctx, s.work}
			dir := filepath.Join(s.work, "kept-"+m.cc)
			write := func(name, text string) { s.write(filepath.Join("kept-"+m.cc, name), text) }
			write("h.h", header)
			write("part.h", "#define PART 1\n")
			write("x"+m.suffix, source)
			compile := append(append([]string{m.cc, "-O1", "-g", "-MD"}, m.use...), "-c", "x"+m.suffix)
			build := func(more string) {
				s.sh(dir, "$RD "+m.cc+" -O1 -g -x "+m.language+" "+more+" h.h -o "+m.image)
			}
			build("")
			s.use("first", dir, remote, compile...)
			s.use("again", dir, cached, compile...)
			write("part.h", "#define PART 2\n")
			s.use("a part has changed", dir, here, compile...)
			build("")
			s.use("made again of that", dir, remote, compile...)
			s.use("made again of that, again", dir, cached, compile...)
			build("-DMORE=1")
			s.use("made by another command", dir, remote, compile...)
			write("part.h", "#define PART 1\n")
			build("")
			s.use("made as at first", dir, cached, compile...)
			write("x"+m.suffix, source+"int more;\n")
			s.use("another source", dir, remote, compile...)
		})
	}
}
