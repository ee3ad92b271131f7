// Package release finds out which build of rdistcc a program is.
package release

import (
	"cmp"
	"runtime/debug"
)

// Build names a build of a program. No field is empty.
type Build struct {
	// Version is the one that the Makefile linked in, else what the go command knows: that of the
	// module ("v1.2.3", "v0.0.0-20260102030405-abcdef123456+dirty"), or "devel".
	Version string
	// Revision is the full commit ID, with "-dirty" if files were changed, or "unknown".
	Revision string
}

// Of returns the build of the running program. linked is the version that was linked into it, or "".
func Of(linked string) Build {
	info, _ := debug.ReadBuildInfo() // nil: not built by the go command
	return of(linked, info)
}

func of(linked string, info *debug.BuildInfo) Build {
	b := Build{Version: linked}
	if info != nil {
		if v := info.Main.Version; v != "(devel)" { // neither a release nor in a repository
			b.Version = cmp.Or(b.Version, v)
		}
		dirty := ""
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				b.Revision = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				dirty = "-dirty"
			}
		}
		if b.Revision != "" {
			b.Revision += dirty
		}
	}
	b.Version = cmp.Or(b.Version, b.Revision, "devel")
	b.Revision = cmp.Or(b.Revision, "unknown")
	return b
}
