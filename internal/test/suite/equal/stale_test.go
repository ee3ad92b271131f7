package equal

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// stale stands before a compiler and remembers what the command made the first
// time, whatever has happened to the files since.
const stale = `#!/bin/sh
echo remote:stale >> "$RDISTCC_REPORT"
key=$(dirname "$0")/kept.$(echo "$*" | cksum | tr ' ' -)
o=/dev/null d=/dev/null last=
for word; do
	case $last in -o) o=$word;; -MF) d=$word;; esac
	last=$word
done
if [ ! -e "$key.o" ]; then
	"$@" 2> "$key.err" || { s=$?; cat "$key.err" >&2; exit $s; }
	cp "$o" "$key.o"
	[ "$d" = /dev/null ] || cp "$d" "$key.d"
	cat "$key.err" >&2
	exit 0
fi
cat "$key.err" >&2
cp "$key.o" "$o"
[ "$d" = /dev/null ] || cp "$key.d" "$d"
`

// stalePlace returns a place whose rdistcc is stale.
func stalePlace(t *testing.T) *place {
	t.Helper()
	dir := t.TempDir()
	wrapper := filepath.Join(dir, "rdistcc")
	if err := os.WriteFile(wrapper, []byte(stale), 0o755); err != nil {
		t.Fatal(err)
	}
	f := farm.New(dir, dir)
	p := &place{g: &ground{Farm: f, root: dir}, dir: filepath.Join(dir, "p")}
	p.work, p.tmp = filepath.Join(p.dir, "w"), filepath.Join(p.dir, "tmp")
	if err := os.Mkdir(p.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestSequencesNotice: the suite reports a compile whose result is that from before a file was changed.
func TestSequencesNotice(t *testing.T) {
	for _, name := range []string{"edit-same-size-and-time", "shadow-I", "has-include-without-include", "link-swapped", "flip"} {
		t.Run(name, func(t *testing.T) {
			p := stalePlace(t)
			for _, s := range readSequences(t) {
				if s.name != name {
					continue
				}
				found, err := s.try(t.Context(), p, variant{cc: "gcc", lang: "c", opt: "-O2", dep: "-MD"}, nil)
				if err != nil || !strings.Contains(found, "out/x.o") {
					t.Errorf("the object is an old one, found: %s: %v", found, err)
				}
				return
			}
			t.Error("there is no such sequence")
		})
	}
}

// TestRandomTreesNotice: one of a few trees finds it as well, and its report is small.
func TestRandomTreesNotice(t *testing.T) {
	if testing.Short() || !part.Of(t).Has(t.Name()) {
		t.Skip("some hundred compiles")
	}
	for i := range uint64(20) {
		p := stalePlace(t)
		s, v := randomSequence(rand.New(rand.NewPCG(1, i)), []string{"gcc"})
		s.steps = s.steps[:3] // it is faster so
		found, err := s.try(t.Context(), p, v, nil)
		if err != nil {
			t.Fatal(err)
		}
		if found == "" {
			continue // what was changed made no difference, or nothing compiled
		}
		// The wrapper must have forgotten what it knows before each trial.
		forget := func() {
			kept, _ := filepath.Glob(filepath.Join(p.g.root, "kept.*")) // the pattern is right
			for _, name := range kept {
				if err := os.Remove(name); err != nil {
					t.Fatal(err)
				}
			}
		}
		small, what := s.shrunk(t.Context(), p, v, forget)
		if len(small.steps) != 2 || len(small.files) > 3 || !strings.Contains(what, "out/x.o") {
			t.Errorf("tree %d: not small: %s\n%s", i, what, small.text())
		}
		parsed, err := parseSequence(strings.TrimPrefix(small.text(), "=== "), "text", 1)
		if err != nil || len(parsed.steps) != len(small.steps) || len(parsed.files) != len(small.files) {
			t.Errorf("cannot be read again: %v:\n%s", err, small.text())
		}
		return
	}
	t.Error("no tree noticed")
}
