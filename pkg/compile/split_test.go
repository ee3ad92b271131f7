package compile

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	turns "github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// drivers are the compilers here that the tests of Split ask, C and C++.
func drivers(t *testing.T) map[string]Driver {
	t.Helper()
	all := map[string]Driver{
		"gcc": {}, "gcc-11": {}, "g++": {CXX: true}, "aarch64-linux-gnu-gcc": {},
		"clang": {Family: Clang}, "clang-13": {Family: Clang}, "clang-19": {Family: Clang}, "clang++": {Family: Clang, CXX: true},
	}
	for name := range all {
		if _, err := exec.LookPath(name); err != nil {
			t.Logf("no %s here", name)
			delete(all, name)
		}
	}
	return all
}

// steps is what a driver would run for a command, and what it says first.
type steps struct {
	compiles []string // cc1 and as, one string a source
	link     string
	says     []string
}

var (
	tempName = regexp.MustCompile(`/tmp/[A-Za-z0-9_+-]*\.(o|s|i|res)\b`)
	// What names the files that a compile may write beside the object: none of
	// them does, or Split had not let it.
	sideNames = regexp.MustCompile(` "?-(dumpdir|dumpbase|dumpbase-ext)"? [^ ]+` +
		// The target that cc1 would take by itself.
		`| -MQ a\.o` +
		// Means something on Darwin only; a word without effect (-static) is said to be one.
		`| "-static-define"`)
	depName   = regexp.MustCompile(`-(MM?D) \S+ -MF (\S+)`)
	collected = regexp.MustCompile(`^(COLLECT_|COMPILER_PATH|LIBRARY_PATH|OFFLOAD_)`)
)

// stepsOf asks a driver what it would do.
func stepsOf(t *testing.T, dir, cc string, argv []string) (s steps) {
	t.Helper()
	cmd := exec.Command(cc, append([]string{"-###"}, argv...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TMPDIR=/tmp")
	out, _ := cmd.CombinedOutput() // it says so
	for line := range strings.SplitSeq(string(out), "\n") {
		line = strings.TrimSpace(line)
		line = strings.ReplaceAll(line, dir+"/temp.o", "/tmp/temp.o")
		words := tempName.ReplaceAllString(line, "TEMP.$1")
		words = depName.ReplaceAllString(sideNames.ReplaceAllString(words, ""), "-$1 $2")
		tool, _, _ := strings.Cut(line, " ")
		tool = filepath.Base(strings.Trim(tool, `"`))
		switch {
		case collected.MatchString(line):
		case strings.Contains(line, "warning: ") || strings.Contains(line, "error: "):
			s.says = append(s.says, line)
		case tool == "cc1" || tool == "cc1plus" || strings.Contains(line, `"-cc1"`):
			s.compiles = append(s.compiles, words)
		case tool == "as" || strings.HasSuffix(tool, "-as"):
			if n := len(s.compiles); n > 0 {
				s.compiles[n-1] += "\n" + words
			}
		case tool == "collect2" || tool == "ld" || strings.HasPrefix(tool, "ld.") || strings.HasSuffix(tool, "-ld"):
			s.link = words
		}
	}
	return s
}

// wantSplit compares what a driver does for a command with what it does for the
// commands that Split makes of it. It reports whether there were any.
func wantSplit(t *testing.T, dir, cc string, d Driver, argv []string) bool {
	t.Helper()
	s := Split(argv, d)
	if s == nil {
		return false
	}
	whole := stepsOf(t, dir, cc, argv)
	if slices.ContainsFunc(whole.says, func(line string) bool { return strings.Contains(line, "error: ") }) {
		return true // the compile of a part has the error too, or the link
	}
	var parts steps
	var objects []string
	for i := range s.Sources {
		objects = append(objects, dir+"/temp.o")
		unit := stepsOf(t, dir, cc, s.Unit(i, objects[i]))
		parts.compiles = append(parts.compiles, unit.compiles...)
		if len(unit.says) > 0 {
			return true // printed by the compile, so that the command runs whole
		}
	}
	if s.Links {
		link := stepsOf(t, dir, cc, s.Link(objects))
		parts.link, parts.says = link.link, link.says
	}
	if got, want := strings.Join(parts.compiles, "\n"), strings.Join(whole.compiles, "\n"); got != want {
		t.Errorf("%s %q: compiles\n%s\nwant\n%s", cc, argv, got, want)
	}
	if parts.link != whole.link {
		t.Errorf("%s %q: links\n%s\nwant\n%s", cc, argv, parts.link, whole.link)
	}
	if got, want := strings.Join(parts.says, "\n"), strings.Join(whole.says, "\n"); got != want {
		t.Errorf("%s %q: says\n%s\nwant\n%s", cc, argv, got, want)
	}
	return true
}

// splitDir is a directory with files that drivers look for.
func splitDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Mkdir(dir+"/d", 0o755))
	for _, name := range []string{"a.c", "b.c", "c.cpp", "d/a.c", "x", "a.i", "b.o", "lib.a", "t.ld", "h.h", "temp.o"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("int a;\n"), 0o644))
	}
	return dir
}

