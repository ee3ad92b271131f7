package known

import (
	"path"
	"slices"

	"github.com/rdistcc/rdistcc/internal/inputs"
	"github.com/rdistcc/rdistcc/pkg/compile"
)

// tidyFits reports whether clang-tidy reads just the files of set, and a host would let it: no configuration adds words to the
// compile or names files, each has a name that tells so, and no precompiled header takes the place of others.
func tidyFits(plan *compile.Plan, cwd string, set *inputs.Set) bool {
	if len(set.Images) > 0 {
		return false
	}
	named := ""
	if plan.ConfigFile() != "" {
		named = path.Clean(from(cwd, plan.ConfigFile()))
		if !slices.ContainsFunc(set.Files, func(f *inputs.Input) bool { return f.Name == named }) {
			return false
		}
	}
	for _, l := range set.Links {
		if path.Base(l.Name) == compile.TidyConfig {
			return false
		}
	}
	for _, f := range set.Files {
		if path.Base(f.Name) != compile.TidyConfig && f.Name != named {
			continue
		}
		if text, err := f.Append(nil); err != nil || !compile.ModestTidyConfig(text) {
			return false
		}
	}
	return true
}
