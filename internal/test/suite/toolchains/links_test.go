package toolchains

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/debsrc"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// wanted lists the compilers that links of real programs are made with.
var wanted = flag.String("linkers", "gcc,gcc-11,gcc-12,gcc-13,gcc-14,gcc-15,gcc-16,clang-21,clang-22", "compilers that real programs are linked with, by comma")

// realProgram is a program that is linked with LTO.
type realProgram struct {
	source, module string   // a source package of Debian's; or a Go module that carries the sources
	dir            string   // of the sources, below that
	globs          []string // sources, there
	without        []string // but these
	flags, libs    []string
	main           string // a further source; "": there is one
}

// TestMain is a distributor too: lld starts it with the name of a file alone, and it runs the compiles in there. A program that lld
// compiles in its own process may differ from that, whatever the distributor.
func TestMain(m *testing.M) {
	if len(os.Args) != 2 || !strings.HasSuffix(os.Args[1], ".json") {
		os.Exit(m.Run())
	}
	text, err := os.ReadFile(os.Args[1])
	var link struct {
		Common struct{ Args []string }
		Jobs   []struct{ Args []string }
	}
	if err == nil {
		err = json.Unmarshal(text, &link)
	}
	for i := 0; i < len(link.Jobs) && err == nil; i++ {
		words := slices.Concat(link.Common.Args, link.Jobs[i].Args)
		err = exec.Command(words[0], words[1:]...).Run()
	}
	if err != nil {
		panic(err)
	}
}

// TestLinkLua, TestLinkWebP, TestLinkZstd: real programs, linked with LTO by each gcc, and by each clang whose lld knows of
// distributors, are those of the plain link, byte for byte: compiled by a host that has nothing but what it was sent, and from the
// cache.
func TestLinkLua(t *testing.T) {
	part.Skip(t)
	linkProgram(t, realProgram{source: "lua5.4", dir: "src", globs: []string{"*.c"}, without: []string{"luac.c"},
		flags: []string{"-std=gnu99", "-DLUA_USE_POSIX"}, libs: []string{"-lm"}})
}

func TestLinkWebP(t *testing.T) {
	part.Skip(t)
	linkProgram(t, realProgram{module: "github.com/chai2010/webp@v1.4.0", dir: "internal/libwebp-1.4.0",
		globs: []string{"src/d*/*.c", "src/utils/*.c", "sharpyuv/*.c", "imageio/*.c", "src/enc/*.c", "src/mux/*.c", "examples/dwebp.c", "examples/example_util.c"},
		flags: []string{"-I.", "-Isrc", "-DWEBP_USE_THREAD"}, libs: []string{"-lm", "-pthread"}})
}

func TestLinkZstd(t *testing.T) {
	part.Skip(t)
	linkProgram(t, realProgram{module: "github.com/DataDog/zstd@v1.5.7", globs: []string{"*.c"},
		flags: []string{"-I.", "-DZSTD_LEGACY_SUPPORT=0", "-DZSTD_MULTITHREAD=1", "-DZSTD_DISABLE_ASM=1"}, libs: []string{"-pthread"},
		main: "#include <stdio.h>\n#include \"zstd.h\"\nint main(int argc, char **argv)\n{\n\tchar to[4096], back[4096];\n" +
			"\tsize_t n = ZSTD_compress(to, sizeof to, argv[0], 3, 19);\n\treturn ZSTD_isError(n) || ZSTD_decompress(back, sizeof back, to, n) != 3;\n}\n"})
}

