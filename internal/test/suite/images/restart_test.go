package images

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRestart: a manager knows how headers were made that were precompiled while an earlier one ran, and uses none that has
// changed meanwhile, nor one of files that have.
func TestRestart(t *testing.T) {
	s := start(t)
	restart := func(between func()) {
		t.Helper()
		if err := s.Manager.Stop(); err != nil {
			t.Fatal(err)
		}
		between()
		if err := s.StartManager(s.ctx, "--hosts", s.Daemons[0].Addr); err != nil {
			t.Fatal(err)
		}
	}
	type site struct {
		m        maker
		dir, why string
		change   func(dir string)
		want     string
	}
	var all []site
	add := func(m maker, why, want string, change func(dir string)) {
		name := "restart-" + m.cc + "-" + strings.ReplaceAll(why, " ", "-")
		for file, text := range map[string]string{"h.h": header, "part.h": "#define PART 1\n", "x" + m.suffix: source} {
			s.write(filepath.Join(name, file), text)
		}
		all = append(all, site{m, filepath.Join(s.work, name), why, change, want})
	}
	build := func(x *site) { s.sh(x.dir, "$RD "+x.m.cc+" -O1 -g -x "+x.m.language+" h.h -o "+x.m.image) }
	use := func(x *site, what, want string) {
		t.Helper()
		s.use(what, x.dir, want, append(append([]string{x.m.cc, "-O1", "-g", "-MD"}, x.m.use...), "-c", "x"+x.m.suffix)...)
	}
	list := makers(t)
	for _, m := range list {
		if m.cc == list[0].cc || m.cc == "clang++" {
			add(m, "nothing has changed", remote, func(string) {})
		}
	}
	m := list[0]
	add(m, "written again with what it has", here, func(dir string) { s.sh(dir, "cat "+m.image+" > keep && cat keep > "+m.image) })
	add(m, "copied to another file of that time", here, func(dir string) { s.sh(dir, "cp -p "+m.image+" keep && mv keep "+m.image) })
	add(m, "made without rdistcc", here, func(dir string) { s.sh(dir, m.cc+" -O1 -g -x "+m.language+" h.h -o "+m.image) })
	add(m, "a part has changed", here, func(dir string) { s.sh(dir, "echo '#define PART 2' > part.h") })
	add(m, "a part has another time", here, func(dir string) { s.sh(dir, "touch -d @1000000000 part.h") })
	add(m, "a part comes before", here, func(dir string) { s.sh(dir, "echo > stddef.h; sed -i 's/<stddef.h>/\"stddef.h\"/' h.h") })
	for i := range all {
		build(&all[i])
	}
	restart(func() {
		for i := range all {
			all[i].change(all[i].dir)
		}
	})
	unused := &all[0]
	for i := range all[1:] {
		x := &all[1:][i]
		use(x, x.why, x.want)
	}
	restart(func() {})
	use(unused, "two managers later", remote)
	file := filepath.Join(s.Dir, "rdistcc", "headers")
	restart(func() {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 1
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	use(unused, "the file is damaged", here)
	build(unused)
	use(unused, "made again", remote)
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if b, err := os.ReadFile(file); err == nil && strings.Contains(string(b), unused.dir) && strings.Count(string(b), "/restart-") < len(all) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the damaged file is not replaced")
		}
	}
	if b, err := os.ReadFile(s.Manager.Log); err != nil || strings.Count(string(b), "precompiled headers of earlier managers") != 1 {
		t.Errorf("no line, or more, about the damaged file: %v", err)
	}
	s.Manager.Kill() // what is written is there whatever way it ends
	if err := s.StartManager(s.ctx, "--hosts", s.Daemons[0].Addr); err != nil {
		t.Fatal(err)
	}
	use(unused, "after a manager that was killed", remote)
}
