package run

import (
	"fmt"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/worker/files"
	"github.com/rdistcc/rdistcc/pkg/worker/images"
)

// TestImageKey: no tenant's job gets the image of another tenant, of another compiler, or one that another command or other
// files have made.
func TestImageKey(t *testing.T) {
	seen := make(map[images.Key]string)
	for what, change := range map[string]func(j *Job, tc *toolchain.Toolchain, b *job.Body, in *files.Set){
		"itself":            func(*Job, *toolchain.Toolchain, *job.Body, *files.Set) {},
		"another tenant":    func(j *Job, _ *toolchain.Toolchain, _ *job.Body, _ *files.Set) { j.Owner = "b" },
		"another compiler":  func(_ *Job, tc *toolchain.Toolchain, _ *job.Body, _ *files.Set) { tc.ID[0]++ },
		"one that was sent": func(_ *Job, tc *toolchain.Toolchain, _ *job.Body, _ *files.Set) { tc.Root = "/x" },
		"another command":   func(_ *Job, _ *toolchain.Toolchain, b *job.Body, _ *files.Set) { b.Args = []string{"-g"} },
		"another directory": func(_ *Job, _ *toolchain.Toolchain, b *job.Body, _ *files.Set) { b.Cwd = "/y" },
		"another variable":  func(_ *Job, _ *toolchain.Toolchain, b *job.Body, _ *files.Set) { b.Env = []string{"CPATH=/z"} },
		"other files":       func(_ *Job, _ *toolchain.Toolchain, _ *job.Body, in *files.Set) { in.Lists = []unit.ContentID{{1}} },
		// A separator in a name must not make two keys equal.
		"part of a name": func(j *Job, tc *toolchain.Toolchain, _ *job.Body, _ *files.Set) { j.Owner, tc.Root = "", "a" },
	} {
		tc, b := &toolchain.Toolchain{Exec: "/usr/bin/gcc"}, &job.Body{Argv0: "gcc", Cwd: "/src", Name: "h.h"}
		j, in := &Job{Owner: "a", Toolchain: tc}, &files.Set{Body: b}
		change(j, tc, b, in)
		key := (&sourcesInTree{j: j}).imageKey(in)
		if other := seen[key]; other != "" {
			t.Errorf("%s has the key of %s", what, other)
		}
		seen[key] = what
	}
}

// TestMakerExceeds: a job whose precompiled header exceeds a limit has failed, like one that does so itself. It is not refused,
// which would make it the next host's trouble.
func TestMakerExceeds(t *testing.T) {
	no := job.Refuse(job.CauseLimit, "too many processes")
	for _, c := range []struct {
		err  error
		want job.Status
	}{{no, job.StatusRefused}, {fmt.Errorf("header: %w", &excessError{no}), job.StatusFailed}} {
		if r := (&Place{}).notLaid(&Job{}, c.err); r.Status != c.want || r.Cause != job.CauseLimit {
			t.Errorf("%v: %+v", c.err, r)
		}
	}
}
