package watched

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/rdistcc/rdistcc/internal/wholefile"
)

// The file begins with a line that names its format and the version of the program that watched, because versions may
// search differently. A line for each combination follows, with its key and kinds:
//
//	rdistcc watched 1 v1.2.0
//	9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 3c41
//
// A combination with a doubt, or that could not be watched, has no line: the next manager tries again.

// Keep makes t know what the same version of the program has written to a file, and Save write there. It is called before anything
// else; the file is read when it is needed, which is later than a predecessor has written it.
func (t *Table) Keep(file, version string) { t.file, t.version = file, version }

func (t *Table) head() string { return fmt.Sprintf("rdistcc watched 1 %s\n", t.version) }

// maxFile bounds the file, in bytes.
const maxFile = most * 100

// loadLocked reads the file, once. A line that is not one of Save's ends that: what follows will be watched again.
func (t *Table) loadLocked() {
	if t.known != nil {
		return
	}
	t.known = make(map[Key]*combination)
	if t.file == "" {
		return
	}
	b, err := os.ReadFile(t.file)
	rest, ours := strings.CutPrefix(string(b), t.head())
	if err != nil || !ours || len(b) > maxFile {
		return
	}
	for line := range strings.Lines(rest) {
		key, kinds, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		id, err := hex.DecodeString(key)
		n, nerr := strconv.ParseUint(kinds, 16, 64)
		if err != nil || nerr != nil || len(id) != len(Key{}) || !strings.HasSuffix(line, "\n") || len(t.known) >= most {
			return
		}
		t.known[Key(id)] = &combination{kinds: n}
	}
}

// Save writes the file, if there is anything new to write.
func (t *Table) Save() error {
	t.mu.Lock()
	if t.file == "" || !t.dirty {
		t.mu.Unlock()
		return nil
	}
	t.dirty = false
	var b bytes.Buffer
	b.WriteString(t.head())
	for k, x := range t.known {
		if x.doubt == "" && !x.unseen && x.kinds != 0 {
			fmt.Fprintf(&b, "%x %x\n", k[:], x.kinds)
		}
	}
	t.mu.Unlock()
	err := wholefile.Replace(t.file, b.Bytes())
	if err != nil {
		t.mu.Lock()
		t.dirty = true
		t.mu.Unlock()
	}
	return err
}
