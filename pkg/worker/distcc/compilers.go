package distcc

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/pkg/compile"
)

// identifyTime bounds the wait for a compiler that has yet to be identified after a start.
const identifyTime = 10 * time.Second

// errUnknown is the refusal of a compiler that is not offered.
var errUnknown = errors.New("not offered")

// compiler returns the compiler that a client means by name. It has to be one that the worker offers to its own clients, and to
// have that name in one of the directories of compilers: names are what distcc has in place of a toolchain's identity, so a
// name means what it would mean to somebody who types it here.
func (s *Server) compiler(ctx context.Context, name string) (*toolchain.Toolchain, error) {
	base := filepath.Base(name)
	if name != base && (!filepath.IsAbs(name) || filepath.Clean(name) != name) || !compile.CompilerName(base) {
		return nil, job.Refuse(job.CausePolicy, "compiler's name %q", name)
	}
	for until := time.Now().Add(identifyTime); ; {
		list, more := s.o.Toolchains()
		tc, err := find(name, s.o.Dirs(), list)
		if err == nil {
			return tc, nil
		}
		if !more || time.Now().After(until) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// find looks for name in the directories, and for what it is in the list.
func find(name string, dirs []string, list []toolchain.Toolchain) (*toolchain.Toolchain, error) {
	base := filepath.Base(name)
	if name != base {
		if dir := filepath.Dir(name); !slices.Contains(dirs, dir) {
			return nil, job.Refuse(job.CauseToolchain, "compiler %q is in none of toolchains.dirs (%s)", name, strings.Join(dirs, ", "))
		}
		dirs = []string{filepath.Dir(name)}
	}
	for _, dir := range dirs {
		real, err := filepath.EvalSymlinks(filepath.Join(dir, base))
		if err != nil {
			continue
		}
		as, ok := compile.DriverOf(base, real)
		for i := range list {
			if list[i].Path != real || list[i].Root != "" {
				continue
			}
			// One clang is several compilers, by its name.
			if d, _ := compile.DriverOf(list[i].Exec, real); ok && d == as {
				return &list[i], nil
			}
		}
		return nil, job.Refuse(job.CauseToolchain, "compiler %q: %s is %v here", name, real, errUnknown)
	}
	return nil, job.Refuse(job.CauseToolchain, "no compiler %q in toolchains.dirs (%s)", name, strings.Join(dirs, ", "))
}
