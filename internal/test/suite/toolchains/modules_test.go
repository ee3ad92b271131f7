package toolchains

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// TestModulesProject: a CMake project with C++ modules is built on hosts without compilers, and all that its compiles write is
// what they write without rdistcc. It needs a CMake and compilers that can find out by themselves in which order modules are to be
// compiled, so it is skipped on older systems; "make modules ROOT=DIR" runs it in another one.
func TestModulesProject(t *testing.T) {
	part.Skip(t)
	if out, err := exec.Command("cmake", "--version").Output(); err != nil || !atLeast(string(out), "cmake version ", 3, 28) {
		t.Skip("no CMake 3.28 or later")
	}
	if _, err := exec.LookPath("ninja"); err != nil {
		t.Skip("no ninja")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: chroot")
	}
	for _, c := range []struct{ cxx, scanner string }{{"g++-14", ""}, {"g++-15", ""}, {"g++-16", ""}, {"clang++-19", "clang-scan-deps-19"},
		{"clang++-22", "clang-scan-deps-22"}} {
		t.Run(c.cxx, func(t *testing.T) {
			for _, tool := range []string{c.cxx, c.scanner} {
				if _, err := exec.LookPath(tool); tool != "" && err != nil {
					t.Skipf("no %s", tool)
				}
			}
			s := prepare(t, bare)
			s.inRoot(nil)
			s.Vars = append(s.Vars, "SOURCE_DATE_EPOCH=1", "NINJA_STATUS=")
			a, err := txtar.ParseFile("testdata/modules.txtar")
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range a.Files {
				s.write(f.Name, string(f.Data))
			}
			if got := s.run("toolchain", "send", s.Daemons[0].Addr, c.cxx); got.status != 0 {
				t.Fatal(got.out)
			}
			for _, how := range []string{"-DCMAKE_BUILD_TYPE=", "-DCMAKE_BUILD_TYPE=RelWithDebInfo"} {
				built, report := s.buildModules(c.cxx, how, s.Wrapper)
				plain, _ := s.buildModules(c.cxx, how, "")
				counts := map[string]int{}
				for _, line := range report {
					where, _, _ := strings.Cut(line, ":")
					if where != "remote" {
						where = line
					}
					counts[where]++
				}
				differ := []string{}
				for name, content := range plain {
					if !bytes.Equal(content, built[name]) && !s.makes(name, built[name]) {
						differ = append(differ, name)
					}
				}
				slices.Sort(differ)
				t.Logf("%s %s: %d files, compiles: %v", c.cxx, how, len(plain), counts)
				if len(differ) > 0 || len(built) != len(plain) {
					t.Errorf("%s: %d files, plain %d; these differ: %s", how, len(built), len(plain), differ)
				}
				if len(counts) != 1 || counts["remote"] == 0 {
					t.Errorf("%s: not all compiles ran on the host: %v", how, slices.Sorted(maps.Keys(counts)))
				}
			}
		})
	}
}

// makes reports whether the plain build also makes this content of a compiled module of clang's, which are not always the same.
func (s *site) makes(name string, content []byte) bool {
	if filepath.Ext(name) != ".pcm" {
		return false
	}
	for range 20 {
		if err := os.Remove(name); err != nil {
			s.Fatal(err)
		}
		cmd := exec.CommandContext(s.ctx, "ninja", "-C", "build")
		cmd.Dir, cmd.Env = s.work, append(s.Env(), "PWD="+s.work)
		if out, err := cmd.CombinedOutput(); err != nil {
			s.Fatalf("ninja %s: %v\n%s", name, err, out)
		}
		if again, err := os.ReadFile(name); err == nil && bytes.Equal(again, content) {
			return true
		}
	}
	return false
}

// atLeast reports whether what a program says of its version is at least major.minor.
func atLeast(said, before string, major, minor int) bool {
	_, v, found := strings.Cut(said, before)
	parts := strings.SplitN(v, ".", 3)
	if !found || len(parts) < 3 {
		return false
	}
	a, err := strconv.Atoi(parts[0])
	b, err2 := strconv.Atoi(parts[1])
	return err == nil && err2 == nil && (a > major || a == major && b >= minor)
}