// linkProgram links a program with each compiler that is here.
func linkProgram(t *testing.T, p realProgram) {
	if testing.Short() {
		t.Skip("links real programs")
	}
	had := map[string]bool{} // gcc is one of the others
	today, name, all := part.Of(t), t.Name(), strings.Split(*wanted, ",")
	for i, cc := range all {
		t.Run(cc, func(t *testing.T) {
			if n := (len(all) + 1) / 2; !today.Whole() && i%n != today.Way(name, n) {
				t.Skip("its turn is another day")
			}
			path, err := exec.LookPath(cc)
			if err != nil {
				t.Skip(err) // a machine has some of them
			}
			file, err := filepath.EvalSymlinks(path)
			if err != nil {
				t.Fatal(err)
			}
			if had[file] {
				t.Skip("it has another name too")
			}
			had[file] = true
			number, clang := strings.CutPrefix(cc, "clang-")
			lld := "/usr/lib/llvm-" + number + "/bin/ld.lld"
			if _, err := os.Stat(lld); clang && err != nil {
				t.Skip(err)
			}
			s := prepare(t, bare)
			dir := s.fetch(p)
			s.Vars = append(s.Vars, "RDISTCC_CACHE=on")
			if os.Geteuid() == 0 {
				s.inRoot(nil)
			} else {
				s.start()
			}
			if got := s.run("toolchain", "send", s.Daemons[0].Addr, cc); got.status != 0 {
				t.Fatal(got.out)
			}
			words := []string{cc, "-O2", "-g", "-flto=auto"}
			if clang {
				words[3] = "-flto=thin"
			}
			objects := s.modules(p, dir, words)
			link := slices.Concat(words, objects, p.libs, []string{"-o", "x.o"})
			plain := link
			if clang {
				distributor := filepath.Join(s.Dir, "rdistcc-dtlto")
				if err := os.Symlink(s.Wrapper, distributor); err != nil {
					t.Fatal(err)
				}
				own, err := os.Executable()
				if err != nil {
					t.Fatal(err)
				}
				link = slices.Concat(link, []string{"-fuse-ld=" + lld, "-Wl,--thinlto-remote-compiler=" + path})
				plain = slices.Concat(link, []string{"-fthinlto-distributor=" + own})
				link = slices.Concat(link, []string{"-fthinlto-distributor=" + distributor})
			}
			parts := 0
			for _, where := range []string{"remote:", "cached:"} {
				got := s.run(link...)
				n, all := strings.Count(got.where, where), len(strings.Fields(got.where))-strings.Count(got.where, "local:link")
				if got.status != 0 || got.out != "" || n == 0 || n != all || parts > 0 && n != parts {
					t.Fatalf("%s exit %d, %s: %s%s", where, got.status, got.where, got.out, s.log())
				}
				parts = n
				s.equal(plain...)
			}
			t.Logf("%s: %d parts by the host, then from the cache; equal", cc, parts)
		})
	}
}

// fetch lays a program's sources into the working directory, and returns where they are, relative to that.
func (s *site) fetch(p realProgram) (dir string) {
	s.Helper()
	top := filepath.Join(s.work, "src")
	if p.source != "" {
		a, err := debsrc.New("")
		if err == nil {
			err = a.Unpack(s.ctx, p.source, top)
		}
		if err != nil {
			s.Skipf("no sources: %v", err) // they are not among what a machine is said to have
		}
		return filepath.Join("src", p.dir)
	}
	out, err := exec.CommandContext(s.ctx, "go", "mod", "download", "-json", p.module).Output()
	var m struct{ Dir string }
	if jerr := json.Unmarshal(out, &m); err != nil || jerr != nil || m.Dir == "" {
		s.Skipf("no sources: go mod download %s: %v %s", p.module, err, out)
	}
	if out, err := exec.CommandContext(s.ctx, "sh", "-c", `cp -r "$0" "$1" && chmod -R u+w "$1"`, m.Dir, top).CombinedOutput(); err != nil {
		s.Fatalf("%v: %s", err, out)
	}
	return filepath.Join("src", p.dir)
}

// modules compiles a program's sources in dir without rdistcc, and returns the names of the objects.
func (s *site) modules(p realProgram, dir string, words []string) (objects []string) {
	s.Helper()
	if p.main != "" {
		s.write(filepath.Join(dir, "main.c"), p.main)
	}
	for _, glob := range p.globs {
		found, err := filepath.Glob(filepath.Join(s.work, dir, glob))
		if err != nil || len(found) == 0 {
			s.Fatalf("%s: no sources, %v", glob, err)
		}
		for _, name := range found {
			name, err := filepath.Rel(filepath.Join(s.work, dir), name)
			if err != nil {
				s.Fatal(err)
			}
			if slices.Contains(p.without, name) || slices.Contains(objects, name) {
				continue
			}
			objects = append(objects, name)
		}
	}
	for i, name := range objects {
		objects[i] = filepath.Join(dir, strings.TrimSuffix(name, ".c")+".o")
		cmd := exec.CommandContext(s.ctx, words[0], slices.Concat(words[1:], p.flags, []string{"-c", name, "-o", strings.TrimSuffix(name, ".c") + ".o"})...)
		cmd.Dir, cmd.Env = filepath.Join(s.work, dir), append(s.Env(), "PWD="+filepath.Join(s.work, dir))
		if out, err := cmd.CombinedOutput(); err != nil {
			s.Fatalf("%s: %v: %s", name, err, bytes.TrimSpace(out))
		}
	}
	return objects
}
