package connmgr

import (
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
)

// Live are the Options that can change while a Manager serves. A zero field takes the same default as in
// Options.
type Live struct {
	NoFallback    bool
	Plugins       []string
	Fast          bool
	LocalShare    bool
	Preprocessors int
	LocalJobs     int
	Attempts      int
	Patience      time.Duration
	Audit         float64
	IOTimeout     time.Duration
	IdleExit      time.Duration
	Backoff       time.Duration
	BackoffMax    time.Duration
	ConnectGrace  time.Duration
}

// live returns the changeable options that a Manager begins with.
func (o *Options) live() Live {
	return Live{NoFallback: o.NoFallback, Plugins: o.Plugins, Fast: o.Fast, LocalShare: o.LocalShare, Preprocessors: o.Preprocessors, LocalJobs: o.LocalJobs,
		Attempts: o.Attempts, Patience: o.Patience, Audit: o.Audit, IOTimeout: o.IOTimeout, IdleExit: o.IdleExit,
		Backoff: o.Backoff, BackoffMax: o.BackoffMax, ConnectGrace: o.ConnectGrace}
}

func (l *Live) defaults(cores int) {
	setDefault(&l.Preprocessors, 2*cores)
	setDefault(&l.LocalJobs, cores)
	setDefault(&l.Attempts, 2)
	setDefault(&l.Patience, time.Minute)
	setDefault(&l.IOTimeout, 5*time.Minute)
}

// pace returns those of them that the farm uses.
func (l *Live) pace() farm.Pace {
	return farm.Pace{LocalJobs: l.LocalJobs, Patience: l.Patience, Backoff: l.Backoff, BackoffMax: l.BackoffMax, ConnectGrace: l.ConnectGrace}
}
