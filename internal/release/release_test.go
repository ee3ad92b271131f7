package release

import (
	"runtime/debug"
	"testing"
)

func TestOf(t *testing.T) {
	info := func(version string, settings ...string) *debug.BuildInfo {
		b := &debug.BuildInfo{Main: debug.Module{Version: version}}
		for i := 0; i < len(settings); i += 2 {
			b.Settings = append(b.Settings, debug.BuildSetting{Key: settings[i], Value: settings[i+1]})
		}
		return b
	}
	for _, c := range []struct {
		name, linked string
		info         *debug.BuildInfo
		want         Build
	}{
		{"make", "v1.2", info("v1.2.1-0.2026", "vcs.revision", "abc", "vcs.modified", "false"), Build{"v1.2", "abc"}},
		{"go build in a repository", "", info("v1.2.1-0.2026+dirty", "vcs.revision", "abc", "vcs.modified", "true"), Build{"v1.2.1-0.2026+dirty", "abc-dirty"}},
		{"go install of a release", "", info("v1.2.3"), Build{"v1.2.3", "unknown"}},
		{"an older go command", "", info("(devel)", "vcs.modified", "true", "vcs.revision", "abc"), Build{"abc-dirty", "abc-dirty"}},
		{"go build of an archive", "", info("(devel)"), Build{"devel", "unknown"}},
		{"no build information", "", nil, Build{"devel", "unknown"}},
	} {
		if got := of(c.linked, c.info); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
