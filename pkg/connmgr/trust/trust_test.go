package trust

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// TestPackedAndBounds: a result outside its buffer, or packed without being asked to, is refused.
func TestPackedAndBounds(t *testing.T) {
	body := &job.Body{Outputs: []unit.Output{{Name: "x.o"}}}
	file := func(off, n uint64) []job.File {
		return []job.File{{Segment: job.Segment{Off: off, Len: n}}}
	}
	for what, c := range map[string]struct {
		r    job.Result
		zstd bool
		bad  bool
	}{
		"good":            {job.Result{Files: file(0, 100)}, false, false},
		"packed, unasked": {job.Result{Packed: 1, Files: file(0, 100)}, false, true},
		"packed":          {job.Result{Packed: 1, Files: file(0, 100)}, true, false},
		"packed, outside": {job.Result{Packed: 101, Files: file(0, 100)}, true, true},
		"outside":         {job.Result{Files: file(1, 100)}, false, true},
		"wraps":           {job.Result{Files: file(1<<64-1, 2)}, false, true},
		"lacks its file":  {job.Result{}, false, true},
		"failed, no file": {job.Result{Exit: 1}, false, false},
	} {
		err := Packed(&c.r, 100, c.zstd)
		if err == nil {
			err = Result(&c.r, body, 100)
		}
		if (err != nil) != c.bad {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestInstalled: a program does not count as installed if other users can write to one directory above it.
func TestInstalled(t *testing.T) {
	uid := uint32(os.Geteuid())
	if !ours("/", uid) {
		t.Skip("the root directory is neither root's nor this user's")
	}
	if !Installed("/bin/sh", uid) {
		t.Error("/bin/sh does not count as installed")
	}
	open := t.TempDir()
	dir := filepath.Join(open, "d")
	file := filepath.Join(dir, "cc")
	if err := errors.Join(os.Chmod(open, 0o777), os.Mkdir(dir, 0o755), os.WriteFile(file, nil, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{file, "cc", dir + "/../d/cc", "/nowhere/cc"} {
		if Installed(name, uid) {
			t.Errorf("%s counts as installed", name)
		}
	}
}

// TestTracesDiffer: two hosts that took different times for the same do not distrust each other.
func TestTracesDiffer(t *testing.T) {
	memX, memY := []byte("objecttrace 1"), []byte("objecttrace 2")
	r := &job.Result{Files: []job.File{{Segment: job.Segment{Len: 6}}, {Index: 1, Segment: job.Segment{Off: 6, Len: 7}}}}
	for _, c := range []struct{ word, name, want string }{
		{"-ftime-trace", "x.json", ""},
		{"-ftime-trace=t", "t", ""},
		{"-ftime-trace=sub/", "sub/x.json", ""},
		{"-ftime-trace", "x.dwo", "x.dwo"},
		{"-ftime-trace=t", "x.json", "x.json"},
		{"-O2", "x.json", "x.json"},
	} {
		body := &job.Body{Args: []string{"-c", c.word}, Outputs: []unit.Output{{Name: "x.o"}, {Kind: unit.OutputSide, Name: c.name, Optional: true}}}
		if got := Differ(body, r, memX, r, memY); got != c.want {
			t.Errorf("%s, %s: %q differs, want %q", c.word, c.name, got, c.want)
		}
	}
}
