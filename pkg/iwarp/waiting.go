package iwarp

import (
	"fmt"
	"strings"
	"time"
)

// WaitMode is the way in which CQ.Wait waits.
type WaitMode uint8

// Ways of waiting.
const (
	// WaitLoan blocks, like WaitEvent, except that a caller that waits for one message after the
	// other reads the connection itself. On the software device that saves a switch of
	// goroutines for each message; other devices treat it like WaitEvent. It is the default,
	// because it takes no processor from anything else (experiment E4, lab/experiments.md).
	WaitLoan WaitMode = iota
	// WaitEvent blocks. The device wakes the caller.
	WaitEvent
	// WaitHybrid spins for Waiting.Spin and then waits like WaitLoan.
	WaitHybrid
	// WaitPoll spins: the caller keeps a processor busy as long as it waits, up to PollLimit at a
	// time.
	WaitPoll
)

const (
	// DefaultSpin is how long WaitHybrid spins if Waiting.Spin is 0. It is a few round trips of a
	// small message on a loopback or in a rack: an answer that takes longer than that is
	// unlikely to come soon.
	DefaultSpin = 50 * time.Microsecond
	// MaxSpin is the longest Waiting.Spin.
	MaxSpin = PollLimit
	// PollLimit is how long a Wait with WaitPoll spins without a completion. After that it
	// waits like WaitLoan until the next one, so that an idle connection costs nothing however
	// it is waited for.
	PollLimit = time.Second
)

// Waiting says how CQ.Wait waits. The zero value is WaitLoan. It is a flag.Value, a pflag.Value and an
// encoding.TextUnmarshaler.
type Waiting struct {
	Mode WaitMode
	Spin time.Duration // of WaitHybrid, at most MaxSpin; 0 = DefaultSpin
}

// waitModes are the words for the modes, in the order of their numbers.
var waitModes = [...]string{WaitLoan: "loan", WaitEvent: "event", WaitHybrid: "hybrid", WaitPoll: "poll"}

// ParseWaiting parses "loan", "event", "poll", "hybrid" and "hybrid:DURATION".
func ParseWaiting(s string) (w Waiting, err error) {
	word, spin, timed := strings.Cut(s, ":")
	for m, name := range waitModes {
		if word != name {
			continue
		}
		w.Mode = WaitMode(m)
		if !timed {
			return w, nil
		}
		if w.Mode != WaitHybrid {
			return Waiting{}, fmt.Errorf("%q: only hybrid takes a duration, as in hybrid:20us", s)
		}
		if w.Spin, err = time.ParseDuration(spin); err != nil || w.Spin <= 0 || w.Spin > MaxSpin {
			return Waiting{}, fmt.Errorf("%q: give hybrid a duration of up to %v, as in hybrid:20us", s, MaxSpin)
		}
		return w, nil
	}
	return Waiting{}, fmt.Errorf("%q is none of loan, event, poll, hybrid and hybrid:DURATION", s)
}

func (w Waiting) String() string {
	switch {
	case int(w.Mode) >= len(waitModes):
		return fmt.Sprintf("WaitMode(%d)", w.Mode)
	case w.Mode == WaitHybrid && w.Spin != 0:
		return "hybrid:" + w.Spin.String()
	}
	return waitModes[w.Mode]
}

// Set is ParseWaiting for flags.
func (w *Waiting) Set(s string) (err error) {
	*w, err = ParseWaiting(s)
	return err
}

// Type names the value in the help of a command.
func (w *Waiting) Type() string { return "how" }

// UnmarshalText is ParseWaiting for configuration files.
func (w *Waiting) UnmarshalText(text []byte) error { return w.Set(string(text)) }

// MarshalText returns what UnmarshalText parses.
func (w Waiting) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// Valid returns an error for an unknown mode, or a Spin that is negative, longer than MaxSpin, or of
// another mode than WaitHybrid.
func (w Waiting) Valid() error {
	if int(w.Mode) >= len(waitModes) || w.Spin < 0 || w.Spin > MaxSpin || w.Spin != 0 && w.Mode != WaitHybrid {
		return fmt.Errorf("%w: wait as %s, spinning for %v", ErrInvalid, w, w.Spin)
	}
	return nil
}

// SpinFor returns how long a Wait spins before it blocks.
func (w Waiting) SpinFor() time.Duration {
	switch {
	case w.Mode == WaitPoll:
		return PollLimit
	case w.Mode != WaitHybrid:
		return 0
	case w.Spin == 0:
		return DefaultSpin
	}
	return w.Spin
}
