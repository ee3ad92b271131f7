package images

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// TestQt5: a program with Qt 5 and a precompiled header, whose macros hand __has_include on, compiles on hosts; built again, each of its
// results is in the cache; and its objects are those of a plain build.
func TestQt5(t *testing.T) {
	for _, name := range []string{"cmake", "make", "qmake"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed (on Debian: cmake, make, qtbase5-dev; Qt is large, and make deps leaves it out)", name)
		}
	}
	s := start(t)
	s.Vars = append(s.Vars, "RDISTCC_CACHE=on")
	a, err := txtar.ParseFile("testdata/qt5.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range a.Files {
		s.write(f.Name, string(f.Data))
	}
	for _, cxx := range []string{"g++", "clang++"} {
		t.Run(cxx, func(t *testing.T) {
			if _, err := exec.LookPath(cxx); err != nil {
				need.Skipf(t, need.Tools, "%s is not installed (on Debian: make deps)", cxx)
			}
			s := &site{t, s.Farm, s.ctx, s.work}
			build := func(wrapper string) (objects map[string]string, report string) {
				s.sh(s.work, "rm -rf build report; cmake -S . -B build -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_COMPILER="+cxx+" -DCMAKE_CXX_COMPILER_LAUNCHER="+wrapper+
					"; RDISTCC_REPORT=$PWD/report cmake --build build && build/notes")
				b, _ := os.ReadFile(filepath.Join(s.work, "report")) // a plain build has none
				return s.objects(), string(b)
			}
			want, _ := build("")
			if len(want) != 4 {
				t.Fatalf("%d objects", len(want))
			}
			for _, where := range []string{remote, "cached:"} {
				got, report := build("$RD")
				for name := range want {
					if got[name] != want[name] {
						t.Errorf("%s differs from that of a plain build", name)
					}
				}
				// The header itself is made here, and the program is linked here.
				if n := strings.Count(report, where); n != len(want) || len(got) != len(want) {
					t.Errorf("%d of %d compiles were %s\n%s", n, len(want), where, report)
				}
			}
		})
	}
}
