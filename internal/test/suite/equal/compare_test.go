package equal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// command is one to be compared.
type command struct {
	line    string // for sh
	cc, cxx string // the compilers that $CC and $CXX mean
	shell   bool   // the shell, not the compiler, wrote to stderr: not compared
}

// entry is one file of a snapshot.
type entry struct {
	kind byte        // f, d, l, o; - for one that is gone
	mode fs.FileMode // permissions; 0 for links
	data string      // content, or a link's target
	same string      // the first name of the same file, where it has several
	node node
}

// node tells whether a file was touched at all.
type node struct {
	number uint64
	ctime  syscall.Timespec
}

// snapshot returns everything below dir. Unchanged files are not read again.
func snapshot(dir string, before map[string]entry) (map[string]entry, error) {
	all := make(map[string]entry)
	first := make(map[uint64]string)
	var closed []func() error // closes again what an ordinary user could not read
	open := func(path string, mode os.FileMode) error {
		closed = append(closed, func() error { return os.Chmod(path, mode) })
		return os.Chmod(path, mode|0o700)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || name == "." {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		e := entry{kind: 'o', mode: info.Mode().Perm(), node: node{st.Ino, st.Ctim}}
		switch info.Mode().Type() {
		case 0:
			e.kind = 'f'
			if old, ok := before[name]; ok && old.node == e.node {
				e.data = old.data
			} else {
				text, err := os.ReadFile(path)
				if errors.Is(err, os.ErrPermission) {
					if err = open(path, e.mode); err == nil {
						text, err = os.ReadFile(path)
					}
				}
				if err != nil {
					return err
				}
				e.data = string(text)
			}
			if st.Nlink > 1 {
				if _, seen := first[st.Ino]; !seen {
					first[st.Ino] = name
				}
				e.same = first[st.Ino]
			}
		case fs.ModeDir:
			e.kind, e.node = 'd', node{} // its times are those of its content
			if e.mode&0o500 != 0o500 && os.Geteuid() != 0 {
				if err := open(path, e.mode); err != nil {
					return err
				}
			}
		case fs.ModeSymlink:
			e.kind, e.mode = 'l', 0
			if e.data, err = os.Readlink(path); err != nil {
				return err
			}
		}
		all[name] = e
		return nil
	})
	for _, again := range slices.Backward(closed) { // the content of a directory before the directory
		err = errors.Join(err, again())
	}
	return all, err
}

// changes is what differs between two snapshots.
func changes(before, after map[string]entry) map[string]entry {
	d := make(map[string]entry)
	for name, e := range after {
		old := before[name]
		old.node = e.node
		if old != e {
			d[name] = e
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			d[name] = entry{kind: '-'}
		}
	}
	return d
}

// touched are the names of what is not just as it was.
func touched(before, after map[string]entry) (names []string) {
	for name, e := range after {
		if before[name] != e {
			names = append(names, name)
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			names = append(names, name)
		}
	}
	return names
}

// verdict is what a comparison found.
type verdict struct {
	plain, wrapped outcome
	diffs          []string
	unstable       []string // differs, but between two plain runs as well
}

// compare runs c plain and with rdistcc. If something differs, it runs plain again, to see whether the
// result is the same each time without rdistcc.
func (p *place) compare(ctx context.Context, f *fixtures, c command) (v verdict, err error) {
	if v.plain, err = p.run(ctx, f, c, false); err != nil {
		return v, err
	}
	if v.wrapped, err = p.run(ctx, f, c, true); err != nil {
		return v, err
	}
	found := differences(v.plain, v.wrapped, c)
	if len(found) == 0 {
		return v, nil
	}
	unstable := make(map[string]string)
	same := func(what string) bool { _, differs := unstable[what]; return !differs }
	// gcc -gctf makes one of two objects, as its addresses fall: a few runs may well come out the same.
	for range 20 {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(found)), same) {
			break
		}
		again, err := p.run(ctx, f, c, false)
		if err != nil {
			return v, err
		}
		maps.Copy(unstable, differences(v.plain, again, c))
	}
	for _, what := range slices.Sorted(maps.Keys(found)) {
		if !same(what) {
			v.unstable = append(v.unstable, what)
			continue
		}
		v.diffs = append(v.diffs, what+": "+found[what])
	}
	return v, nil
}

