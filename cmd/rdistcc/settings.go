package main

import (
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// safeguard is the variable that counts how deeply rdistcc is nested in itself.
const safeguard = "_RDISTCC_SAFEGUARD"

// maxNesting is how deep compiler scripts may call rdistcc again before that counts as a
// loop. Two is in use: rdistcc, a script, a masquerade link.
const maxNesting = 8

// settings holds what the environment says.
type settings struct {
	env   []string // all of it, as it came
	level int      // nesting level
	path  string   // PATH

	childPath string // PATH of the compilers that we run

	hosts  string // "": the manager's own
	distcc string // DISTCC_DIR, where no variable gives the hosts
	mode   ipc.Mode
	inputs string // RDISTCC_INPUTS: "", inputsList or inputsText
	cache  ipc.Cache
	base   string // RDISTCC_BASE_DIR
	build  string // build ID, for fair shares among builds; "": the manager finds out
	link   string // ipc.PartVariable
	report string
	trace  string
	log    string
	errFD  int // where our own lines go

	fallback    ipc.Fallback
	forbiddenBy string // the variable that forbids fallback, with its value
	skipRetry   bool   // show the remote compiler's messages, do not compile again
	verbose     int    // 0: not a word, 1: trouble, 2: each job

	ioTimeoutMS, backoffMS uint32

	complaints []string // settings with invalid values, one line each
}

// readSettings reads each variable once. RDISTCC_HOSTS takes precedence over DISTCC_HOSTS
// even when it is empty, which means no hosts. In the same way, distcc's names for the
// fallback and the back-off count only where ours are not set.
func readSettings(env []string) *settings {
	s := &settings{env: env, path: "/bin:/usr/bin", errFD: 2, verbose: 1} // the path of a shell that has none
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
			s.path = value
		case safeguard:
			s.level, _ = strconv.Atoi(value) // not a number: somebody else's variable, level 0
		case ipc.PartVariable:
			s.link = value
		case "RDISTCC_HOSTS":
			hosts = &value
		case "DISTCC_HOSTS":
			distccHosts = &value
		case "DISTCC_DIR":
			s.distcc = value
		case "RDISTCC_MODE":
			s.readMode(value)
		case "RDISTCC_BUILD":
			s.build = value
		case "RDISTCC_INPUTS":
			s.readInputs(value)
		case "RDISTCC_BASE_DIR":
			s.base = value
		case "RDISTCC_CACHE":
			s.readCache(value)
		case "RDISTCC_FALLBACK":
			fallback = true
			s.readFallback(name, value)
		case "DISTCC_FALLBACK":
			distccFallback = &value
		case "RDISTCC_SKIP_LOCAL_RETRY":
			s.skipRetry = value != "" && value != "0"
		case "RDISTCC_REPORT":
			s.report = value
		case "RDISTCC_TRACE":
			s.trace = value
		case "RDISTCC_LOG":
			s.log = value
		case "RDISTCC_VERBOSE":
			s.verbose = s.number(name, value, 1)
		case "RDISTCC_IO_TIMEOUT":
			s.ioTimeoutMS = s.milliseconds(name, value)
		case "RDISTCC_BACKOFF_PERIOD":
			backoff = true
			s.readBackoff(name, value)
		case "DISTCC_BACKOFF_PERIOD":
			distccBackoff = &value
		case "UNCACHED_ERR_FD":
			if fd, err := strconv.Atoi(value); err == nil && fd >= 0 {
				s.errFD = fd
			}
		}
	}
	switch {
	case hosts != nil:
		s.hosts, s.distcc = oneList(*hosts), ""
	case distccHosts != nil:
		s.hosts, s.distcc = oneList(*distccHosts), ""
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
	inputsList = "list" // the compiler here lists what is read
	inputsText = "text" // preprocessed text
)

func (s *settings) readInputs(value string) {
	switch value {
	case "", "auto":
	case inputsList, inputsText:
		s.inputs = value
	default:
		s.complaints = append(s.complaints, "RDISTCC_INPUTS="+value+" is taken as auto (auto, list and text exist)")
	}
}

