package images

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAhead: a host makes a precompiled header while it is made here, before any compile asks for it; the compiles use that one. A
// header that the compiler rejects does the host no harm.
func TestAhead(t *testing.T) {
	s := start(t)
	for _, m := range makers(t) {
		t.Run(m.cc, func(t *testing.T) {
			s := &site{t, s.Farm, s.ctx, s.work}
			dir := filepath.Join(s.work, "ahead-"+m.cc)
			write := func(name, text string) { s.write(filepath.Join("ahead-"+m.cc, name), text) }
			write("h.h", header)
			write("part.h", "#define PART 1\n")
			write("x"+m.suffix, source)
			compile := append(append([]string{m.cc, "-O1", "-g"}, m.use...), "-c", "x"+m.suffix)
			write("warm"+m.suffix, "int warm;\n")
			s.use("the host is there", dir, remote, m.cc, "-O1", "-g", "-c", "warm"+m.suffix)
			before := s.metric("rdistccd_images_made_total")
			s.sh(dir, "$RD "+m.cc+" -O1 -g -x "+m.language+" h.h -o "+m.image)
			for end := time.Now().Add(time.Minute); s.metric("rdistccd_images_made_total") == before; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the host has not made the precompiled header ahead")
				}
			}
			s.use("made", dir, remote, compile...)
			if made := s.metric("rdistccd_images_made_total") - before; made != 1 {
				t.Errorf("the host has made %v precompiled headers, want 1", made)
			}
			write("part.h", "#error no\n")
			s.sh(dir, "! $RD "+m.cc+" -O1 -g -x "+m.language+" h.h -o "+m.image+" 2>&1")
			hosts := s.command(dir, s.Wrapper, "hosts", "--json")
			if strings.Contains(hosts.out, "precompiled header") || hosts.status != 0 {
				t.Errorf("the host is blamed for it: %s", hosts.out)
			}
			s.use("the host still takes jobs", dir, remote, m.cc, "-O2", "-g", "-c", "warm"+m.suffix)
		})
	}
}
