package main

import "github.com/rdistcc/rdistcc/internal/reason"

const usage = `usage:
  rdistcc COMPILER ARG...    compile on the farm, as in: rdistcc gcc -c hello.c
  rdistcc -c hello.c ...     the same with cc
  rdistcc COMMAND ...

commands:
  build COMMAND run a build, and say at its end what the farm has gained
  builds        past builds: how long each took, and would have taken without
  trace         what ran where and when in a past build, for Perfetto or OTLP
  costs         what units and headers cost, and why the cache missed
  status        what is running, the hosts, and why compiles ran locally
  top           watch that on the terminal; drain hosts with a key
  stats         totals since the manager started: places, reasons, times
  why [FILE]    where a file was last compiled, and why; without FILE, the
                last commands
  hosts         the hosts that a compile would use now
  drain HOST    send no new jobs to a host; undrain HOST undoes that
  doctor [HOST] check this machine and the hosts, and tell what to fix
  logs HOST     the log of a host's daemon; with -f it is followed
  cache         the cache of results: cache stats, clear, prune, verify
  toolchain     which hosts have the compilers used here: toolchain list; what
                hosts are sent: toolchain pack; send one now: toolchain send
  config        the effective settings; config --origins: where each comes from
  reload        make the connection manager read its settings again
  stop          stop the connection manager
  certs DIR     create certificates for TLS between build and compile hosts
  install-links DIR
                create links named like the compilers: with DIR first on
                PATH, every build is distributed
  migrate PROGRAM
                what to change when coming from distcc, icecream or sccache
  dtlto FILE    compile what a ThinLTO link of lld has left: rdistcc help lto
  completion SHELL
                a completion script for bash, zsh or fish
  help [COMMAND]
  --show-hosts  the host list, one host per line
  -j            how many jobs to give to make -j
  --help  --version

environment: RDISTCC_HOSTS="build1 build2/8 localhost/2", RDISTCC_VERBOSE,
  RDISTCC_FALLBACK=0, RDISTCC_MODE=auto|remote|local, RDISTCC_REPORT=FILE,
  RDISTCC_CACHE=on|off|read|refresh, RDISTCC_TRACE=FILE, RDISTCC_DIR, RDISTCC_CONFIG
`

// subcommands lists the first words that are not taken for a compiler's name. A compiler
// with such a name can still be run by its path.
var subcommands = [...]string{"build", "builds", "trace", "costs", "status", "top", "stats", "why", "hosts", "drain", "undrain", "doctor", "logs", "cache", "toolchain", "config", "reload", "stop",
	"install-links", "certs", "migrate", "dtlto", "completion", "help", "--show-hosts", "-j"}

func isControl(word string) bool {
	for _, c := range &subcommands {
		if word == c {
			return true
		}
	}
	return false
}

// meant returns the subcommand that a mistyped word was probably meant to be, or "" when
// none is close. The word is neither a subcommand nor a program.
func meant(word string) string {
	best, least := "", 1+len(word)/4 // one typo allowed in four letters, two in eight
	for _, c := range &subcommands {
		if d := distance(word, c); c[0] != '-' && d <= least {
			best, least = c, d-1
		}
	}
	return best
}

// distance counts the letters that are wrong, missing, superfluous, or swapped with the next.
func distance(a, b string) int {
	const most = 16 // longer than any subcommand
	if len(a) >= most || len(b) >= most {
		return most
	}
	var d [most][most]int
	for i := range len(a) + 1 {
		for j := range len(b) + 1 {
			if i == 0 || j == 0 {
				d[i][j] = i + j
				continue
			}
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, d[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}

// control hands a subcommand to rdistcc-cm, which links the packages that it needs.
func (s *settings) control(words []string) int {
	file, ok := findSibling("rdistcc-cm", s.Path)
	if !ok {
		s.say(0, words[0], ": rdistcc-cm is neither beside rdistcc nor on PATH")
		return reason.ExitGeneral
	}
	err := become(file, append([]string{"rdistcc-cm", "ctl"}, words...), s.env)
	s.say(0, file, ": ", err.Error())
	return reason.ExitGeneral
}
