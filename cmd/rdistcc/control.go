package main

import (
	"syscall"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

const usage = `usage:
  rdistcc COMPILER ARG...    compile on the farm, say: rdistcc gcc -c hello.c
  rdistcc -c hello.c ...     the same with cc
  rdistcc COMMAND ...

commands:
  status        what the connection manager knows: hosts, jobs, reasons
  top           the same, drawn anew every second
  stats         sums since the manager started: places, reasons, times
  why FILE      where a file was compiled last, and why there
  hosts         the hosts that a job would use now
  drain HOST    give a host nothing new; undrain HOST ends that
  doctor [HOST] check this machine and the hosts, and say what to do
  config        the settings in force
  stop          end the connection manager
  certs DIR     make certificates for TLS between build and compile hosts
  install-links DIR
                make links named like the compilers: DIR first on PATH
                distributes every build
  completion SHELL
  --show-hosts  the host list, one line a host
  -j            jobs at a time for make -j
  --help  --version

environment: RDISTCC_HOSTS="build1 build2/8 localhost/2", RDISTCC_VERBOSE,
  RDISTCC_FALLBACK=0, RDISTCC_MODE=auto|remote|local, RDISTCC_REPORT=FILE,
  RDISTCC_TRACE=FILE, RDISTCC_DIR, RDISTCC_CONFIG
`

// isControl says that a first word is a subcommand. A compiler of such a name is
// reached by its path.
func isControl(word string) bool {
	switch word {
	case "status", "top", "stats", "why", "hosts", "drain", "undrain", "doctor", "config", "stop", "install-links", "certs", "completion", "--show-hosts", "-j":
		return true
	}
	return false
}

// control hands a subcommand to rdistcc-cm, which links what it takes.
func (s *settings) control(words []string) int {
	file, ok := findSibling("rdistcc-cm", s.path)
	if !ok {
		s.say(0, words[0], ": rdistcc-cm is neither beside rdistcc nor on PATH")
		return ipc.ExitGeneral
	}
	err := syscall.Exec(file, append([]string{"rdistcc-cm", "ctl"}, words...), s.env)
	s.say(0, file, ": ", err.Error())
	return ipc.ExitGeneral
}
