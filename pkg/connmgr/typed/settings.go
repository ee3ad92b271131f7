package typed

import (
	"strconv"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// Safeguard is the variable that counts how deeply rdistcc is nested in itself.
const Safeguard = "_RDISTCC_SAFEGUARD"

// Settings are what the environment of a command says.
type Settings struct {
	Level int    // nesting level
	Path  string // PATH

	Hosts  string // "": the manager's own
	Distcc string // DISTCC_DIR, where no variable gives the hosts
	Mode   ipc.Mode
	Inputs string // RDISTCC_INPUTS: "", InputsList or InputsText
	Cache  ipc.Cache
	Base   string // RDISTCC_BASE_DIR
	Build  string // build ID, for fair shares among builds; "": the manager finds out
	Link   string // ipc.PartVariable
	Report string
	Trace  string
	Log    string
	ErrFD  int // where our own lines go

	Fallback    ipc.Fallback
	ForbiddenBy string // the variable that forbids fallback, with its value
	SkipRetry   bool   // show the remote compiler's messages, do not compile again
	Verbose     int    // 0: not a word, 1: trouble, 2: each job

	IOTimeoutMS, BackoffMS uint32

	Complaints []string // settings with invalid values, one line each
}

// EmptyWord is what the wrapper puts before the compiler in the commands of a link's makefile. The next word is a file that is empty when
// the compile has gone well: gcc frees the room of what a partition was read from.
const EmptyWord = "--empty"

// Empties returns the file that the words of a wrapper's command have it empty, or "", and the words without that.
func (s *Settings) Empties(argv []string) (file string, rest []string) {
	if s.Link == "" || len(argv) < 4 || argv[1] != EmptyWord {
		return "", argv
	}
	return argv[2], append(argv[:1:1], argv[3:]...)
}

// Read reads each variable once. RDISTCC_HOSTS takes precedence over DISTCC_HOSTS
// even when it is empty, which means no hosts. In the same way, distcc's names for the
// fallback and the back-off count only where ours are not set.
func Read(env []string) *Settings {
	s := &Settings{Path: "/bin:/usr/bin", ErrFD: 2, Verbose: 1} // the path of a shell that has none
	var hosts, distccHosts, distccFallback, distccBackoff *string
	var fallback, backoff bool // our own variables are set
	for _, kv := range env {
		if len(kv) < 4 {
			continue
		}
		switch kv[0] { // most variables are not ours
		case 'R', 'D', 'P', 'U', '_':
		default:
			continue
		}
		name, value, ok := strings.Cut(kv, "=")
		if !ok {
			continue
		}
		switch name {
		case "PATH":
			s.Path = value
		case Safeguard:
			s.Level, _ = strconv.Atoi(value) // not a number: somebody else's variable, level 0
		case ipc.PartVariable:
			s.Link = value
		case "RDISTCC_HOSTS":
			hosts = &value
		case "DISTCC_HOSTS":
			distccHosts = &value
		case "DISTCC_DIR":
			s.Distcc = value
		case "RDISTCC_MODE":
			s.readMode(value)
		case "RDISTCC_BUILD":
			s.Build = value
		case "RDISTCC_INPUTS":
			s.readInputs(value)
		case "RDISTCC_BASE_DIR":
			s.Base = value
		case "RDISTCC_CACHE":
			s.readCache(value)
		case "RDISTCC_FALLBACK":
			fallback = true
			s.readFallback(name, value)
		case "DISTCC_FALLBACK":
			distccFallback = &value
		case "RDISTCC_SKIP_LOCAL_RETRY":
			s.SkipRetry = value != "" && value != "0"
		case "RDISTCC_REPORT":
			s.Report = value
		case "RDISTCC_TRACE":
			s.Trace = value
		case "RDISTCC_LOG":
			s.Log = value
		case "RDISTCC_VERBOSE":
			s.Verbose = s.number(name, value, 1)
		case "RDISTCC_IO_TIMEOUT":
			s.IOTimeoutMS = s.milliseconds(name, value)
		case "RDISTCC_BACKOFF_PERIOD":
			backoff = true
			s.readBackoff(name, value)
		case "DISTCC_BACKOFF_PERIOD":
			distccBackoff = &value
		case "UNCACHED_ERR_FD":
			if fd, err := strconv.Atoi(value); err == nil && fd >= 0 {
				s.ErrFD = fd
			}
		}
	}
	switch {
	case hosts != nil:
		s.Hosts, s.Distcc = oneList(*hosts), ""
	case distccHosts != nil:
		s.Hosts, s.Distcc = oneList(*distccHosts), ""
	}
	if !fallback && distccFallback != nil {
		s.readFallback("DISTCC_FALLBACK", *distccFallback)
	}
	if !backoff && distccBackoff != nil {
		s.readBackoff("DISTCC_BACKOFF_PERIOD", *distccBackoff)
	}
	return s
}

// Values of RDISTCC_INPUTS, beside auto.
const (
	InputsList = "list" // the compiler here lists what is read
	InputsText = "text" // preprocessed text
)

func (s *Settings) readInputs(value string) {
	switch value {
	case "", "auto":
	case InputsList, InputsText:
		s.Inputs = value
	default:
		s.Complaints = append(s.Complaints, "RDISTCC_INPUTS="+value+" is taken as auto (auto, list and text exist)")
	}
}

func (s *Settings) readCache(value string) {
	switch value {
	case "", "on":
	case "off":
		s.Cache = ipc.CacheOff
	case "refresh":
		s.Cache = ipc.CacheRefresh
	case "read":
		s.Cache = ipc.CacheRead
	default:
		s.Complaints = append(s.Complaints, "RDISTCC_CACHE="+value+" is taken as on (on, off, refresh and read exist)")
	}
}

// oneList distinguishes a list that is set but empty from one that is not set: a line
// break is a list without hosts.
func oneList(v string) string {
	if v == "" {
		return "\n"
	}
	return v
}

func (s *Settings) readMode(value string) {
	switch value {
	case "", "auto":
	case "remote":
		s.Mode = ipc.ModeRemote
		s.forbid("RDISTCC_MODE=remote")
	case "local":
		s.Mode = ipc.ModeLocal
	default:
		s.Complaints = append(s.Complaints, "RDISTCC_MODE="+value+" is taken as auto (auto, remote and local exist)")
	}
}

// readFallback evaluates a variable that may forbid the fallback, unless one already has.
func (s *Settings) readFallback(name, value string) {
	switch {
	case value == "0":
		s.forbid(name + "=0")
	case value != "" && s.Fallback == ipc.FallbackUnsaid:
		s.Fallback = ipc.FallbackAllowed
	}
}

func (s *Settings) forbid(by string) { s.Fallback, s.ForbiddenBy = ipc.FallbackForbidden, by }

func (s *Settings) readBackoff(name, value string) {
	if s.BackoffMS = s.milliseconds(name, value); s.BackoffMS == 0 && value == "0" {
		s.BackoffMS = ipc.NoBackoff
	}
}

// number reads a small count. An invalid one adds a complaint and yields the default.
func (s *Settings) number(name, value string, def int) int {
	n, err := strconv.Atoi(value)
	if value == "" {
		return def
	}
	if err != nil || n < 0 {
		s.Complaints = append(s.Complaints, name+"="+value+" is not a number; ignored")
		return def
	}
	return n
}

func (s *Settings) milliseconds(name, value string) uint32 {
	const most = int(ipc.NoBackoff/1000) - 1 // seconds that fit
	return uint32(min(s.number(name, value, 0), most)) * uint32(time.Second/time.Millisecond)
}
