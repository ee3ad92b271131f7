// Package all lists the experiments.
package all

import (
	"maps"

	"github.com/rdistcc/rdistcc/lab/exp"
	"github.com/rdistcc/rdistcc/lab/exp/jobs"
	"github.com/rdistcc/rdistcc/lab/exp/memory"
	"github.com/rdistcc/rdistcc/lab/exp/offload"
	"github.com/rdistcc/rdistcc/lab/exp/peer"
	"github.com/rdistcc/rdistcc/lab/exp/streams"
	"github.com/rdistcc/rdistcc/lab/exp/wire"
)

// Experiments are all of them, by their numbers. One that is added has a line here, and a section in
// lab/experiments.md.
var Experiments = []*exp.Experiment{
	jobs.Carriers,
	jobs.Setup,
	jobs.Distance,
	memory.Registration,
	memory.Revocation,
	wire.WaitingWays,
	streams.Direct,
	streams.Reads,
	streams.Applications,
	streams.Throughput,
	streams.Overlap,
	streams.Touching,
	streams.Connections,
	wire.Framing,
	offload.Asymmetric,
	wire.Latency,
	wire.Fairness,
}

// Find returns the experiment with that ID or name, or nil.
func Find(name string) *exp.Experiment {
	for _, e := range Experiments {
		if e.ID == name || e.Name == name {
			return e
		}
	}
	return nil
}

// Handlers returns what a peer does for all experiments.
func Handlers() map[string]peer.Handler {
	all := make(map[string]peer.Handler)
	for _, h := range []map[string]peer.Handler{jobs.Handlers(), streams.Handlers(), wire.Handlers()} {
		maps.Copy(all, h)
	}
	return all
}
