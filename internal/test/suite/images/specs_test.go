package images

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestSpecFiles: a header that is made with spec files, and compiles with them that use it, run on hosts as they would without. If the
// files change, so does what the compile is given.
func TestSpecFiles(t *testing.T) {
	s := start(t)
	for _, m := range makers(t) {
		if !strings.HasSuffix(m.image, ".gch") {
			continue
		}
		t.Run(m.cc, func(t *testing.T) {
			s := &site{t, s.Farm, s.ctx, s.work}
			dir := filepath.Join(s.work, m.cc)
			file := func(name, text string) { s.write(filepath.Join(m.cc, name), text) }
			file("h.h", header)
			file("part.h", "#define PART 1\n")
			file("x"+m.suffix, source)
			file("hardened", "*cc1_options:\n+ %{!r:%{!fpie:%{!fPIE:%{!fpic:%{!fPIC:%{!fno-pic:-fPIE}}}}}}\n")
			compile := append(append([]string{m.cc, "-O1", "-g", "-Winvalid-pch", "-specs=hardened", "-MD"}, m.use...), "-c", "x"+m.suffix)
			build := "$RD " + m.cc + " -O1 -g -specs=hardened -x " + m.language + " h.h -o " + m.image
			before := s.metric("rdistccd_images_made_total")
			s.sh(dir, build)
			s.use("made", dir, remote, compile...)
			if made := s.metric("rdistccd_images_made_total") - before; made != 1 {
				t.Errorf("the host has made %v precompiled headers, want 1", made)
			}
			file("hardened", "*cpp:\n+ -DPART=3\n")
			file("part.h", "#ifndef PART\n#define PART 1\n#endif\n")
			s.sh(dir, build)
			s.use("other spec files", dir, remote, compile...)
			file("hardened", "*self_spec:\n-wrapper env\n")
			s.use("spec files that run a program", dir, "local:not-reproducible:specs", compile...)
			s.sh(dir, build)
			file("hardened", "")
			s.use("made by spec files that run a program", dir, here, compile...)
		})
	}
}