func (s *settings) readCache(value string) {
	switch value {
	case "", "on":
	case "off":
		s.cache = ipc.CacheOff
	case "refresh":
		s.cache = ipc.CacheRefresh
	case "read":
		s.cache = ipc.CacheRead
	default:
		s.complaints = append(s.complaints, "RDISTCC_CACHE="+value+" is taken as on (on, off, refresh and read exist)")
	}
}

// hostText returns the host list that goes with a job.
func (s *settings) hostText() string {
	if s.distcc == "" {
		return s.hosts
	}
	const most = 1 << 20 // as hostlist.MaxText
	fd, err := syscall.Open(s.distcc+"/hosts", syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "" // distcc looks further, too
	}
	defer syscall.Close(fd)
	var st syscall.Stat_t
	if syscall.Fstat(fd, &st) != nil || st.Mode&syscall.S_IFMT != syscall.S_IFREG || st.Size > most {
		return ""
	}
	text := make([]byte, st.Size)
	n, err := syscall.Read(fd, text)
	if err != nil {
		return ""
	}
	return ipc.DistccList + string(text[:n])
}

// oneList distinguishes a list that is set but empty from one that is not set: a line
// break is a list without hosts.
func oneList(v string) string {
	if v == "" {
		return "\n"
	}
	return v
}

func (s *settings) readMode(value string) {
	switch value {
	case "", "auto":
	case "remote":
		s.mode = ipc.ModeRemote
		s.forbid("RDISTCC_MODE=remote")
	case "local":
		s.mode = ipc.ModeLocal
	default:
		s.complaints = append(s.complaints, "RDISTCC_MODE="+value+" is taken as auto (auto, remote and local exist)")
	}
}

// readFallback evaluates a variable that may forbid the fallback, unless one already has.
func (s *settings) readFallback(name, value string) {
	switch {
	case value == "0":
		s.forbid(name + "=0")
	case value != "" && s.fallback == ipc.FallbackUnsaid:
		s.fallback = ipc.FallbackAllowed
	}
}

func (s *settings) forbid(by string) { s.fallback, s.forbiddenBy = ipc.FallbackForbidden, by }

func (s *settings) readBackoff(name, value string) {
	if s.backoffMS = s.milliseconds(name, value); s.backoffMS == 0 && value == "0" {
		s.backoffMS = ipc.NoBackoff
	}
}

// number reads a small count. An invalid one adds a complaint and yields the default.
func (s *settings) number(name, value string, def int) int {
	n, err := strconv.Atoi(value)
	if value == "" {
		return def
	}
	if err != nil || n < 0 {
		s.complaints = append(s.complaints, name+"="+value+" is not a number; ignored")
		return def
	}
	return n
}

func (s *settings) milliseconds(name, value string) uint32 {
	const most = int(ipc.NoBackoff/1000) - 1 // seconds that fit
	return uint32(min(s.number(name, value, 0), most)) * uint32(time.Second/time.Millisecond)
}

// getenv returns a variable that only a few runs ask for.
func (s *settings) getenv(name string) string {
	for _, kv := range s.env {
		if len(kv) > len(name) && kv[len(name)] == '=' && kv[:len(name)] == name {
			return kv[len(name)+1:]
		}
	}
	return ""
}

// childEnv returns the environment of the commands that we run: our own, with the safeguard
// one higher, and a PATH that does not lead back to us.
func (s *settings) childEnv() []string {
	env := make([]string, 0, len(s.env)+1)
	for _, kv := range s.env {
		switch {
		case strings.HasPrefix(kv, safeguard+"="), strings.HasPrefix(kv, ipc.PartVariable+"="):
			continue
		case strings.HasPrefix(kv, "PATH=") && kv[len("PATH="):] == s.path:
			kv = "PATH=" + s.childPath
		}
		env = append(env, kv)
	}
	return append(env, safeguard+"="+strconv.Itoa(s.level+1))
}
