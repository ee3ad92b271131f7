package files

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/stamp"
	"github.com/rdistcc/rdistcc/internal/store"
)

// class returns a learner that has only what lessons need, and a directory for headers.
func class(t *testing.T) (s *Learner, dir string) {
	t.Helper()
	dir = "/usr/lib/rdistcc-test-learn"
	if os.Getuid() != 0 || os.Mkdir(dir, 0o755) != nil {
		t.Skip("only root may write to /usr/lib")
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s = NewLearner(Learner{Machine: new(Machine), Busy: func() bool { return false }})
	s.store = store.New(store.Options{Memory: 64 << 20})
	t.Cleanup(func() {
		s.Machine.Forget()
		if st := s.store.Stats(); st.Common != 0 {
			t.Errorf("%d bytes are left of what was forgotten", st.Common)
		}
	})
	return s, dir
}

// teach makes s learn what is in dir.
func teach(ctx context.Context, s *Learner, dir string, most int64) {
	l := s.newLesson(ctx, most)
	l.began = time.Now()
	l.learn([][]string{{dir}})
}

// settled waits until a change made now is sure to change the stamp.
func settled() { time.Sleep(time.Duration(2 * stamp.Tick)) }

// TestLearntFilesChange: what was learnt of a file counts as long as the file is unchanged and any user may
// read it.
func TestLearntFilesChange(t *testing.T) {
	s, dir := class(t)
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return name
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(os.MkdirAll(filepath.Join(dir, "a/b"), 0o755))
	do(os.Mkdir(filepath.Join(dir, "shut"), 0o755))
	const before, after = "int before;\n", "int after_;\n"
	edited, kept, gone := write("a/edited.h", before), write("a/b/kept.h", before), write("gone.h", before)
	closed, inside, replaced := write("closed.h", before), write("shut/x.h", before), write("replaced.h", before)
	write("secret.h", before)
	do(os.Chmod(filepath.Join(dir, "secret.h"), 0o600))
	write("empty.h", "")
	do(os.Symlink("gone.h", filepath.Join(dir, "link.h")))
	old := time.Now().Add(-time.Hour)
	all := []string{edited, kept, gone, closed, inside, replaced}
	for _, name := range all {
		do(os.Chtimes(name, old, old))
	}
	settled()
	young := write("young.h", before)
	teach(t.Context(), s, dir, learnBytes)
	names := func() (list []string) {
		for name := range s.Machine.learnt.files {
			list = append(list, name)
		}
		slices.Sort(list)
		return list
	}
	slices.Sort(all)
	if got := names(); !slices.Equal(got, all) {
		t.Fatalf("learnt is\n%q, not\n%q", got, all)
	}
	tenant := s.store.Open("x")
	defer tenant.Close()
	// find looks for a file of a content, which is named or not, and says whether it was there, with which and where from.
	find := func(name, text string, named bool) (found string, shared bool) {
		t.Helper()
		f := job.ListedFile{Name: name, Len: uint64(len(text))}
		if named {
			f.Content = idOf(text)
		}
		fresh := s.store.Open(name + text)
		defer fresh.Close()
		own := reader{keeps: fresh, learnt: &s.Machine.learnt}
		has := s.store.Stats().Bytes
		c := own.find(&f)
		if c == nil {
			return "", false
		}
		defer c.Unpin()
		if f.Content != idOf(string(c.Bytes())) {
			t.Errorf("%s: the content is not the one of its name", name)
		}
		return string(c.Bytes()), s.store.Stats().Bytes-has < 4096
	}
	for _, name := range all {
		for _, named := range []bool{true, false} {
			if got, shared := find(name, before, named); got != before || !shared {
				t.Errorf("%s: %q, shared: %v", name, got, shared)
			}
		}
	}
	if got, shared := find(young, before, true); got != before || shared {
		t.Errorf("one that was young: %q, shared: %v", got, shared)
	}
	// Of the same length, with the times of before.
	write("a/edited.h", after)
	do(os.Chtimes(edited, old, old))
	write("new.h", after)
	do(os.Rename(filepath.Join(dir, "new.h"), replaced))
	do(os.Chtimes(replaced, old, old))
	do(os.Remove(gone))
	do(os.Chmod(closed, 0o640))
	do(os.Chmod(filepath.Join(dir, "shut"), 0o700))
	for _, name := range []string{edited, replaced} {
		if got, _ := find(name, before, true); got != "" {
			t.Errorf("%s: %q as it was", name, got)
		}
		for _, named := range []bool{true, false} {
			if got, shared := find(name, after, named); got != after || shared {
				t.Errorf("%s: %q, shared: %v", name, got, shared)
			}
		}
	}
	for _, name := range []string{gone, closed, inside} {
		if got, _ := find(name, before, false); got != "" {
			t.Errorf("%s: %q is to be had still", name, got)
		}
	}
	settled()
	content := s.Machine.learnt.files[kept].content
	teach(t.Context(), s, dir, learnBytes)
	if got, want := names(), []string{kept, edited, replaced, young}; !slices.Equal(got, want) {
		t.Errorf("learnt is then\n%q, not\n%q", got, want)
	}
	if s.Machine.learnt.files[kept].content != content {
		t.Error("what is as it was has been read again")
	}
	if got, shared := find(edited, after, true); got != after || !shared {
		t.Errorf("%q, shared: %v", got, shared)
	}
}

// TestLearntIsBounded: there are bounds for the number of files, for their bytes, and for the room in the
// store.
func TestLearntIsBounded(t *testing.T) {
	s, dir := class(t)
	for i := range learnFiles + 10 {
		if err := os.WriteFile(fmt.Sprintf("%s/%d.h", dir, i), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	settled()
	teach(t.Context(), s, dir, learnBytes)
	if n := s.Machine.Known(); n != learnFiles {
		t.Errorf("%d files", n)
	}
	s.Machine.Forget()
	teach(t.Context(), s, dir, 10*4096+1)
	if n := s.Machine.Known(); n != 10 {
		t.Errorf("%d files in 10 pages", n)
	}
	s.Machine.Forget()
	s.store.Limit(20 * 4096)
	teach(t.Context(), s, dir, learnBytes)
	if n := s.Machine.Known(); n == 0 || n >= 20 {
		t.Errorf("%d files where there is room for fewer than 20", n)
	}
	s.Machine.Forget()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if teach(ctx, s, dir, learnBytes); s.Machine.Known() != 0 {
		t.Error("a server that ends goes on to learn")
	}
}

// TestLessonsWait: a lesson proceeds only while no job is under way, makes pauses, and ends.
func TestLessonsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var busy atomic.Bool
		busy.Store(true)
		s := NewLearner(Learner{Busy: busy.Load})
		l := &lesson{k: s, ctx: ctx, began: time.Now()}
		var steps atomic.Int64
		var ended atomic.Bool
		go func() {
			for l.goOn() {
				steps.Add(1)
				time.Sleep(time.Millisecond)
			}
			ended.Store(true)
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		if steps.Load() > 0 || ended.Load() {
			t.Errorf("%d steps beside a job, ended: %v", steps.Load(), ended.Load())
		}
		busy.Store(false)
		time.Sleep(time.Second + learnRest)
		synctest.Wait()
		if n := steps.Load(); n == 0 || n > 600 {
			t.Errorf("%d steps of a millisecond in a second, want at most 600", n)
		}
		time.Sleep(10 * learnTime)
		synctest.Wait()
		if !ended.Load() {
			t.Error("it has no end")
		}
		cancel()
		if l = (&lesson{k: s, ctx: ctx, began: time.Now()}); l.goOn() {
			t.Error("it goes on where the server ends")
		}
	})
}
