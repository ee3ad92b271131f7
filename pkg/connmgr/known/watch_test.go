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
	if found, _ := filepath.Glob("/usr/bin/" + name + "-[1-9]*[0-9]"); err != nil && len(found) > 0 {
		path, err = found[0], nil
	}
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
	blind := w.blind(c, k)
	c = w.command(args, 2)
	if name, want := w.Judge(t.Context(), c, blind), w.dir+"/inc"; name != want {
		t.Errorf("%q, want %q", name, want)
	}
	c.Environ = func() []string { t.Error("watched again"); return nil }
	if name := w.Judge(t.Context(), c, blind); name != w.dir+"/inc" {
		t.Errorf("%q the second time", name)
	}
}

// blind returns a job of a model that lacks the first directory for headers, in a table that has not been asked for it either.
func (w *watching) blind(c *Command, k *Job) *Job {
	w.t.Helper()
	w.Table = New(1<<26, 0, slog.New(slog.DiscardHandler))
	s, q := *k.search, *k.search.query
	q.Angle, q.Key = q.Angle[1:], q.Key+"blind"
	s.query = &q
	var why string
	if s.set, why = w.resolve(c.Compiler, &q, s.plan.SearchLanguage(), s.ask); why != "" {
		w.t.Fatal(why)
	}
	return &Job{search: &s}
}

// TestJudgeOthers: commands that are more than a compile of one source and its headers are judged in the same way.
func TestJudgeOthers(t *testing.T) {
	const source = "#include \"x.h\"\n#if __has_include(\"y.h\")\n#endif\n"
	for _, c := range []struct {
		what, compiler string
		args           []string
		make           []string // a precompiled header
	}{
		{"precompiled header of gcc's", "g++", []string{"-Iinc", "-include", "p.h", "-c", "a.cpp"}, []string{"-Iinc", "-x", "c++-header", "-o", "p.h.gch", "p.h"}},
		{"precompiled header of clang's", "clang++", []string{"-Iinc", "-include-pch", "p.pch", "-c", "a.cpp"}, []string{"-Iinc", "-x", "c++-header", "-o", "p.pch", "p.h"}},
		{"clang-tidy", "clang-tidy", []string{"--checks=-*,bugprone-*", "--warnings-as-errors=*", "--export-fixes=f.yaml", "a.cpp", "--", "-Iinc"}, nil},
		{"module of gcc's", "g++", []string{"-std=c++20", "-fmodules-ts", "-Iinc", "-c", "m.cpp"}, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := newWatching(t, c.compiler, map[string]string{"a.cpp": source, "p.h": "#include \"x.h\"\n", "inc/x.h": "inline int f(int a) { return a; }\n", "lib/l": "",
				"m.cpp": "module;\n" + source + "export module m;\n"})
			command := func(more uint64) *Command {
				cmd := w.command(c.args, more)
				if c.compiler == "clang-tidy" {
					cmd.Lease.Source = "a.cpp"
				}
				return cmd
			}
			if c.make != nil {
				cmd := w.command(c.make, 1)
				m := w.Make(cmd)
				if m == nil {
					t.Fatal("makes no precompiled header")
				}
				compiler := exec.Command(w.compiler.Exec, c.make...)
				compiler.Dir = w.dir
				if out, err := compiler.CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				m.Made(t.Context())
				m.End()
				if n := w.Watched().Watched; m.made == nil || n != 1 {
					t.Fatalf("%d combinations watched, recipe: %v", n, m.made != nil)
				}
			}
			before := w.Watched().Watched
			k, _, why := w.Know(t.Context(), command(1))
			if k == nil {
				t.Fatal(why)
			}
			if want := c.make != nil; (len(k.Images) > 0) != want {
				t.Fatalf("%d precompiled headers", len(k.Images))
			}
			if name := w.Judge(t.Context(), command(1), k); name != "" || w.Watched().Watched != before+1 {
				t.Errorf("looked for %q, %d combinations watched, %d before", name, w.Watched().Watched, before)
			}
			if name, want := w.Judge(t.Context(), command(2), w.blind(command(2), k)), w.dir+"/inc"; name != want {
				t.Errorf("%q, want %q", name, want)
			}
			if _, err := os.Stat(filepath.Join(w.dir, "f.yaml")); err == nil {
				t.Error("a watch has written a file")
			}
		})
	}
}

// TestJudgeMaking: a precompiled header whose compiler has looked for what the model lacks has no recipe.
func TestJudgeMaking(t *testing.T) {
	w := newWatching(t, "clang", map[string]string{"p.h": "#include \"x.h\"\n", "inc/x.h": ""})
	c := w.command([]string{"-Iinc", "-x", "c-header", "-o", "p.pch", "p.h"}, 1)
	m := w.Make(c)
	if m == nil || m.from == nil {
		t.Fatal("not known what is made")
	}
	// A variable of which the model does not think leads the compiler to another file.
	if err := os.MkdirAll(filepath.Join(w.dir, "var"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.dir, "var/x.h"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	c.Environ = func() []string { return []string{"PATH=/usr/bin:/bin", "CPATH=" + filepath.Join(w.dir, "var")} }
	compiler := exec.Command(w.compiler.Exec, c.Lease.Command.Args...)
	compiler.Dir = w.dir
	if out, err := compiler.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	m.Made(t.Context())
	if m.made != nil {
		t.Error("there is a recipe")
	}
	if doubt := w.Watched().Last; doubt != filepath.Join(w.dir, "var") {
		t.Errorf("doubt %q", doubt)
	}
}

// TestJudgeListed: files that the compiler has found without listing them, by __has_include, count; what does not exist does not.
func TestJudgeListed(t *testing.T) {
	w := newWatching(t, "gcc", map[string]string{"a.c": "#include \"x.h\"\n#if __has_include(\"y.h\") || __has_include(\"z.h\")\n#endif\n", "inc/x.h": "", "inc/y.h": ""})
	args := []string{"-Iinc", "-o", "a.o", "-c", "a.c"}
	body := &job.Body{Files: []unit.File{{Name: "a.c"}, {Name: w.dir + "/inc/x.h"}, {Name: "./inc/../inc/y.h"}, {Name: "/usr/include/stdc-predef.h"}}}
	if name := w.JudgeListed(t.Context(), w.command(args, 1), body, nil); name != "" {
		t.Errorf("looked for %s", name)
	}
	body.Files[2].Name = "/elsewhere/y.h"
	if name, want := w.JudgeListed(t.Context(), w.command(args, 2), body, nil), w.dir+"/inc/y.h"; name != want {
		t.Errorf("%q, want %q", name, want)
	}
}
