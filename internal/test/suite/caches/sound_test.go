package caches

import (
	"bytes"
	"flag"
	"fmt"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	soundSeed  = flag.Uint64("sound.seed", 1, "first seed of TestSecondStepIsSound")
	soundTrees = flag.Int("sound.trees", 3, "number of its trees")
)

// TestSecondStepIsSound changes random trees in random ways, and compiles after each change. Whatever the cache answers is what
// the plain compiler writes. The trees have headers in several directories, behind conditions and tests for files, that are
// links, copies of one another and read once; the changes include those that only names, links and times show.
func TestSecondStepIsSound(t *testing.T) {
	part.Skip(t)
	compilers(t, func(t *testing.T, cc string) {
		s := start(t, "")
		ran := make(map[string]int)
		for i := range *soundTrees {
			seed := *soundSeed + uint64(i)
			dir := filepath.Join(s.Dir, "work", strconv.FormatUint(seed, 10))
			x := &randomTree{site: s, Rand: rand.New(rand.NewPCG(seed, 7)), cc: cc, dir: dir, ran: ran}
			s.work = dir
			x.run(60)
			if t.Failed() {
				t.Fatalf("seed %d: go test ./internal/test/suite/caches -run %s -sound.seed %d -sound.trees 1", seed, t.Name(), seed)
			}
		}
		n, jobs := s.second(), s.jobs()
		t.Logf("%v hits by the second step, %v compiles on the host; %v", n, jobs, ran)
		if least := float64(*soundTrees); n < least {
			t.Errorf("%v hits by the second step, want at least %v", n, least)
		}
	})
}

// randomTree is a tree of files.
type randomTree struct {
	*site
	*rand.Rand
	cc    string
	dir   string
	saved []saved  // earlier contents of files
	log   []string // what was changed
	ran   map[string]int
}

type saved struct{ name, text string }

const (
	treeHeaders = 8 // that are included
	treeAsked   = 3 // with numbers from treeHeaders on, that are only asked for
	treeDirs    = 3
	lastDir     = "d2" // it has all of them, so that most compiles succeed
)

// name returns the name of a header in one of the directories.
func (x *randomTree) name() string {
	return fmt.Sprintf("d%d/h%d.h", x.IntN(treeDirs), x.IntN(treeHeaders))
}

// text returns the text of a file that includes headers with greater numbers than from.
func (x *randomTree) text(from int) string {
	var b strings.Builder
	include := func() string {
		if from+1 >= treeHeaders {
			return "__asm__(\".byte 1\");\n"
		}
		name := fmt.Sprintf("h%d.h", from+1+x.IntN(treeHeaders-from-1))
		if x.IntN(6) == 0 {
			return "#import \"" + name + "\"\n"
		}
		if x.IntN(2) == 0 {
			return "#include <" + name + ">\n"
		}
		return "#include \"" + name + "\"\n"
	}
	macro := func() string { return fmt.Sprintf("M%d", x.IntN(4)) }
	if x.IntN(4) == 0 {
		b.WriteString("#pragma once\n")
	}
	if x.IntN(24) == 0 {
		b.WriteString("#pragma GCC system_header\n")
	}
	fmt.Fprintf(&b, "__asm__(\".byte %d, %d\");\n", x.IntN(256), x.IntN(256)) // few are equal by chance
	for range 2 + x.IntN(4) {
		switch x.IntN(10) {
		case 0:
			m := macro()
			fmt.Fprintf(&b, "#undef %s\n#define %s %d\n", m, m, x.IntN(3))
		case 1, 2, 3:
			fmt.Fprintf(&b, "#if %s\n%s#else\n%s#endif\n", macro(), include(), include())
		case 4:
			fmt.Fprintf(&b, "#ifdef NEVER\n%s#endif\n", include())
		case 5:
			fmt.Fprintf(&b, "#if __has_include(<h%d.h>)\n%s#endif\n", treeHeaders+x.IntN(treeAsked), include())
		case 6:
			fmt.Fprintf(&b, "#ifdef NEVER\n%s%s#endif\n", include(), include())
		case 7:
			switch x.IntN(10) {
			case 0:
				fmt.Fprintf(&b, "__asm__(\".incbin \\\"%s\\\"\");\n", x.name())
			case 1:
				fmt.Fprintf(&b, "#line %d \"%s\"\n", 1+x.IntN(3), x.name())
			}
		case 8:
			b.WriteString(include())
		}
	}
	return b.String()
}

// put writes a file. It takes the place of whatever has the name.
func (x *randomTree) put(name, text string) {
	x.Helper()
	_ = os.Remove(filepath.Join(x.dir, name))
	x.write(name, text)
}

// number returns the number in a header's name.
func number(name string) int {
	n, _ := strconv.Atoi(strings.TrimSuffix(filepath.Base(name)[1:], ".h"))
	return n
}

// source is the source of a tree.
func (x *randomTree) source() string {
	var asks strings.Builder
	for i := range treeAsked {
		fmt.Fprintf(&asks, "#if __has_include(<h%d.h>)\n__asm__(\".byte %d\");\n#endif\n", treeHeaders+i, i)
	}
	return asks.String() + x.text(-1) + "static void unused(void) {}\n" + x.text(-1) + "int f(void) { return 0; }\n"
}

