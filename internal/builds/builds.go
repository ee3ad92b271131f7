// Package builds keeps records of past builds on disk: what each was, what became of its commands, and the record of
// each command.
//
// A build has two files, NUMBER.json (a Build) and NUMBER.jobs.gz (a line of JSON for each command). The latter is
// locked while its build runs. Only their user can read them.
package builds

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/gain"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// How much is kept: so many builds, and no more bytes of them.
const (
	maxBuilds = 50
	maxBytes  = 128 << 20
	maxJobs   = 200_000 // records of commands in a build; further ones are only counted
	maxFile   = 4 << 20 // bytes of a Build that are read
)

// Build is one run of `rdistcc build`.
type Build struct {
	ID      int       `json:"id"`
	Command []string  `json:"command"`
	Dir     string    `json:"dir"`
	Began   time.Time `json:"began"`
	// Ended is zero while it runs, or if its `rdistcc build` was killed.
	Ended   time.Time `json:"ended,omitzero"`
	Running bool      `json:"running,omitempty"` // set when it is read
	Exit    int       `json:"exit"`
	Cores   int       `json:"cores"` // processors of the machine
	// Lost is how many commands of the machine the manager had forgotten before they were asked for. Some of them may
	// have been this build's.
	Lost uint64   `json:"lost,omitempty"`
	Kept int      `json:"kept"` // commands whose records are kept
	Gain gain.Sum `json:"gain"`
}

// Wall returns how long the build took, or 0 while that is not known, or if the clock was set back meanwhile.
func (b *Build) Wall() time.Duration {
	if b.Ended.IsZero() {
		return 0
	}
	return max(b.Ended.Sub(b.Began), 0)
}

// Saved returns how much longer it would have taken without the farm, as far as is known; negative: less long.
func (b *Build) Saved() time.Duration {
	if b.Ended.IsZero() || b.Gain.Jobs == 0 {
		return 0
	}
	return b.Gain.Alone - b.Wall()
}

// ErrUnknown means that no build has that number.
var ErrUnknown = errors.New("no such build")

// Store is a directory of builds. Several processes may use it at a time.
type Store struct{ dir string }

// Open returns the store in dir, which need not exist yet.
func Open(dir string) *Store { return &Store{dir} }

func (s *Store) file(id int) string { return filepath.Join(s.dir, strconv.Itoa(id)+".json") }
func (s *Store) jobs(id int) string { return filepath.Join(s.dir, strconv.Itoa(id)+".jobs.gz") }

// numbers returns those of the builds, the newest first.
func (s *Store) numbers() (ids []int, err error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".json"); ok {
			if id, err := strconv.Atoi(name); err == nil && id > 0 && strconv.Itoa(id) == name {
				ids = append(ids, id)
			}
		}
	}
	slices.SortFunc(ids, func(x, y int) int { return cmp.Compare(y, x) })
	return ids, err
}

// List returns all builds that can be read, the newest first.
func (s *Store) List() ([]Build, error) {
	ids, err := s.numbers()
	if err != nil {
		return nil, err
	}
	list := make([]Build, 0, len(ids))
	for _, id := range ids {
		if b, err := s.Find(id); err == nil {
			list = append(list, *b)
		}
	}
	return list, nil
}

// Find returns a build. The error wraps ErrUnknown if there is none with that number.
func (s *Store) Find(id int) (*Build, error) {
	f, err := open(s.file(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %d", ErrUnknown, id)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := new(Build)
	if err := json.NewDecoder(io.LimitReader(f, maxFile)).Decode(b); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	b.ID, b.Running = id, b.Ended.IsZero() && s.running(id)
	return b, nil
}

// open opens a file of a store to read it: one of this user's or root's, as what it says is shown to this user.
func open(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return nil, errors.Join(fmt.Errorf("%s: not a file of this user", name), err, f.Close())
	}
	return f, nil
}

// running reports whether the build's process still holds its lock.
func (s *Store) running(id int) bool {
	f, err := open(s.jobs(id))
	if err != nil {
		return false
	}
	defer f.Close() // gives up the lock
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// Jobs calls each with the record of each command of a build, in the order in which they ended, until it returns an
// error, which Jobs returns. Of a build that was cut off, it gives what had been written by then.
func (s *Store) Jobs(id int, each func(*report.JobRecord) error) error {
	f, err := open(s.jobs(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(bufio.NewReader(f))
	if errors.Is(err, io.EOF) {
		return nil // nothing was written
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	d := json.NewDecoder(z)
	for {
		var r report.JobRecord
		switch err := d.Decode(&r); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", f.Name(), err)
		}
		if err := each(&r); err != nil {
			return err
		}
	}
}