// buildModules builds the project in a new directory, whose name is always the same, with a program before the compiler. It returns
// what compiles have written, by name, and what rdistcc reported.
func (s *site) buildModules(cxx, how, launcher string) (files map[string][]byte, report []string) {
	s.Helper()
	dir := filepath.Join(s.work, "build")
	if err := os.RemoveAll(dir); err != nil {
		s.Fatal(err)
	}
	name := filepath.Join(s.work, "report")
	run := func(args ...string) {
		s.Helper()
		cmd := exec.CommandContext(s.ctx, args[0], args[1:]...)
		cmd.Dir, cmd.Env = s.work, append(s.Env(), "PWD="+s.work, "RDISTCC_REPORT="+name)
		if out, err := cmd.CombinedOutput(); err != nil {
			s.Fatalf("%s: %v\n%s", args, err, out)
		}
	}
	run("cmake", "-G", "Ninja", "-S", ".", "-B", "build", how, "-DCMAKE_CXX_COMPILER="+cxx, "-DCMAKE_CXX_COMPILER_LAUNCHER="+launcher)
	_ = os.Remove(name) // CMake's questions
	run("ninja", "-C", "build", "-d", "keepdepfile", "-j", "2")
	run("build/app")
	files = make(map[string][]byte)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		switch filepath.Ext(path) {
		case ".o", ".pcm", ".gcm", ".ddi", ".d":
			if files[path], err = os.ReadFile(path); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || len(files) == 0 {
		s.Fatal(fmt.Sprint(len(files), " files: "), err)
	}
	text, _ := os.ReadFile(name) // the plain build has none
	return files, strings.Fields(string(text))
}

// TestImportStd: the C++ library's own module, and what imports it, are compiled on a host without compilers, and all that is written
// is what the compiler alone writes.
func TestImportStd(t *testing.T) {
	part.Skip(t)
	sources, _ := filepath.Glob("/usr/lib/llvm-[12][0-9]/share/libc++/v1/std.cppm")                                      // the pattern is well formed
	sources = slices.DeleteFunc(sources, func(name string) bool { return strings.HasPrefix(name, "/usr/lib/llvm-23/") }) // whose modules stay here
	if len(sources) == 0 {
		t.Skip("no libc++ with a module (on Debian: libc++-19-dev)")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: chroot")
	}
	for _, source := range sources {
		version := strings.TrimPrefix(strings.Split(source, "/")[3], "llvm-")
		t.Run(version, func(t *testing.T) {
			if _, err := exec.LookPath("clang++-" + version); err != nil {
				t.Skip("no clang++-" + version)
			}
			importStd(t, "clang++-"+version, source)
		})
	}
}

// importStd compiles libc++'s module and what imports it.
func importStd(t *testing.T, compiler, source string) {
	const buffers = "buffers: {slot: 128MiB}\n"
	s := prepare(t, bare+buffers)
	if err := s.AddSettings("farm.yaml", buffers); err != nil {
		t.Fatal(err)
	}
	s.inRoot(nil)
	s.write("main.cc", "import std;\nint main() { std::println(\"{}\", std::vector<int>{1, 2}.size()); }\n")
	if got := s.run("toolchain", "send", s.Daemons[0].Addr, compiler); got.status != 0 {
		t.Fatal(got.out)
	}
	flags := []string{compiler, "-std=c++23", "-stdlib=libc++", "-Wno-reserved-module-identifier"}
	for _, c := range []struct {
		words string
		files []string
	}{
		{"-c " + source + " -fmodule-output=std.pcm -o std.o", []string{"std.o", "std.pcm"}},
		{"--precompile " + source + " -o std.pcm", []string{"std.pcm"}},
		{"-Wno-unused-command-line-argument -c std.pcm -o std.o", []string{"std.o"}},
		{"-fmodule-file=std=std.pcm -O2 -c main.cc -o main.o", []string{"main.o"}},
		{"-fmodule-file=std=std.pcm -g -c main.cc -o main.o", []string{"main.o"}},
	} {
		args := append(slices.Clone(flags), strings.Fields(c.words)...)
		got := s.run(args...)
		if got.status != 0 || !strings.HasPrefix(got.where, "remote:") {
			t.Errorf("%s: exit %d, %s: %s", c.words, got.status, got.where, got.out)
		}
		made := map[string][]byte{}
		for _, name := range c.files {
			made[name], _ = os.ReadFile(filepath.Join(s.work, name))
			t.Logf("%s: %s, %s has %d bytes", c.words, got.where, name, len(made[name]))
		}
		cmd := exec.CommandContext(s.ctx, args[0], args[1:]...)
		cmd.Dir, cmd.Env = s.work, append(s.Env(), "PWD="+s.work)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, name := range c.files {
			if want, err := os.ReadFile(filepath.Join(s.work, name)); err != nil || !bytes.Equal(made[name], want) {
				t.Errorf("%s: %s differs from that of the plain command, %v", c.words, name, err)
			}
		}
	}
}
