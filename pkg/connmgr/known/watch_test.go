package known

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/lookups"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/compilers"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// watching is a directory in which commands of a real compiler are judged.
type watching struct {
	t   *testing.T
	dir string
	*Table
	compiler compilers.Compiler
}

func newWatching(t *testing.T, name string, files map[string]string) *watching {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		need.Skipf(t, need.Tools, "no %s", name)
	}
	if _, _, err := lookups.Run(t.Context(), path, []string{name, "--version"}, syscall.ProcAttr{}); errors.Is(err, lookups.ErrUnseen) {
		need.Skipf(t, need.Sandbox, "%v", err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o777), os.WriteFile(name, []byte(text), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	tc, err := new(toolchain.Cache).Identify(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return &watching{t, dir, New(1<<26, 0, slog.New(slog.DiscardHandler)), compilers.New(context.Background(), nil).Of(tc, path)}
}

// command returns a command whose wrapper has another variable for each more.
func (w *watching) command(args []string, more uint64) *Command {
	return &Command{Compiler: &w.compiler, Lease: &ipc.Lease{
		Compiler: w.compiler.Exec, Source: args[len(args)-1], Output: "a.o", Cwd: w.dir, Path: "/usr/bin:/bin",
		Command: &ipc.Command{Argv0: filepath.Base(w.compiler.Exec), Real: w.compiler.Path, Args: args, Names: more, View: ipc.Look(w.dir)},
	}, Environ: func() []string { return []string{"PATH=/usr/bin:/bin"} }}
}

// TestJudge: a Set that takes account of all that its compiler looks up is believed. If the model lacks a place, it is not, as long as
// the table lives; and the compiler is not run for each job.
func TestJudge(t *testing.T) {
	w := newWatching(t, "clang", map[string]string{"a.c": "#include \"x.h\"\n#if __has_include(\"y.h\")\n#endif\n", "inc/x.h": ""})
	args := []string{"-Iinc", "-I", "none", "-o", "a.o", "-c", "a.c"}
	c := w.command(args, 1)
	k, _, why := w.Know(t.Context(), c)
	if k == nil {
		t.Fatal(why)
	}
	if name := w.Judge(t.Context(), c, k); name != "" {
		t.Errorf("looked for %s", name)
	}
	// A model that lacks the directory, in a table that has not been asked for it either.
	w.Table = New(1<<26, 0, slog.New(slog.DiscardHandler))
	blind := *k
	q := *k.query
	q.Angle, q.Key = q.Angle[1:], q.Key+"blind"
	blind.query = &q
	if blind.Set, why = w.resolve(c.Compiler, &q, "c", k.ask); why != "" {
		t.Fatal(why)
	}
	c = w.command(args, 2)
	if name, want := w.Judge(t.Context(), c, &blind), w.dir+"/inc"; name != want {
		t.Errorf("%q, want %q", name, want)
	}
	c.Environ = func() []string { t.Error("watched again"); return nil }
	if name := w.Judge(t.Context(), c, &blind); name != w.dir+"/inc" {
		t.Errorf("%q the second time", name)
	}
}

// TestJudgeListed: files that the compiler has found without listing them, by __has_include, count; what does not exist does not.
func TestJudgeListed(t *testing.T) {
	w := newWatching(t, "gcc", map[string]string{"a.c": "#include \"x.h\"\n#if __has_include(\"y.h\") || __has_include(\"z.h\")\n#endif\n", "inc/x.h": "", "inc/y.h": ""})
	args := []string{"-Iinc", "-o", "a.o", "-c", "a.c"}
	body := &job.Body{Files: []unit.File{{Name: "a.c"}, {Name: w.dir + "/inc/x.h"}, {Name: "./inc/../inc/y.h"}, {Name: "/usr/include/stdc-predef.h"}}}
	if name := w.JudgeListed(t.Context(), w.command(args, 1), body); name != "" {
		t.Errorf("looked for %s", name)
	}
	body.Files[2].Name = "/elsewhere/y.h"
	if name, want := w.JudgeListed(t.Context(), w.command(args, 2), body), w.dir+"/inc/y.h"; name != want {
		t.Errorf("%q, want %q", name, want)
	}
}
