package toolchain

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rdistcc/rdistcc/internal/driver"
)

// Tidy is the family of clang-tidy, which is no compiler, but reads what one would read.
const Tidy = "clang-tidy"

// isTidy reports whether a program's file is clang-tidy.
func isTidy(path string) bool {
	name, _ := cutVersion(filepath.Base(path))
	return name == Tidy
}

// tidy identifies clang-tidy. It has no driver of its own that would describe itself: with -v, the driver in it says what it
// makes of a command, which is what counts.
func (f *finding) tidy() error {
	f.tc.Family = Tidy
	out, err := f.run(f.tc.Exec, "--version")
	if err != nil {
		return fmt.Errorf("identify compiler: %s --version: %w", f.tc.Exec, err)
	}
	if _, rest, ok := strings.Cut(out, "LLVM version "); ok {
		f.tc.Version = strings.TrimSpace(firstWord(firstLine([]byte(rest))))
	}
	major, _, _ := strings.Cut(f.tc.Version, ".")
	if f.tc.Major, err = strconv.Atoi(major); err != nil {
		return fmt.Errorf("identify compiler: %s --version names no version of LLVM: %w", f.tc.Exec, ErrUnknown)
	}
	if err := f.program("driver", f.tc.Path); err != nil {
		return err
	}
	// The driver in it would read words from such files, and does not say so.
	for _, dir := range []string{filepath.Dir(f.tc.Path), "/etc/clang"} {
		f.watch(dir)
		if found, _ := filepath.Glob(filepath.Join(dir, "*.cfg")); len(found) > 0 {
			return fmt.Errorf("identify compiler: %s may read %s: %w", f.tc.Exec, found[0], ErrUnknown)
		}
	}
	for _, lang := range []string{"c", "c++"} {
		out, err := f.run(f.tc.Exec, driver.TidySearchWords([]string{"-ffast-math"}, lang)...)
		if err != nil {
			return fmt.Errorf("identify compiler: %s: %w", f.tc.Exec, err)
		}
		p, h := part{role: "default:" + lang}, sha256.New()
		for line := range strings.Lines(out) {
			if v, ok := strings.CutPrefix(line, "Target: "); ok {
				f.tc.Target = strings.TrimSpace(v)
			} else if v, ok := strings.CutPrefix(line, "Found candidate GCC installation: "); ok && !strings.HasPrefix(v, "/../") {
				f.candidates = append(f.candidates, strings.TrimSpace(v))
			} else if strings.HasPrefix(line, " ") {
				h.Write([]byte(line))
			}
		}
		h.Sum(p.sum[:0])
		f.parts = append(f.parts, p)
	}
	if f.tc.Target == "" {
		return fmt.Errorf("identify compiler: %s names no target: %w", f.tc.Exec, ErrUnknown)
	}
	f.installations()
	f.tc.ID = identity(Tidy, "", f.tc.Target, f.parts)
	f.lists()
	return nil
}
