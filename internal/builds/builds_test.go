package builds

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

func jobs(n int) (list []report.JobRecord) {
	now := time.Now()
	for i := range n {
		list = append(list, report.JobRecord{ID: uint64(i + 1), Began: now, Ended: now, Host: "a", Finished: true, HereUS: 1e6})
	}
	return list
}

func count(t *testing.T, s *Store, id int) (n int) {
	t.Helper()
	if err := s.Jobs(id, func(r *report.JobRecord) error {
		if n++; r.ID != uint64(n) {
			t.Errorf("job %d is number %d", r.ID, n)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	return n
}

func TestBuildIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "builds")
	s := Open(dir)
	if list, err := s.List(); len(list) != 0 || err != nil {
		t.Errorf("before any: %v, %v", list, err)
	}
	began := time.Now().Add(-time.Second)
	l := s.New(Build{Command: []string{"make", "-j3"}, Began: began, Cores: 2})
	if l.Err() != nil || l.Build.ID != 1 {
		t.Fatal(l.Err(), l.Build.ID)
	}
	l.Add(jobs(3))
	b, err := s.Find(1)
	if err != nil || !b.Running || b.Wall() != 0 || b.Saved() != 0 {
		t.Errorf("while it runs: %+v, %v", b, err)
	}
	if n := count(t, s, 1); n != 3 {
		t.Errorf("%d commands while it runs, want 3", n)
	}
	l.Build.Exit = 2
	l.Finish(began.Add(2 * time.Second))
	b, err = s.Find(1)
	if err != nil || b.Running || b.Exit != 2 || b.Gain.Jobs != 3 || b.Kept != 3 || b.Wall() != 2*time.Second || b.Saved() != b.Gain.Alone-2*time.Second || b.Command[1] != "-j3" {
		t.Errorf("%+v, %v", b, err)
	}
	if n := count(t, s, 1); n != 3 {
		t.Errorf("%d commands, want 3", n)
	}
	if _, err := s.Find(2); !errors.Is(err, ErrUnknown) {
		t.Errorf("of another number: %v", err)
	}
	for _, name := range []string{dir, s.file(1), s.jobs(1)} {
		if st, err := os.Stat(name); err != nil || st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s can be read by others: %v, %v", name, st.Mode(), err)
		}
	}
}

// TestKilledBuild: of a build whose process was killed, what it had written is there.
func TestKilledBuild(t *testing.T) {
	s := Open(t.TempDir())
	l := s.New(Build{Began: time.Now()})
	l.Add(jobs(5))
	if err := l.f.Close(); err != nil { // as the kernel does
		t.Fatal(err)
	}
	if b, err := s.Find(1); err != nil || b.Running || !b.Ended.IsZero() {
		t.Errorf("%+v, %v", b, err)
	}
	if n := count(t, s, 1); n != 5 {
		t.Errorf("%d commands, want 5", n)
	}
}

func TestBuildsAtATime(t *testing.T) {
	s := Open(t.TempDir())
	logs := make([]*Log, 20)
	var wg sync.WaitGroup
	for i := range logs {
		wg.Go(func() {
			logs[i] = s.New(Build{Began: time.Now()})
			logs[i].Add(jobs(i))
		})
	}
	wg.Wait()
	seen := make(map[int]bool)
	for i, l := range logs {
		l.Finish(time.Now())
		if l.Err() != nil || seen[l.Build.ID] {
			t.Errorf("build %d: %v", l.Build.ID, l.Err())
		}
		seen[l.Build.ID] = true
		if n := count(t, s, l.Build.ID); n != i {
			t.Errorf("build %d has %d commands, want %d", l.Build.ID, n, i)
		}
	}
	if list, err := s.List(); len(list) != len(logs) || err != nil || list[0].ID < list[1].ID {
		t.Errorf("%d builds, %v", len(list), err)
	}
}

// TestBounded: the oldest builds go, but none that runs, and numbers are not used again.
func TestBounded(t *testing.T) {
	s := Open(t.TempDir())
	running := s.New(Build{Began: time.Now()})
	for range maxBuilds + 5 {
		s.New(Build{Began: time.Now()}).Finish(time.Now())
	}
	list, err := s.List()
	if err != nil || len(list) != maxBuilds+1 || list[0].ID != maxBuilds+6 || list[maxBuilds].ID != 1 {
		t.Fatalf("%d builds, %v", len(list), err)
	}
	running.Finish(time.Now())
	s.prune(maxBuilds, 1)
	if list, _ := s.List(); len(list) != 0 {
		t.Errorf("%d builds in one byte", len(list))
	}
	if left, _ := os.ReadDir(s.dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestNotKept: a build goes on where nothing can be kept, and says why.
func TestNotKept(t *testing.T) {
	open := t.TempDir()
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{open, file, filepath.Join(file, "below")} {
		l := Open(dir).New(Build{Began: time.Now(), Cores: 1})
		if l.Err() == nil {
			t.Errorf("kept in %s", dir)
		}
		l.Add(jobs(2))
		l.Finish(time.Now())
		if l.Build.Gain.Jobs != 2 || l.Build.Gain.Alone < 2*time.Second {
			t.Errorf("%+v", l.Build.Gain)
		}
	}
}

// TestOthersFiles: what is no file of a build is left alone, and a damaged one is an error.
func TestOthersFiles(t *testing.T) {
	s := Open(t.TempDir())
	for name, text := range map[string]string{"1.json": "{", "1.jobs.gz": "no gzip", "x.json": "{}", "02.json": "{}", "-3.json": "{}"} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", s.file(4)); err != nil {
		t.Fatal(err)
	}
	if list, err := s.List(); len(list) != 0 || err != nil {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := s.Find(1); err == nil || errors.Is(err, ErrUnknown) {
		t.Errorf("a damaged build: %v", err)
	}
	if err := s.Jobs(1, nil); err == nil {
		t.Error("damaged commands were read")
	}
	if l := s.New(Build{}); l.Err() != nil || l.Build.ID != 5 {
		t.Errorf("the next number is %d, %v", l.Build.ID, l.Err())
	}
}
