package images

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

const (
	here   = "local:not-reproducible:pch"
	remote = "remote:"
)

const header = `#ifndef H_H
#define H_H
#include <stddef.h>
#include <string.h>
#include "part.h"
#ifdef __cplusplus
template <typename T> T twice(T x) { return x + x; }
#else
#define twice(x) ((x) + (x))
#endif
static inline size_t length(const char *s) { return strlen(s) + PART; }
#endif
`

const source = "size_t f(const char *s) { return twice(length(s)); }\n"

// maker is how a compiler makes a precompiled header, and how it is told to use it.
type maker struct {
	cc, language, suffix string
	image                string
	use                  []string
}

func makers(t *testing.T) (list []maker) {
	t.Helper()
	for _, m := range []maker{
		{"gcc", "c-header", ".c", "h.h.gch", []string{"-include", "h.h"}},
		{"g++", "c++-header", ".cc", "h.h.gch", []string{"-include", "h.h"}},
		{"gcc-11", "c-header", ".c", "h.h.gch", []string{"-include", "h.h"}},
		{"clang", "c-header", ".c", "h.h.pch", []string{"-include-pch", "h.h.pch"}},
		{"clang++", "c++-header", ".cc", "h.h.pch", []string{"-include", "h.h"}},
		{"clang-19", "c-header", ".c", "h.h.pch", []string{"-Xclang", "-include-pch", "-Xclang", "h.h.pch", "-Xclang", "-include", "-Xclang", "h.h"}},
	} {
		if _, err := exec.LookPath(m.cc); err != nil {
			t.Logf("%s is not installed (on Debian: make deps)", m.cc)
			continue
		}
		list = append(list, m)
	}
	if len(list) == 0 {
		need.Skipf(t, need.Tools, "no compiler")
	}
	return list
}

// TestSequences: whatever happens to a precompiled header, its parts and the options, a compile does what it does here. It runs
// on a host if the header is the one that its command made of the files as they are.
func TestSequences(t *testing.T) {
	s := start(t)
	for _, m := range makers(t) {
		t.Run(m.cc, func(t *testing.T) {
			s := &site{t, s.Farm, s.ctx, s.work}
			gcc := strings.Contains(m.image, ".gch")
			dir := filepath.Join(s.work, m.cc)
			file := func(name, text string) { s.write(filepath.Join(m.cc, name), text) }
			file("h.h", header)
			file("part.h", "#define PART 1\n")
			file("x"+m.suffix, source)
			compile := func(more ...string) []string {
				return append(append([]string{m.cc, "-O1", "-g", "-Winvalid-pch", "-MD"}, m.use...), append(more, "-c", "x"+m.suffix)...)
			}
			build := func(more string) {
				s.sh(dir, "$RD "+m.cc+" -O1 -g -x "+m.language+" "+more+" h.h -o "+m.image)
			}
			before := s.metric("rdistccd_images_made_total")
			build("")
			s.use("made", dir, remote, compile()...)
			s.use("again", dir, remote, compile("-DX=1")...)
			if made := s.metric("rdistccd_images_made_total") - before; made != 1 {
				t.Errorf("the host has made %v precompiled headers, want 1", made)
			}
			s.sh(dir, "cp "+m.image+" kept")
			file("part.h", "#define PART 2\n")
			s.use("a part has changed", dir, here, compile()...)
			build("")
			s.use("made again", dir, remote, compile()...)
			s.sh(dir, "touch -d @1000000000 part.h")
			s.use("a part has another time", dir, here, compile()...)
			build("")
			s.use("made of the part with that time", dir, remote, compile()...)
			valid := remote
			if !gcc { // clang says that the header was made with others, and fails
				valid = "local:diagnostics"
			}
			s.use("other options", dir, valid, compile("-O2", "-fno-common", "-ffast-math")...)
			build("-DPART_OF=3")
			s.use("made with other words", dir, remote, compile()...)
			s.sh(dir, "touch "+m.image)
			s.use("touched", dir, here, compile()...)
			build("")
			s.sh(dir, "cat kept > "+m.image)
			s.use("another one, made by the same command", dir, here, compile()...)
			build("")
			s.sh(dir, "mv "+m.image+" moved; cp moved "+m.image)
			s.use("a copy", dir, here, compile()...)
			s.sh(dir, "rm "+m.image+"; echo junk > "+m.image)
			s.use("junk", dir, here, compile()...)
			s.sh(dir, m.cc+" -O1 -g -x "+m.language+" h.h -o "+m.image)
			s.use("made without rdistcc", dir, here, compile()...)
			s.sh(dir, "rm "+m.image)
			if gcc {
				s.sh(dir, "mkdir "+m.image)
				s.sh(dir, "$RD "+m.cc+" -O1 -g -x "+m.language+" h.h -o "+m.image+"/one")
				s.use("a directory of them", dir, here, compile()...)
				s.sh(dir, "rm -r "+m.image)
				s.use("none", dir, remote, compile()...)
				file("y"+m.suffix, "int before;\n#include \"h.h\"\n"+source)
				build("")
				s.use("not first", dir, remote, m.cc, "-O1", "-c", "y"+m.suffix)
				file("z"+m.suffix, "#include \"h.h\"\n#include \"h.h\"\n"+source)
				s.use("named by a directive", dir, remote, m.cc, "-O1", "-g", "-c", "z"+m.suffix)
				file("w"+m.suffix, "#include \"h.h\"\n"+source)
				s.sh(dir, "mkdir -p i; mv h.h part.h i; rm "+m.image)
				s.sh(dir, "$RD "+m.cc+" -O1 -g -x "+m.language+" i/h.h -o h.h.gch")
				s.use("in another directory than its header", dir, remote, m.cc, "-O1", "-g", "-I.", "-Ii", "-c", "w"+m.suffix)
				s.sh(dir, "mv i/h.h i/part.h .; rm -r i h.h.gch")
			}
			// The same names in another project.
			other := filepath.Join(s.work, m.cc+"-2")
			s.sh(s.work, "cp -r "+dir+" "+other)
			s.write(filepath.Join(m.cc+"-2", "part.h"), "#define PART 7\n")
			build("")
			s.sh(other, "$RD "+m.cc+" -O1 -g -x "+m.language+" h.h -o "+m.image)
			s.use("one project", dir, remote, compile()...)
			s.use("the other project", other, remote, compile()...)
			s.use("the first one again", dir, remote, compile()...)
			// What the compiler has to say.
			file("x"+m.suffix, source+"int g(void) { }\nstatic int unused;\n")
			s.use("warnings", dir, remote, compile("-Wall")...)
			file("x"+m.suffix, source+"int g(void) { return length(; }\n")
			s.use("an error", dir, "local:diagnostics", compile()...)
			file("x"+m.suffix, source)
			// What writes it otherwise, or reads it otherwise, stays here.
			s.use("preprocessed", dir, "local:preprocess", append([]string{m.cc, "-E"}, append(m.use, "x"+m.suffix)...)...)
			if gcc {
				s.use("-fpch-preprocess", dir, here, compile("-fpch-preprocess")...)
			}
		})
	}
}

