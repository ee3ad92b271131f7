// Package scheduler chooses the host of a job. It does no I/O, starts no
// goroutine and is told the time.
package scheduler

import "time"

// Host is one entry of a host list.
type Host struct {
	Addr  string // host:port; the key
	Slots int    // jobs at a time that the list allows; 0 = as many as granted
}

// Job is what Pick knows of a job.
type Job struct {
	Hosts     []Host          // eligible by the job's host list, in its order
	Tried     map[string]bool // hosts that failed it already
	Toolchain [16]byte
	Size      uint64 // bytes of text if known, else 0
	Random    bool   // --randomize
	NoLocal   bool   // RDISTCC_MODE=remote
}

// Verdict of Pick.
type Verdict uint8

// Verdicts.
const (
	Run   Verdict = iota // on Decision.Host: one of its credits is taken
	Wait                 // ask again when something changed, at Decision.Until at the latest
	Local                // no host will do: Decision.Reason
)

// Decision is Pick's answer.
type Decision struct {
	Verdict Verdict
	Host    string
	Reason  string // one of the documented words
	Detail  string // one line for a person
	Until   time.Time
}
