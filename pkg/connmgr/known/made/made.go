// Package made keeps in a file how the precompiled headers of this machine were made, from one run of the manager to the next.
//
// An entry describes the state when it was written. The reader has to check that it still holds.
package made

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/stamp"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/internal/wholefile"
	"github.com/rdistcc/rdistcc/internal/wire"
)

// Header describes how an image, which is a precompiled header, was made.
type Header struct {
	Image string            // absolute, without links
	At    stamp.Stamp       // of the image, settled
	Sum   [sha256.Size]byte // of its content
	List  unit.ContentID    // of what it was made of: inputs.Set.Whole

	// The command. Its compiler is the one at Compiler, which is Toolchain.
	Toolchain             unit.ToolchainID
	Compiler, Source, Cwd string
	Argv0, Real           string
	Args, Env             []string
	Used                  int64 // when it was made or last used, in seconds since 1970
}

// The format of the file, in the encoding of package wire:
//
//	0     8         12        16
//	| mag | version | entries | entries… | SHA-256 of all before |
const (
	magic   = "rdccmade"
	version = 1
	headLen = 16
	// least is the length of an entry without any text.
	least = 9*4 + 6*8 + 2*sha256.Size + len(unit.ToolchainID{})
)

// Bounds of the file. A project has a few precompiled headers for each of its configurations, and an entry takes some 2 KB.
const (
	maxEntries = 1024
	maxCommand = 256 << 10 // bytes of an entry
	maxFile    = 8 << 20   // bytes
	maxAge     = 90 * 24 * time.Hour
)

// ErrFile is wrapped by the error about a file that is not what Save writes.
var ErrFile = errors.New("not a list of precompiled headers, or a damaged one: starting an empty one in its place")

// Read returns what the file at path has. A missing file has nothing. The error is one line for the user.
func Read(path string) ([]Header, error) {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list of precompiled headers: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("list of precompiled headers: %w", err)
	}
	list, what := parse(b)
	if what != "" {
		return nil, fmt.Errorf("%s: %w (%s)", path, ErrFile, what)
	}
	return list, nil
}

// Save replaces the file at path as a whole. It keeps what another process has written there about other images. Entries that
// were not used for long, or about images that have changed since, are left out, and if there are too many, those that were not
// used for the longest time. A file that cannot be read is replaced.
func Save(path string, list []Header, now time.Time) error {
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		others, _ := Read(path) // one that cannot be read is replaced
		err = wholefile.Replace(path, encode(choose(list, others, now)))
	}
	if err != nil {
		return fmt.Errorf("list of precompiled headers: %w", err)
	}
	return nil
}

// choose returns the entries to write.
func choose(list, others []Header, now time.Time) []Header {
	have := make(map[string]bool, len(list))
	for i := range list {
		have[list[i].Image] = true
	}
	list = slices.Clone(list)
	for i := range others {
		if !have[others[i].Image] {
			list = append(list, others[i])
		}
	}
	list = slices.DeleteFunc(list, func(h Header) bool {
		at, ok := Look(h.Image)
		return !ok || at != h.At || h.Used < now.Add(-maxAge).Unix()
	})
	slices.SortFunc(list, func(a, b Header) int {
		return cmp.Or(cmp.Compare(b.Used, a.Used), cmp.Compare(a.Image, b.Image))
	})
	return list[:min(len(list), maxEntries)]
}

// encode returns the content of a file with the first entries of list, as many as it may have.
func encode(list []Header) []byte {
	b := wire.AppendUint32(wire.AppendUint32([]byte(magic), version), 0)
	n := uint32(0)
	for i := range list {
		e := list[i].append(nil)
		if len(e) > maxCommand || len(b)+len(e)+sha256.Size > maxFile {
			continue
		}
		b = append(b, e...)
		n++
	}
	binary.LittleEndian.PutUint32(b[headLen-4:], n)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

func (h *Header) append(b []byte) []byte {
	b = wire.AppendString(b, h.Image)
	for _, n := range [...]uint64{h.At.Dev, h.At.Ino, uint64(h.At.Size), uint64(h.At.MTime), uint64(h.At.CTime)} {
		b = wire.AppendUint64(b, n)
	}
	b = wire.AppendUint32(b, h.At.Mode)
	b = append(b, h.Sum[:]...)
	b = append(b, h.List[:]...)
	b = append(b, h.Toolchain[:]...)
	for _, s := range [...]string{h.Compiler, h.Source, h.Cwd, h.Argv0, h.Real} {
		b = wire.AppendString(b, s)
	}
	b = wire.AppendStrings(b, h.Args)
	b = wire.AppendStrings(b, h.Env)
	return wire.AppendUint64(b, uint64(h.Used))
}

// parse decodes a file. what is what is wrong with it.
func parse(b []byte) (list []Header, what string) {
	if len(b) > maxFile {
		return nil, "its length"
	}
	if len(b) < headLen+sha256.Size || string(b[:len(magic)]) != magic {
		return nil, "its beginning"
	}
	body := b[:len(b)-sha256.Size]
	r := wire.Reader[[]byte]{Rest: body[len(magic):]}
	if v := r.Uint32(); v != version {
		return nil, fmt.Sprintf("version %d, this program knows %d", v, version)
	}
	if sum := sha256.Sum256(body); !bytes.Equal(sum[:], b[len(body):]) {
		return nil, "its checksum"
	}
	n := r.Count(least)
	if n > maxEntries {
		return nil, "the number of its entries"
	}
	list = make([]Header, n)
	for i := range list {
		h := &list[i]
		h.Image = r.Text()
		h.At = stamp.Stamp{Dev: r.Uint64(), Ino: r.Uint64(), Size: int64(r.Uint64()), MTime: int64(r.Uint64()), CTime: int64(r.Uint64()), Mode: r.Uint32()}
		copy(h.Sum[:], r.Take(len(h.Sum)))
		copy(h.List[:], r.Take(len(h.List)))
		copy(h.Toolchain[:], r.Take(len(h.Toolchain)))
		h.Compiler, h.Source, h.Cwd, h.Argv0, h.Real = r.Text(), r.Text(), r.Text(), r.Text(), r.Text()
		h.Args, h.Env = r.Texts(), r.Texts()
		h.Used = int64(r.Uint64())
		if !filepath.IsAbs(h.Image) {
			r.Fail("an entry")
		}
	}
	if what := r.End(); what != "" {
		return nil, what
	}
	return list, ""
}
