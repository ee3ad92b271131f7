package farm

// State is where a host's connection stands. The scheduler is told of each change, in the
// same hold of the farm's lock.
//
//	Connecting ─▶ Starting ─▶ Up ─▶ Draining
//	    │            │        │        │
//	    └────────────┴────────┴────────┴──▶ Down ─▶ Connecting, and so on
type State uint8

const (
	// Connecting is a host that is being dialled, or waits for its turn to be, and of which
	// nothing has been heard in this attempt. Every host begins so. The first attempt may
	// take as long as the scheduler's grace: jobs wait so long for it.
	Connecting State = iota

	// Starting is a host on which something has taken the connection and has not said yet
	// what it can do: a daemon that finds out what compilers it has, or one that hangs. Where
	// an attempt ends like this there is no back-off: the next one follows after startPause,
	// until that has gone on for as long as the patience of jobs is. Then the host is down.
	Starting

	// Up is a host with at least one connection whose daemon has said what it can do. It takes
	// jobs as far as there are credits, and gets further connections when it has much to do.
	// It stays up for as long as one of them lives.
	Up

	// Draining is a host whose daemon wants no new jobs. Its credits have gone back; what runs
	// there goes on. The state ends with the connections, when the daemon does. Hosts that are drained by
	// hand on this side are not in this state: they stay up, and the scheduler passes them over.
	Draining

	// Down is a host whose last attempt failed, or whose last connection was lost. Its
	// goroutine pauses as long as the scheduler says, or until a job that does not want to wait ends
	// the pause, and then connects again.
	Down

	numStates
)

var stateWords = [numStates]string{"connecting", "starting", "up", "draining", "down"}

func (s State) String() string { return stateWords[s] }

// States returns the words of all of them; the slice is not changed.
func States() []string { return stateWords[:] }