// TestSplitAsDriver: the compiles and the link that Split makes of a command are
// those that the driver itself would start.
func TestSplitAsDriver(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the driver hundreds of times")
	}
	dir, today := splitDir(t), turns.Of(t)
	for cc, d := range drivers(t) {
		for _, c := range []struct {
			words string
			whole string // families that leave the command whole: "", "gcc", "clang", "g++", "not gcc", "all"
		}{
			{"a.c -o prog", ""},
			{"a.c", ""},
			{"a.c b.c -o prog -lm", ""},
			{"-O2 -g -Wall -I. -DX=1 a.c d/a.c b.o lib.a -L. -lm -o d/prog", ""},
			{"-c a.c b.c", ""},
			{"-S -O2 a.c c.cpp", ""},
			{"-c a.c b.c -lm", "clang"},
			{"-c -Wl,-x a.c b.c", "clang"},
			{"-c -x c a.c x", "g++"},
			{"-x c a.c x -x none b.o -o prog", "g++"},
			{"-x c++ x -x none b.o -o prog", "g++"},
			{"-x c++ x -o prog", ""},
			{"-xc x -x c++ b.c -o prog", "g++"},
			{"-x none a.c", "g++"},
			{"-MD a.c b.c -o prog", ""},
			{"-MMD -MP a.c", "gcc"},
			{"-MMD -MP a.c d/a.c", "gcc"}, // the name depends on the version
			{"-MMD -MP a.c b.o", "gcc"},
			{"-MD -MF deps a.c -o prog.exe", ""},
			{"-MD -MT t a.c -o d.x", ""},
			{"-MD -MQ $t a.c -o d/prog", ""},
			{"-shared -fPIC a.c lib.a -o liba.so -Wl,-soname,a.so.1", ""},
			{"-static -pthread a.c -o prog", ""},
			{"-nostdlib -T t.ld -e main -u f a.c -Wl,-Map,map -o prog", ""},
			{"-r a.c b.c -o all", ""},
			{"-fopenmp -pg -Wa,--noexecstack a.c -o prog", ""},
			{"-Xlinker -x -Xassembler -L -rdynamic -s a.c -pie", ""},
			{"-static-libgcc -static-libstdc++ c.cpp", ""},
			{"-fuse-ld=bfd -z now -nostartfiles -no-pie a.c", ""},
			{"-Xpreprocessor -DX -Wp,-DY a.c", ""},
			{"-fsanitize=undefined a.c", ""},
			{"a.i -o prog", ""},

			{"a.c -x c", "all"},
			{"a.c -x none", "all"}, // clang 19 says that it has no effect
			{"-x c x -x none -lm -o prog", "not gcc"},
			{"-c a.c b.o", "all"},
			{"-c a.c", "all"},
			{"-c a.c b.c -o x.o", "all"},
			{"a.c -o a.c", "all"},
			{"a.c -o -", "all"},
			{"a.c - -o prog", "all"},
			{"-x c - -o prog", "all"},
			{"a.c -o x -o y", "all"},
			{"a.c s.S -o prog", "all"},
			{"b.o -o prog", "all"},
			{"h.h a.c", "all"},
			{"-fstack-usage a.c", "all"},
			{"-flto a.c", "all"},
			{"--coverage a.c", "all"},
			{"-gsplit-dwarf -g a.c", "all"},
			{"-save-temps a.c", "all"},
			{"-Wp,-MD,x.d a.c -o prog", "all"},
			{"-fno-such-flag a.c", "all"},
			{"-v a.c", "all"},
			{"-E a.c b.c", "all"},
			{"-M a.c b.c", "all"},
			{"-MD -MF - a.c", "all"},
			{"@no-such-file a.c", "all"},
			{"a.c /dev/stdin", "all"},
			{"a.c -o", "all"},
		} {
			if !today.Has(cc + " " + c.words) {
				continue
			}
			whole := c.whole == "all" || c.whole == "gcc" && d.Family == GCC || c.whole == "g++" && d.CXX && d.Family == GCC ||
				c.whole == "clang" && d.Family == Clang || c.whole == "not gcc" && (d.CXX || d.Family == Clang)
			if split := wantSplit(t, dir, cc, d, strings.Fields(c.words)); split == whole {
				t.Errorf("%s %s: split %v, want %v", cc, c.words, split, !whole)
			}
		}
	}
}

