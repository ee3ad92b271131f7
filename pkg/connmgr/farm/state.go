package farm

// State is the state of a host's connection. The scheduler is told of each change without releasing the
// farm's lock in between.
//
//	Connecting ─▶ Starting ─▶ Up ─▶ Draining
//	    │            │        │        │
//	    └────────────┴────────┴────────┴──▶ Down ─▶ Connecting, and so on
type State uint8

const (
	// Connecting is the state of a host that is being dialled, or waits for its turn, and has not accepted the
	// connection yet. Every host begins like this. Jobs wait for the first attempt for the scheduler's grace.
	Connecting State = iota

	// Starting is the state of a host that has accepted the connection but not sent what it can do: a daemon
	// that is still identifying its compilers, or one that hangs. If an attempt ends in this state, there is
	// no back-off: the next one follows after startPause. Once that has gone on for the patience of jobs, the
	// host is down.
	Starting

	// Up is the state of a host with at least one connection whose daemon has said what it can do. It takes
	// jobs as far as there are credits, and gets more connections when it has much to do. It stays up as long
	// as one of them lives.
	Up

	// Draining is the state of a host whose daemon wants no new jobs. Its credits were returned; what runs
	// there goes on. The state ends with the connections, when the daemon ends. A host that was drained by
	// hand on this side is not in this state: it stays up, and the scheduler passes it over.
	Draining

	// Down is the state of a host whose last attempt failed, or whose last connection was lost. Its goroutine
	// pauses as long as the scheduler says, or until a job that does not want to wait ends the pause, and
	// then connects again.
	Down

	numStates
)

var stateWords = [numStates]string{"connecting", "starting", "up", "draining", "down"}

func (s State) String() string { return stateWords[s] }

// States returns the words for all states. The caller must not change the slice.
func States() []string { return stateWords[:] }
