package disk

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// newPrefix begins the names of files that are being written, and oldNew is how old one has to be to be a
// leftover of a program that was killed.
const (
	newPrefix = ".new-"
	oldNew    = time.Hour
)

// file is one file of a store.
type file struct {
	name string
	key  resultcache.Key
	size int64 // room that it takes
	used time.Time

	manifest bool // otherwise it is an entry
}

// Usage says what a store has.
type Usage struct {
	Files     int       // entries
	Manifests int       // manifests
	Bytes     int64     // of both
	Oldest    time.Time // the least recent use of one
}

// add counts a file.
func (u *Usage) add(f *file) {
	if f.manifest {
		u.Manifests++
	} else {
		u.Files++
	}
	u.Bytes += f.size
}

// Usage counts the whole store.
func (s *Store) Usage(ctx context.Context) (Usage, error) {
	var u Usage
	err := s.walk(ctx, func(f *file) {
		u.add(f)
		if u.Oldest.IsZero() || f.used.Before(u.Oldest) {
			u.Oldest = f.used
		}
	})
	return u, err
}

// Clear removes all entries, and returns what they were.
func (s *Store) Clear(ctx context.Context) (Usage, error) { return s.Prune(ctx, 0) }

// Prune removes the least recently used entries until at most size bytes are left, and returns what they were.
func (s *Store) Prune(ctx context.Context, size int64) (Usage, error) {
	all, err := s.files(ctx)
	if err != nil {
		return Usage{}, err
	}
	slices.SortFunc(all, byUse)
	left := int64(0)
	for i := range all {
		left += all[i].size
	}
	n := 0
	for ; n < len(all) && left > size; n++ {
		left -= all[n].size
	}
	return remove(ctx, all[:n])
}

// PruneOlder removes the entries that were last used before a time, and returns what they were.
func (s *Store) PruneOlder(ctx context.Context, before time.Time) (Usage, error) {
	all, err := s.files(ctx)
	if err != nil {
		return Usage{}, err
	}
	return remove(ctx, slices.DeleteFunc(all, func(f file) bool { return !f.used.Before(before) }))
}

// byUse orders files, the least recently used first.
func byUse(a, b file) int { return cmp.Or(a.used.Compare(b.used), strings.Compare(a.name, b.name)) }

// remove removes files, and returns what they were. Others may have removed some already.
func remove(ctx context.Context, files []file) (Usage, error) {
	var u Usage
	for i := range files {
		if err := ctx.Err(); err != nil {
			return u, err
		}
		switch err := os.Remove(files[i].name); {
		case err == nil:
			u.add(&files[i])
		case !errors.Is(err, fs.ErrNotExist):
			return u, err
		}
	}
	return u, nil
}

// Verify reads all entries and manifests and removes those that are damaged. bad is called with each of them. It returns
// how many were read.
func (s *Store) Verify(ctx context.Context, bad func(name string, err error)) (Usage, error) {
	var u Usage
	all, err := s.files(ctx)
	if err != nil {
		return u, err
	}
	for i := range all {
		f := &all[i]
		if err := ctx.Err(); err != nil {
			return u, err
		}
		b, err := os.ReadFile(f.name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another program has removed it
		}
		switch {
		case err != nil:
		case f.manifest:
			_, err = resultcache.DecodeManifest(b, f.key)
		default:
			var key resultcache.Key
			key, _, err = resultcache.Describe(b)
			if err == nil && key != f.key {
				err = errors.New("it is the result of another compile")
			}
		}
		u.add(f)
		if err != nil {
			bad(f.name, err)
			if err := os.Remove(f.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return u, err
			}
		}
	}
	return u, nil
}

// DropWhere removes the entries of which wrong returns true, by what they tell of themselves. It reads all of
// them, and leaves damaged ones alone. It returns how many it has removed.
func (s *Store) DropWhere(ctx context.Context, wrong func(*resultcache.Origin) bool) (int, error) {
	all, err := s.files(ctx)
	if err != nil {
		return 0, err
	}
	gone := all[:0]
	for i := range all {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if all[i].manifest {
			continue // what it leads to is removed
		}
		b, err := os.ReadFile(all[i].name)
		if err != nil {
			continue // another program has removed it
		}
		if _, origin, err := resultcache.Describe(b); err == nil && wrong(&origin) {
			gone = append(gone, all[i])
		}
	}
	u, err := remove(ctx, gone)
	return u.Files, err
}

func (s *Store) files(ctx context.Context) ([]file, error) {
	var all []file
	err := s.walk(ctx, func(f *file) { all = append(all, *f) })
	return all, err
}

// walk calls each with all files of the store.
func (s *Store) walk(ctx context.Context, each func(*file)) error {
	for i := range parts {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.walkPart(i, each); err != nil {
			return err
		}
	}
	return nil
}

// walkPart calls each with the files of a part, and removes leftovers.
func (s *Store) walkPart(i int, each func(*file)) error {
	top := filepath.Join(s.dir, strconv.FormatInt(int64(i), 16))
	dirs, err := os.ReadDir(top)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	now := s.now()
	for _, d := range dirs {
		if len(d.Name()) != 2 || !d.IsDir() {
			continue // not ours
		}
		dir := filepath.Join(top, d.Name())
		names, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, n := range names {
			info, err := n.Info()
			if err != nil || !info.Mode().IsRegular() {
				continue
			}
			name := filepath.Join(dir, n.Name())
			if strings.HasPrefix(n.Name(), newPrefix) {
				if now.Sub(info.ModTime()) > oldNew {
					_ = os.Remove(name) // another program may have been faster
				}
				continue
			}
			base, manifest := strings.CutSuffix(n.Name(), manifestSuffix)
			key, ok := resultcache.ParseKey(strconv.FormatInt(int64(i), 16) + d.Name() + base)
			if !ok {
				continue
			}
			f := file{name: name, key: key, size: blocks(info.Size()), used: info.ModTime(), manifest: manifest}
			if f.used.After(now) {
				f.used = now // the clock was set back: otherwise it would outlive all others
			}
			each(&f)
		}
	}
	return nil
}

// shrink counts a part. If it has more than most bytes, shrink removes the least recently used entries until
// at most left bytes remain. It returns how many remain.
func (s *Store) shrink(i int, most, left int64) (int64, error) {
	var all []file
	var sum int64
	if err := s.walkPart(i, func(f *file) {
		all = append(all, *f)
		sum += f.size
	}); err != nil {
		return 0, err
	}
	if sum <= most {
		return sum, nil
	}
	slices.SortFunc(all, byUse)
	for j := range all {
		if sum <= left {
			break
		}
		if err := os.Remove(all[j].name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		sum -= all[j].size
	}
	return sum, nil
}