// TestSplitEveryOption does the same with every row of the option table: none
// changes a compile because there is a link, and none is a word without effect
// in a link that was not one in the command.
func TestSplitEveryOption(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the driver for every option")
	}
	dir, today := splitDir(t), turns.Of(t)
	for _, cc := range []string{"gcc", "clang"} {
		d, ok := drivers(t)[cc]
		if !ok {
			continue
		}
		for i := range table {
			row := &table[i]
			for _, words := range [][]string{{row.name}, {row.name, "x"}, {row.name + "x"}, {row.name + "1"}} {
				if len(words) > 1 != (row.form == separate || row.form == either) || row.form == alone && words[0] != row.name {
					continue
				}
				if !today.Has(cc + row.name) {
					continue
				}
				argv := append(slices.Clone(words), "a.c", "-o", "prog")
				wantSplit(t, dir, cc, d, argv)
			}
		}
	}
}

// TestSplitNotWhatIsAppendedTo: lines would be there twice if the whole command had to run here after all.
func TestSplitNotWhatIsAppendedTo(t *testing.T) {
	for words, want := range map[string]bool{"-O3 -c a.c b.c": true, "-O3 -fopt-info-vec -c a.c b.c": true, "-O3 -fopt-info-vec=v.txt -c a.c b.c": false} {
		if s := Split(strings.Fields(words), Driver{}); (s != nil) != want {
			t.Errorf("%s: %v", words, s)
		}
	}
}

// TestSplitLibraries: a unit of a command by which g++ links is told of the libraries that g++ adds, as gcc 16 tells the compiler proper.
func TestSplitLibraries(t *testing.T) {
	for line, want := range map[string]string{
		"-g a.cc b.cc -o p":          "-c -o /o -g a.cc -lstdc++ -lm",
		"-lm -g a.cc -lx -lm -o p":   "-c -o /o -lm -g a.cc -lx -lstdc++ -lm",
		"-g a.cc -l m -o p":          "-c -o /o -g a.cc -lstdc++ -lm",
		"-g a.cc -lstdc++ -o p":      "-c -o /o -g a.cc -lstdc++ -lstdc++ -lm",
		"-g -r a.cc -o p.o":          "-c -o /o -g -r a.cc",
		"-g -nostdlib a.cc -lm":      "-c -o /o -g -nostdlib a.cc -lm",
		"-g -nostdlib++ a.cc -lm":    "-c -o /o -g -nostdlib++ a.cc -lm",
		"-g -nodefaultlibs a.cc -lm": "-c -o /o -g -nodefaultlibs a.cc -lm",
	} {
		s := Split(strings.Fields(line), Driver{CXX: true})
		if s == nil {
			t.Errorf("%s is not taken apart", line)
		} else if got := strings.Join(s.Unit(0, "/o"), " "); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
	for _, d := range []Driver{{}, {Family: Clang, CXX: true}} {
		if got := Split([]string{"-g", "a.cc", "-o", "p"}, d).Unit(0, "/o"); slices.Contains(got, "-lstdc++") {
			t.Errorf("%+v: %q", d, got)
		}
	}
	if got := Split([]string{"-c", "a.cc", "b.cc"}, Driver{CXX: true}).Unit(0, ""); slices.Contains(got, "-lstdc++") {
		t.Errorf("without a link: %q", got)
	}
}
