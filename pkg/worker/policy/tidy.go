package policy

import (
	"path"
	"strings"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/compile"
)

// checkTidy decides whether clang-tidy may do what p, the plan of a job, says: the words for the driver in it are checked as those
// of a compile are, and no configuration that the job brings adds to them. No link may lead to a configuration, so that it is
// certain which files are ones.
func checkTidy(b *job.Body, p *compile.Plan, tc Compiler, text [][]byte) error {
	if err := checkPrograms(p.CompileWords(), tc); err != nil {
		return err
	}
	named := ""
	if p.ConfigFile() != "" {
		named = seenFrom(b.Cwd, p.ConfigFile())
	}
	for _, l := range b.Links {
		if path.Base(l.Name) == compile.TidyConfig || named == l.Name || strings.HasPrefix(named, l.Name+"/") {
			return refuse(job.CausePolicy, "link %q on the way to a configuration", l.Name)
		}
	}
	there := named == ""
	for i := range b.Files {
		name := path.Clean(b.Files[i].Name)
		if path.Base(name) != compile.TidyConfig && name != named {
			continue
		}
		there = there || name == named
		content := text[i]
		if same := b.Files[i].Same; same != 0 && int(same) <= len(text) {
			content = text[same-1]
		}
		if !compile.ModestTidyConfig(content) {
			return refuse(job.CausePolicy, "configuration %q, which adds words to the command or names files", name)
		}
	}
	if !there {
		return refuse(job.CausePolicy, "configuration %q, which the job does not bring", named)
	}
	return nil
}
