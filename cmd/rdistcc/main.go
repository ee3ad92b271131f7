// Command rdistcc compiles one file on a farm. It stands before a compiler's command
// line, or is found on PATH under a compiler's name.
//
// It is started once for each source file, so it is small and links little: what a
// subcommand needs lives in rdistcc-cm. Only this file, settings.go and run.go look at
// the process they run in; package quick begins it, and mostly is all of it.
package main

import (
	"os"
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/internal/entrypoint"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/typed"
)

// version is set by the Makefile. Without it, as after a plain go build, rdistcc-cm is asked
// for the version: working it out takes packages that every compile would pay for.
var version string

// distributor is our name as lld's distributor, which it starts with the name of a file alone.
const distributor = "rdistcc-dtlto"

func main() {
	os.Exit(run(os.Args, entrypoint.Environment()))
}

// run runs the program and returns its exit status.
func run(argv, env []string) int {
	set := readSettings(env)
	if len(argv) == 0 {
		return reason.ExitArguments
	}
	name := argv[0]
	if called := typed.Base(name); !strings.HasPrefix(called, "rdistcc") {
		return set.masquerade(called, name, argv[1:])
	} else if called == distributor {
		return set.control(append([]string{"dtlto"}, argv[1:]...))
	}
	if len(argv) == 1 {
		write(2, usage)
		return reason.ExitArguments
	}
	if s := set.getenv(linkEnv); s != "" && (argv[1] == "-f" || argv[1] == "--version") {
		return set.asMake(argv[1:], s)
	}
	if file, rest := set.Empties(argv); file != "" {
		code := run(rest, env)
		if code == 0 {
			_ = syscall.Truncate(file, 0) // it costs room, no more
		}
		return code
	}
	switch word := argv[1]; {
	case typed.Base(word) == typed.OwnName: // CMake's launcher before a CC that has it already
		return run(argv[1:], env)
	// To cc, -h is an option of the linker's, with a value, and -help means nothing: alone, they are meant for us.
	case word == "--help", len(argv) == 2 && (word == "help" || word == "-h" || word == "-help"):
		return write(1, usage)
	case word == "--version":
		return set.tellVersion()
	case isControl(word):
		return set.control(argv[1:])
	case implicit(word):
		return set.compile("cc", argv[1:])
	default:
		return set.compile(word, argv[2:])
	}
}

// tellVersion prints the version and returns the exit status.
func (s *settings) tellVersion() int {
	v := version
	if v == "" {
		if _, ok := findSibling("rdistcc-cm", s.Path); ok {
			return s.control([]string{"--version"})
		}
		v = "devel"
	}
	return write(1, "rdistcc "+v+"\n")
}

// masquerade runs as the compiler named called, found on PATH behind ourselves. If we were
// called by a full path, that path becomes the compiler's argv[0], so that its messages
// name it as they would without us.
func (s *settings) masquerade(called, as string, args []string) int {
	c, code := s.find(called, args, true)
	if code != 0 {
		return code
	}
	if strings.IndexByte(as, '/') >= 0 {
		c.argv[0] = c.file
	}
	return s.distribute(c)
}

// compile runs the compiler named on the command line.
func (s *settings) compile(name string, args []string) int {
	c, code := s.find(name, args, false)
	if code != 0 {
		return code
	}
	return s.distribute(c)
}

// find resolves a compiler's name to a command; behind is as in typed.FindProgram. A code other
// than 0 is the exit status when there is no such program.
func (s *settings) find(name string, args []string, behind bool) (c command, code int) {
	file, path, code := typed.FindProgram(name, s.Path, self(), behind)
	switch code {
	case 0:
	case typed.ExitNotExecutable:
		s.say(0, name, ": not executable")
	default:
		if c := meant(name); c != "" && !behind {
			s.say(0, name, ": neither a command of rdistcc nor a compiler; did you mean \"rdistcc ", c, "\"?")
		} else {
			s.say(0, name, ": no such compiler")
		}
	}
	s.childPath = path
	if strings.IndexByte(name, '/') >= 0 {
		name = file // the same, unless a link of ours was named in full
	}
	return command{file: file, argv: append([]string{name}, args...)}, code
}

// distribute refuses a compiler that is rdistcc again, then does the job.
func (s *settings) distribute(c command) int {
	switch {
	case s.Level >= maxNesting:
		s.say(0, c.argv[0], ": calls rdistcc again and again (", c.file, "); name the real compiler")
		return reason.ExitRecursion
	case s.Level > 0:
		// Called from a script that an outer rdistcc runs: the outer one accounts for the job.
		return s.replace(c)
	}
	for _, line := range s.Complaints {
		if s.news(line) {
			s.say(1, line)
		}
	}
	f := &flow{set: s, cmd: c, in: newInterrupts()}
	return f.do()
}

// write prints text to a descriptor and returns the resulting exit status.
func write(fd int, text string) int {
	for b := []byte(text); len(b) > 0; {
		n, err := syscall.Write(fd, b)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN && poll([]pollFD{{fd: int32(fd), events: pollOut}}, -1):
			continue // a non-blocking pipe, as make's may be, and a slow reader
		case err != nil:
			return reason.ExitIO
		}
		b = b[n:]
	}
	return 0
}
