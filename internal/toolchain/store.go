package toolchain

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// stored is a Cache's file: the findings, with the stamps of all files that they depend on. It serves only the
// program that wrote it, as another might look at other files.
type stored struct {
	Program stamp
	Entries []storedEntry
	Sums    []storedSum
}

type storedEntry struct {
	Key       string
	Toolchain Toolchain
	Stamps    []stamped
	Names     []string // of the helpers
	Missing   []missing
}

type storedSum struct {
	At  stamp
	Sum string
}

// maxStored bounds the file; a compiler takes some 5 KB.
const maxStored = 16 << 20

// load reads the file, once. A missing, foreign or incomplete file is no loss: the compilers are asked.
func (c *Cache) load() {
	if c.File == "" {
		return
	}
	var s stored
	b, err := readOwn(c.File)
	if err != nil || json.Unmarshal(b, &s) != nil || s.Program != stampOf("/proc/self/exe") || s.Program.Absent {
		return
	}
	c.mu.Lock()
	c.entries, c.called = make(map[string]*entry), make(map[string][]string)
	for _, e := range s.Entries {
		c.entries[e.Key] = &entry{tc: e.Toolchain, stamps: e.Stamps, names: e.Names, missing: e.Missing}
		c.called[e.Toolchain.Exec] = e.Names
	}
	c.mu.Unlock()
	c.sums.restore(s.Sums)
}

// saveEvery is the least time between two writes of the file while one compiler after the other is
// identified. Flush writes the rest.
const saveEvery = time.Second

// saveSoon writes the file, unless that was done a moment ago.
func (c *Cache) saveSoon() {
	c.saving.Lock()
	defer c.saving.Unlock()
	if c.unsaved = true; time.Since(c.saved) >= saveEvery {
		c.saveLocked()
	}
}

// Flush writes to the file what it lacks.
func (c *Cache) Flush() {
	c.saving.Lock()
	defer c.saving.Unlock()
	if c.unsaved {
		c.saveLocked()
	}
}

// saveLocked rewrites the file. Without it the next program asks again, so errors do not matter.
func (c *Cache) saveLocked() {
	c.unsaved, c.saved = false, time.Now()
	if c.File == "" {
		return
	}
	s := stored{Program: stampOf("/proc/self/exe"), Sums: c.sums.list()}
	c.mu.Lock()
	for key, e := range c.entries {
		if e.err == nil {
			s.Entries = append(s.Entries, storedEntry{key, e.tc, e.stamps, e.names, e.lacks()})
		}
	}
	c.mu.Unlock()
	b, err := json.Marshal(s)
	if err != nil || len(b) > maxStored || ownDir(filepath.Dir(c.File)) != nil {
		return
	}
	f, err := os.CreateTemp(filepath.Dir(c.File), filepath.Base(c.File)+".*") // mode 0600
	if err != nil {
		return
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), c.File)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
}

var errNotOwn = errors.New("others may have written it")

// readOwn reads a file that only this user can have written or put there: anyone else could choose what passes for a
// compiler.
func readOwn(path string) ([]byte, error) {
	if err := ownDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 || st.Size > maxStored {
		return nil, errNotOwn
	}
	return io.ReadAll(f)
}

// ownDir rejects a directory that others may write to.
func ownDir(dir string) error {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return errNotOwn
	}
	return nil
}

func (s *sums) list() []storedSum {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []storedSum
	for at, sum := range s.seen {
		list = append(list, storedSum{at, hex.EncodeToString(sum[:])})
	}
	return list
}

func (s *sums) restore(list []storedSum) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = make(map[stamp]digest)
	for _, l := range list {
		var sum digest
		if n, err := hex.Decode(sum[:], []byte(l.Sum)); err == nil && n == len(sum) {
			s.seen[l.At] = sum
		}
	}
}
