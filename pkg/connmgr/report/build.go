package report

import "time"

// BuildJobs is what a manager tells of a build while it runs: the commands that have ended since the last time.
type BuildJobs struct {
	// PID and Since tell managers apart. Next continues where this answer ends, with the same manager only.
	PID   int       `json:"pid"`
	Since time.Time `json:"since"`
	Next  uint64    `json:"next"`
	More  bool      `json:"more,omitempty"` // there are more now
	// Lost is how many commands, of this build or others, are no longer remembered.
	Lost    uint64 `json:"lost,omitempty"`
	Running int    `json:"running"` // commands of the build under way
	// Jobs are in the order in which they ended, without the hosts that were considered.
	Jobs []JobRecord `json:"jobs"`
}

// Journal says where a manager notes what compiles read and took.
type Journal struct {
	Dir string `json:"dir,omitempty"` // empty: nowhere
}

// maxTold bounds the strings in an answer, in bytes, so that it fits a frame. Escaped, one can take six times as much.
const maxTold = 256 << 10

// OfBuild returns the commands of a build that were added to the book after the first from ones. The caller fills in
// the rest.
func (b *Book) OfBuild(build, from uint64) BuildJobs {
	out := BuildJobs{Jobs: []JobRecord{}}
	if oldest := b.n - min(b.n, maxRecent); from < oldest {
		out.Lost, from = oldest-from, oldest
	}
	size := 0
	for ; from < b.n; from++ {
		r := b.ring[from%maxRecent]
		if r.Build != build {
			continue
		}
		const figures = 1 << 10 // the rest of a record
		size += figures + len(r.Compiler) + len(r.Source) + len(r.Output) + len(r.Cwd) + len(r.Link) + len(r.Reason) + len(r.Detail) + len(r.Rule) + len(r.Missed)
		if size > maxTold && len(out.Jobs) > 0 {
			out.More = true
			break
		}
		r.Considered = nil
		out.Jobs = append(out.Jobs, r)
	}
	out.Next = from
	return out
}