// TestCMake: a project of CMake's with precompiled headers compiles on hosts, and its objects are those of a plain build.
func TestCMake(t *testing.T) {
	for _, name := range []string{"cmake", "make"} {
		if _, err := exec.LookPath(name); err != nil {
			need.Skipf(t, need.Tools, "%s is not installed (on Debian: make deps)", name)
		}
	}
	s := start(t)
	s.write("CMakeLists.txt", `cmake_minimum_required(VERSION 3.16)
project(x C CXX)
add_library(one STATIC a.cc b.cc)
target_precompile_headers(one PRIVATE <cstddef> <string> "own.h")
add_library(two STATIC c.c)
target_precompile_headers(two PRIVATE <stdio.h> "own.h")
add_library(three STATIC d.cc)
target_precompile_headers(three REUSE_FROM one)
`)
	s.write("own.h", "static inline int own(int x) { return x + 1; }\n")
	for _, name := range []string{"a", "b", "d"} {
		s.write(name+".cc", "int "+name+"(const std::string &s) { return own(s.size()); }\n")
	}
	s.write("c.c", "int c(void) { puts(\"c\"); return own(1); }\n")
	for _, c := range [][2]string{{"gcc", "g++"}, {"clang", "clang++"}} {
		for _, generator := range []string{"Unix Makefiles", "Ninja"} {
			if _, err := exec.LookPath("ninja"); err != nil && generator == "Ninja" {
				continue
			}
			if _, err := exec.LookPath(c[1]); err != nil {
				t.Logf("%s is not installed (on Debian: make deps)", c[1])
				continue
			}
			t.Run(c[0]+" "+generator, func(t *testing.T) {
				s := &site{t, s.Farm, s.ctx, s.work}
				configure := "rm -rf build; cmake -G '" + generator + "' -S . -B build -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_C_COMPILER=" + c[0] + " -DCMAKE_CXX_COMPILER=" + c[1]
				s.sh(s.work, configure+"; cmake --build build")
				want := s.objects()
				s.sh(s.work, configure+` -DCMAKE_C_COMPILER_LAUNCHER="$RD" -DCMAKE_CXX_COMPILER_LAUNCHER="$RD"; RDISTCC_REPORT=$PWD/report cmake --build build`)
				got := s.objects()
				if len(want) != 4 || len(got) != 4 {
					t.Errorf("%d and %d objects, want 4", len(want), len(got))
				}
				for name := range want {
					if got[name] != want[name] {
						t.Errorf("%s differs from that of a plain build", name)
					}
				}
				report, err := os.ReadFile(filepath.Join(s.work, "report"))
				if err != nil {
					t.Fatal(err)
				}
				// The first compiles may run here, because two are taken at a time and hosts get to know how long they take.
				if n := strings.Count(string(report), remote); n != 4 || strings.Count(string(report), here) != 2 {
					t.Errorf("%d of 4 compiles ran on hosts: %s", n, report)
				}
				s.sh(s.work, "rm report; sed -i 's/x + 1/1 + x/' own.h; RDISTCC_REPORT=$PWD/report cmake --build build")
				if report, _ := os.ReadFile(filepath.Join(s.work, "report")); strings.Count(string(report), remote) != 4 {
					t.Errorf("after a change of a header: %s", report)
				}
				s.sh(s.work, "rm report; sed -i 's/1 + x/x + 1/' own.h")
			})
		}
	}
}