// change changes something, and says what.
func (x *randomTree) change() string {
	x.Helper()
	name := x.name()
	path := filepath.Join(x.dir, name)
	old, err := os.ReadFile(path)
	if err == nil {
		x.saved = append(x.saved, saved{name, string(old)})
	}
	switch x.IntN(22) {
	case 14, 15, 16, 17, 18, 0, 1, 2:
		if err == nil {
			x.put(name, string(old)+fmt.Sprintf("__asm__(\".byte %d\");\n", x.IntN(256)))
			return name + " has another line"
		}
		fallthrough
	case 3:
		x.put(name, x.text(number(name)))
		return name + " is written"
	case 4, 5, 6, 7:
		if len(x.saved) == 0 {
			return ""
		}
		was := x.saved[x.IntN(len(x.saved))]
		x.put(was.name, was.text)
		return was.name + " is as it was"
	case 8:
		if filepath.Dir(name) == lastDir && number(name) < treeHeaders {
			return ""
		}
		_ = os.Remove(path)
		return name + " is removed"
	case 9: // a link to a header with another name, or in another directory
		other := x.name()
		if number(other) < number(name) || other == name {
			return ""
		}
		_ = os.Remove(path)
		if err := os.Symlink("../"+other, path); err != nil {
			x.Fatal(err)
		}
		return name + " is a link to " + other
	case 10: // a hard link
		other := x.name()
		if number(other) < number(name) || other == name {
			return ""
		}
		if st, err := os.Lstat(filepath.Join(x.dir, other)); err != nil || !st.Mode().IsRegular() {
			return ""
		}
		_ = os.Remove(path)
		if err := os.Link(filepath.Join(x.dir, other), path); err != nil {
			x.Fatal(err)
		}
		return name + " is the same file as " + other
	case 11: // a copy, with the same time or another
		other := x.name()
		text, err := os.ReadFile(filepath.Join(x.dir, other))
		if err != nil || number(other) < number(name) || other == name {
			return ""
		}
		x.put(name, string(text))
		at := time.Now().Add(-time.Duration(x.IntN(2)) * time.Hour)
		for _, n := range []string{name, other} {
			if err := os.Chtimes(filepath.Join(x.dir, n), at, at); err != nil {
				x.Fatal(err)
			}
		}
		return name + " is a copy of " + other
	case 19, 20, 21: // a file instead of another one
		dir := filepath.Dir(name) + "/"
		from, to := fmt.Sprintf("%sh%d.h", dir, treeHeaders+x.IntN(treeAsked)), fmt.Sprintf("%sh%d.h", dir, treeHeaders+x.IntN(treeAsked))
		if os.Rename(filepath.Join(x.dir, from), filepath.Join(x.dir, to)) != nil {
			return ""
		}
		return from + " is called " + to
	case 12:
		x.put("a.c", x.source())
		return "the source is another one"
	default:
		now := time.Now()
		_ = os.Chtimes(path, now, now)
		return name + " is touched"
	}
}

// flags are some words of the commands.
var flags = [][]string{
	{"-MD", "-Id0", "-Id1", "-Id2"},
	{"-MD", "-MP", "-g", "-iquote", "d0", "-Id2", "-isystem", "d1", "-MF", "other.d"},
	{"-MMD", "-Id2", "-isystem", "d1", "-idirafter", "d0"},
	{"-Wp,-MMD,a.d", "-Id0/../d1", "-Id2", "-Id0"},
}

// plant writes a new tree.
func (x *randomTree) plant() {
	x.Helper()
	for d := range treeDirs {
		x.write(fmt.Sprintf("d%d/.keep", d), "")
		for h := range treeHeaders + treeAsked {
			name := fmt.Sprintf("d%d/h%d.h", d, h)
			_ = os.Remove(filepath.Join(x.dir, name))
			if d == treeDirs-1 && h < treeHeaders || x.IntN(3) == 0 {
				x.put(name, x.text(h))
			}
		}
	}
	x.put("a.c", x.source())
	x.log = append(x.log, "a new tree")
}

// run compiles after each of n changes.
func (x *randomTree) run(n int) {
	x.Helper()
	x.plant()
	words := flags[x.IntN(len(flags))]
	for range n {
		x.log = append(x.log, x.change())
		if x.IntN(15) == 0 {
			words = flags[x.IntN(len(flags))]
		}
		if !x.compile(append(append([]string{x.cc, "-Wall", "-Wno-deprecated"}, words...), "-c", "a.c")) {
			x.plant()
		}
	}
}

// compile runs a command plainly and with rdistcc, and compares everything. It reports whether the command succeeds.
func (x *randomTree) compile(args []string) bool {
	x.Helper()
	clean := func() {
		for name := range x.written() {
			_ = os.Remove(name)
		}
	}
	clean()
	cmd, _ := x.command(false, nil, args...)
	words, err := cmd.CombinedOutput()
	plain := x.written()
	clean()
	got := x.site.run(nil, args...)
	kind, _, _ := strings.Cut(got.where, ":")
	x.ran[fmt.Sprintf("%s, exit %d", kind, got.status)]++
	if failed := err != nil; failed != (got.status != 0) {
		x.fail(args, "%s: exit status %d, without rdistcc %v\n%s", got.where, got.status, err, words)
		return false
	} else if failed {
		return false
	}
	if string(words) != got.out {
		x.fail(args, "%s: printed %q, without rdistcc %q", got.where, got.out, words)
	}
	with := x.written()
	if len(with) != len(plain) {
		x.fail(args, "%s: %d files, without rdistcc %d", got.where, len(with), len(plain))
	}
	for name, b := range plain {
		if !bytes.Equal(with[name], b) {
			x.fail(args, "%s: %s differs", got.where, name)
		}
	}
	return true
}

func (x *randomTree) fail(args []string, format string, a ...any) {
	x.Helper()
	x.Errorf("%s\nafter %s\n%s", strings.Join(args, " "), strings.Join(x.log[max(0, len(x.log)-8):], "; "), fmt.Sprintf(format, a...))
}
