package builds

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/gain"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// Log is the record of a build that runs. It is not safe for concurrent use. A Log that cannot be written goes on
// without its files: a full disk ends no build.
type Log struct {
	Build Build // the caller sets Exit and Lost before Finish
	tally gain.Tally
	s     *Store
	err   error    // why it is no longer written
	f     *os.File // with the lock; nil: nothing is kept
	z     *gzip.Writer
	out   *json.Encoder
}

// New begins the record of a build. The Log can be used in any case; its Err says whether it is kept.
func (s *Store) New(b Build) *Log {
	l := &Log{Build: b, s: s}
	l.err = l.create()
	return l
}

func (l *Log) create() error {
	s := l.s
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(s.dir, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return fmt.Errorf("%s: not a directory that only this user can write to", s.dir)
	}
	ids, err := s.numbers()
	if err != nil {
		return err
	}
	id := 1
	if len(ids) > 0 {
		id = ids[0] + 1
	}
	const atATime = 1000 // builds that begin now
	for range atATime {
		f, err := os.OpenFile(s.jobs(id), os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
		if errors.Is(err, fs.ErrExist) {
			id++
			continue
		}
		if err != nil {
			return err
		}
		l.Build.ID, l.f = id, f
		l.z, _ = gzip.NewWriterLevel(f, gzip.BestSpeed) // that level exists
		l.out = json.NewEncoder(l.z)
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			return fmt.Errorf("%s: %w", f.Name(), err)
		}
		s.prune(maxBuilds-1, maxBytes)
		return l.write()
	}
	return fmt.Errorf("%s: no number is free", s.dir)
}

// Err returns why the build is not kept, or nil.
func (l *Log) Err() error { return l.err }

// Add adds commands that have ended, and makes sure that they can be read if this process is killed.
func (l *Log) Add(jobs []report.JobRecord) {
	for i := range jobs {
		l.tally.Add(&jobs[i])
		if l.err == nil && l.Build.Kept < maxJobs {
			l.err = l.out.Encode(&jobs[i])
			l.Build.Kept++
		}
	}
	if l.err == nil && len(jobs) > 0 {
		l.err = l.z.Flush()
	}
}

// Counts are the numbers of a build's commands.
type Counts struct {
	Jobs   int
	Places map[string]int // by report.JobRecord.Place
}

// Counts returns the numbers so far.
func (l *Log) Counts() Counts { return Counts{l.tally.Jobs(), l.tally.Places()} }

// Sum returns what has become of the commands so far.
func (l *Log) Sum(now time.Time) gain.Sum { return l.tally.Sum(l.Build.Began, now, l.Build.Cores) }

// Finish ends the record of a build that ended then.
func (l *Log) Finish(ended time.Time) {
	l.Build.Ended = ended
	l.Build.Gain = l.Sum(ended)
	if l.f == nil {
		return
	}
	if err := errors.Join(l.z.Close(), l.write(), l.f.Close()); l.err == nil {
		l.err = err
	}
	l.s.prune(maxBuilds, maxBytes)
}

// write writes the Build, as a whole.
func (l *Log) write() error {
	data, err := json.Marshal(&l.Build)
	if err != nil {
		return err
	}
	name := l.s.file(l.Build.ID)
	f, err := os.CreateTemp(l.s.dir, ".new-")
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// prune removes the oldest builds until no more than that are left, and no more bytes of them. It leaves those that
// run. What cannot be removed stays.
func (s *Store) prune(builds int, bytes int64) {
	ids, err := s.numbers()
	if err != nil {
		return
	}
	n := 0
	for _, id := range ids {
		n++
		for _, name := range []string{s.file(id), s.jobs(id)} {
			if st, err := os.Lstat(name); err == nil {
				bytes -= st.Size()
			}
		}
		if (n > builds || bytes < 0) && !s.running(id) {
			_ = os.Remove(s.jobs(id)) // first: without the other it would be a build that has no number
			_ = os.Remove(s.file(id))
		}
	}
}
