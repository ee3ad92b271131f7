package main

import (
	"strconv"
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/typed"
)

// maxNesting is how deep compiler scripts may call rdistcc again before that counts as a
// loop. Two is in use: rdistcc, a script, a masquerade link.
const maxNesting = 8

// settings holds what the environment says, and the environment.
type settings struct {
	*typed.Settings
	env       []string // all of it, as it came
	childPath string   // PATH of the compilers that we run
}

func readSettings(env []string) *settings { return &settings{Settings: typed.Read(env), env: env} }

// hostText returns the host list that goes with a job.
func (s *settings) hostText() string {
	if s.Distcc == "" {
		return s.Hosts
	}
	const most = 1 << 20 // as hostlist.MaxText
	fd, err := syscall.Open(s.Distcc+"/hosts", syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
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

// getenv returns a variable that only a few runs ask for.
func (s *settings) getenv(name string) string { return typed.Getenv(s.env, name) }

// childEnv returns the environment of the commands that we run: our own, with typed.Safeguard
// one higher, and a PATH that does not lead back to us.
func (s *settings) childEnv() []string {
	env := make([]string, 0, len(s.env)+1)
	for _, kv := range s.env {
		switch {
		case strings.HasPrefix(kv, typed.Safeguard+"="), strings.HasPrefix(kv, ipc.PartVariable+"="):
			continue
		case strings.HasPrefix(kv, "PATH=") && kv[len("PATH="):] == s.Path:
			kv = "PATH=" + s.childPath
		}
		env = append(env, kv)
	}
	return append(env, typed.Safeguard+"="+strconv.Itoa(s.Level+1))
}
