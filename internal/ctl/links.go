package ctl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/internal/reason"
)

func (c *ctl) linksCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "install-links DIR",
		Short: "Create links named like the compilers that lead to rdistcc",
		Long: "Creates links to rdistcc in DIR, one for each compiler on PATH: gcc, g++, cc, c++, clang, clang++, with their\n" +
			"versions (gcc-12) and targets (aarch64-linux-gnu-gcc). With DIR first on PATH a build uses the farm without any\n" +
			"other change. Run it again when a compiler has come or gone: links whose compiler is no longer on PATH are removed, and\n" +
			"files that are not such links are left alone.",
		Example: "  rdistcc install-links ~/.local/lib/rdistcc\n  PATH=~/.local/lib/rdistcc:$PATH make -j$(rdistcc -j)",
		Args:    one("DIR"),
		RunE: func(_ *cobra.Command, args []string) error {
			return c.installLinks(args[0])
		},
	}
}

func (c *ctl) installLinks(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return failf(reason.ExitIO, "%v", err)
	}
	target := filepath.Join(filepath.Dir(c.self), "rdistcc")
	if _, err := os.Stat(target); err != nil {
		return failf(reason.ExitGeneral, "%s: there is no rdistcc beside rdistcc-cm", target)
	}
	names := compilersOn(c.getenv("PATH"), dir, target)
	gone, err := unlink(dir, names)
	if err != nil {
		return failf(reason.ExitIO, "%v", err)
	}
	if len(names) == 0 {
		return failf(reason.ExitGeneral, "PATH has no compiler to stand before")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return failf(reason.ExitIO, "%v", err)
	}
	if rel, err := filepath.Rel(dir, target); err == nil && rel == "../../bin/rdistcc" {
		target = rel // an installation that may be moved as a whole
	}
	var made, kept, foreign []string
	for _, name := range names {
		done, err := link(filepath.Join(dir, name), target)
		switch {
		case errors.Is(err, errForeign):
			foreign = append(foreign, name)
		case err != nil:
			return failf(reason.ExitIO, "%v", err)
		case done:
			made = append(made, name)
		default:
			kept = append(kept, name)
		}
	}
	var b strings.Builder
	if len(made) > 0 {
		fmt.Fprintf(&b, "made in %s: %s\n", dir, strings.Join(made, " "))
	}
	if len(gone) > 0 {
		fmt.Fprintf(&b, "removed, as PATH has no such compiler: %s\n", strings.Join(gone, " "))
	}
	if len(kept) > 0 {
		fmt.Fprintf(&b, "there already: %s\n", strings.Join(kept, " "))
	}
	if len(made)+len(kept) > 0 && !slices.Contains(filepath.SplitList(c.getenv("PATH")), dir) {
		fmt.Fprintf(&b, "now put it first on PATH: export PATH=%q:$PATH\n", dir)
	}
	if err := c.print([]byte(b.String())); err != nil {
		return err
	}
	if len(foreign) > 0 {
		return failf(reason.ExitGeneral, "left alone in %s, as they are not links to rdistcc: %s", dir, strings.Join(foreign, " "))
	}
	return nil
}

// unlink removes the links in dir that lead to an rdistcc and are named like a compiler that is not among names: whoever looks
// for such a compiler would find one that cannot be run.
func unlink(dir string, names []string) (gone []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if to, err := os.Readlink(path); err != nil || filepath.Base(to) != "rdistcc" || !isCompilerName(e.Name()) || slices.Contains(names, e.Name()) {
			continue
		}
		if err := os.Remove(path); err != nil {
			return gone, err
		}
		gone = append(gone, e.Name())
	}
	return gone, nil
}

// errForeign means that there is something that is not ours.
var errForeign = errors.New("not a link to rdistcc")

// link makes path a link to target. It reports whether that was necessary. A link to a program called
// rdistcc elsewhere, such as an older installation's, is replaced.
func link(path, target string) (bool, error) {
	old, err := os.Readlink(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, os.Symlink(target, path)
	case err != nil || filepath.Base(old) != "rdistcc":
		if _, lerr := os.Lstat(path); lerr != nil {
			return false, lerr
		}
		return false, errForeign
	case old == target:
		return false, nil
	}
	// Replaced atomically: a build may be looking up the name at this moment.
	tmp := path + ".rdistcc-new"
	if err := os.Symlink(target, tmp); err != nil {
		return false, err
	}
	if err := os.Rename(tmp, path); err != nil {
		return false, errors.Join(err, os.Remove(tmp))
	}
	return true, nil
}

// compilersOn lists the compilers' names in the directories of a PATH except dir, each once and sorted.
// Programs that are rdistcc themselves do not count.
func compilersOn(path, dir, rdistcc string) []string {
	self, err := os.Stat(rdistcc)
	var names []string
	for _, d := range filepath.SplitList(path) {
		if d == "" || filepath.Clean(d) == dir {
			continue
		}
		entries, rerr := os.ReadDir(d)
		if rerr != nil {
			continue // PATH may have entries that do not exist
		}
		for _, e := range entries {
			if !isCompilerName(e.Name()) || slices.Contains(names, e.Name()) {
				continue
			}
			path := filepath.Join(d, e.Name())
			if real, err := filepath.EvalSymlinks(path); err != nil || filepath.Base(real) == "rdistcc" {
				continue // a link to nothing, or to another rdistcc
			}
			st, serr := os.Stat(path)
			if serr != nil || !st.Mode().IsRegular() || st.Mode().Perm()&0o111 == 0 || err == nil && os.SameFile(st, self) {
				continue
			}
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names
}

// isCompilerName reports whether name is [TARGET-]NAME[-VERSION]: "x86_64-linux-gnu-gcc-12", but not "gcc-ar" or
// "clang-format".
func isCompilerName(name string) bool {
	if i := strings.LastIndexByte(name, '-'); i > 0 && i+1 < len(name) && strings.Trim(name[i+1:], "0123456789.") == "" {
		name = name[:i]
	}
	bases := []string{"gcc", "g++", "cc", "c++", "clang", "clang++", "c89", "c99"}
	if slices.Contains(bases, name) {
		return true
	}
	// A target has at least two words: "aarch64-linux-gnu", "arm-none-eabi". That excludes other wrappers, such as
	// "afl-gcc" and "winegcc".
	i := strings.LastIndexByte(name, '-')
	return i > 0 && strings.Contains(name[:i], "-") && slices.Contains(bases[:2], name[i+1:]) ||
		i > 0 && strings.Contains(name[:i], "-") && slices.Contains(bases[4:6], name[i+1:])
}
