package images

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// units is how many sources the project of the benchmark has.
const units = 12

// BenchmarkCMake builds a project with CMake and rdistcc, with precompiled headers and without, in turns. Each build is from
// scratch, and no result is taken from the cache.
func BenchmarkCMake(b *testing.B) {
	for _, name := range []string{"cmake", "ninja", "g++", "clang++"} {
		if _, err := exec.LookPath(name); err != nil {
			need.Skipf(b, need.Tools, "%s is not installed (on Debian: make deps)", name)
		}
	}
	s := start(b)
	s.Vars = append(s.Vars, "RDISTCC_CACHE=off")
	project := "cmake_minimum_required(VERSION 3.16)\nproject(x CXX)\nadd_library(x STATIC"
	for i := range units {
		s.write(fmt.Sprintf("u%d.cc", i), fmt.Sprintf(`#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <vector>
int f%d(std::vector<std::string> v) { std::map<int, std::string> m; std::sort(v.begin(), v.end()); std::cout << v[0]; return v.size() + m.size(); }
`, i))
		project += fmt.Sprintf(" u%d.cc", i)
	}
	s.write("CMakeLists.txt", project+")\ntarget_precompile_headers(x PRIVATE <algorithm> <functional> <iostream> <map> <memory> <regex> <string> <vector>)\n")
	for _, cc := range []string{"g++", "clang++"} {
		b.Run(cc, func(b *testing.B) {
			s := &site{b, s.Farm, s.ctx, s.work}
			const with, without = 0, 1
			var took [2][]time.Duration
			b.ResetTimer()
			for round := 0; b.Loop(); round++ {
				for i := range 2 {
					kind := (round + i) % 2
					s.sh(s.work, "rm -rf build report; cmake -G Ninja -S . -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="+cc+
						` -DCMAKE_CXX_COMPILER_LAUNCHER="$RD" -DCMAKE_DISABLE_PRECOMPILE_HEADERS=`+[]string{"OFF", "ON"}[kind])
					began := time.Now()
					s.sh(s.work, "RDISTCC_REPORT=$PWD/report ninja -C build -j4")
					took[kind] = append(took[kind], time.Since(began))
					report, err := os.ReadFile(filepath.Join(s.work, "report"))
					if n := strings.Count(string(report), remote); err != nil || n < units-1 {
						b.Fatalf("%d of %d compiles ran on hosts: %s, %v", n, units, report, err)
					}
				}
			}
			median := func(d []time.Duration) float64 {
				slices.Sort(d)
				return d[len(d)/2].Seconds()
			}
			b.ReportMetric(median(took[with]), "s/with")
			b.ReportMetric(median(took[without]), "s/without")
			b.ReportMetric(median(took[with])/median(took[without]), "ratio")
		})
	}
}