// differences are by what differs: stdout, a file's content ...
func differences(a, b outcome, c command) map[string]string {
	d := make(map[string]string)
	if a.status != b.status {
		d["status"] = fmt.Sprintf("%d, plain %d", b.status, a.status)
	}
	for _, s := range []struct{ what, a, b string }{{"stdout", a.stdout, b.stdout}, {"stderr", a.stderr, b.stderr}} {
		if s.a, s.b = steady(s.a), steady(s.b); s.a != s.b && (s.what == "stdout" || !c.shell) {
			d[s.what] = fmt.Sprintf("got\n%s\nplain\n%s", head(s.b), head(s.a))
		}
	}
	a.files, b.files = named(a.files), named(b.files)
	names := maps.Clone(a.files)
	maps.Copy(names, b.files)
	for name := range names {
		x, inA := a.files[name]
		y, inB := b.files[name]
		switch {
		case !inA:
			d["file "+name] = "made or changed only with rdistcc"
		case !inB:
			d["file "+name] = "made or changed only without rdistcc"
		case x.kind != y.kind || x.same != y.same:
			d["file "+name] = fmt.Sprintf("is %c %s, plain %c %s", y.kind, y.same, x.kind, x.same)
		case x.mode != y.mode:
			d["mode of "+name] = fmt.Sprintf("%o, plain %o", y.mode, x.mode)
		}
		if inA && inB && x.data != y.data && steady(x.data) != steady(y.data) {
			how := howDifferent(x.data, y.data)
			d["content of "+name] = how
		}
	}
	if len(a.left) != len(b.left) {
		d["TMPDIR"] = fmt.Sprintf("%q, plain %q", b.left, a.left)
	}
	return d
}

// temporary matches the random names of compilers' temporary files.
var temporary = regexp.MustCompile(`/[^\s"':]*/(cc[A-Za-z0-9]{6}|[\w.+-]+-[0-9a-f]{6,8})(\.[\w.]+)?`)

// unfinished matches the end of a name under which clang writes a file before it gives it its own. Killed by SIGPIPE, as
// from clang 21 on where nobody reads its messages, it leaves the file.
var unfinished = regexp.MustCompile(`-[0-9a-f]{8}(\.\w+)?\.tmp$`)

// named are files by names without what is random in them.
func named(files map[string]entry) map[string]entry {
	all := make(map[string]entry, len(files))
	for name, e := range files {
		all[unfinished.ReplaceAllString(name, "-TMP$1")] = e
	}
	return all
}

// steady is text without what is random in it.
func steady(s string) string {
	if !strings.Contains(s, "/") {
		return s
	}
	return temporary.ReplaceAllString(s, "/TMP$2")
}

// head is the begin of a text.
func head(s string) string {
	const most = 1500 // bytes
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// debugOnly begins a difference that strip -g takes away.
const debugOnly = "debug information only"

// howDifferent tells about two contents what helps to find out why.
func howDifferent(a, b string) string {
	if strings.HasPrefix(a, "\x7fELF") && strings.HasPrefix(b, "\x7fELF") {
		if strip(a, "-g") == strip(b, "-g") {
			return fmt.Sprintf("%s (%d bytes, plain %d)", debugOnly, len(b), len(a))
		}
		if strip(a, "-s") == strip(b, "-s") {
			return fmt.Sprintf("debug information and symbols (%d bytes, plain %d)", len(b), len(a))
		}
		return fmt.Sprintf("CODE (%d bytes, plain %d)", len(b), len(a))
	}
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return fmt.Sprintf("line %d: %.200q, plain %.200q", i+1, y[i], x[i])
		}
	}
	return fmt.Sprintf("%d lines, plain %d", len(y), len(x))
}

// strip is the object without what strip's option takes away.
func strip(object, option string) string {
	f, err := os.CreateTemp("", "rdistcc-strip-")
	if err != nil {
		return err.Error()
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(object)
	f.Close()
	if err != nil {
		return err.Error()
	}
	// One that strip does not understand stays as it is.
	_ = exec.Command("strip", option, f.Name()).Run()
	text, err := os.ReadFile(f.Name())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// keep copies what differs below -keep, if that is given.
func (v verdict) keep(id string) error {
	if *keepDir == "" || len(v.diffs) == 0 {
		return nil
	}
	for side, o := range map[string]outcome{"plain": v.plain, "rdistcc": v.wrapped} {
		dir := filepath.Join(*keepDir, strings.ReplaceAll(id, "/", "_"), side)
		for name, e := range o.files {
			if e.kind != 'f' {
				continue
			}
			path := filepath.Join(dir, "w", name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(path, []byte(e.data), 0o644); err != nil {
				return err
			}
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		for name, text := range map[string]string{"stdout": o.stdout, "stderr": o.stderr, "report": strings.Join(o.report, "\n")} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
