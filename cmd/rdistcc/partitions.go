package main

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/internal/jobserver"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/typed"
)

// With LTO gcc compiles in the link: its lto-wrapper divides the program into partitions, writes a makefile with one compile for each,
// and has $MAKE run that. In links that we run, MAKE is this program. It puts itself in front of each compile, and hands the makefile to
// the real make.

// linkEnv is the variable that marks the environment of such a link. Its value is what MAKE and LIBRARY_PATH were, a line each; a third
// line says that the jobserver is ours.
const linkEnv = "_RDISTCC_LINK"

// setByDriver are the variables that gcc's driver sets for its children. That of each compile works them out again.
var setByDriver = [...]string{"COMPILER_PATH", "GCC_EXEC_PREFIX", "COLLECT_GCC", "COLLECT_GCC_OPTIONS", "COLLECT_LTO_WRAPPER", "COLLECT_AS_OPTIONS",
	"OFFLOAD_TARGET_NAMES", "OFFLOAD_TARGET_DEFAULT"}

// maxPartitions bounds how many compiles of one link are started at a time. gcc makes 128 by itself.
const maxPartitions = 256

// offersPartitions returns the environment env and the descriptors files for the command here. For a link by gcc they have what makes
// its compiles ours. Without a number gcc compiles one partition after the other, unless it finds a jobserver: then it gets one. The
// caller closes what is in files after the standard ones when the command has begun.
func (f *flow) offersPartitions(env []string, files []uintptr) ([]string, []uintptr) {
	if f.rec.reason != reason.Link || f.plan.Driver.Family != compile.GCC || f.set.Mode == ipc.ModeLocal {
		return env, files
	}
	for _, name := range setByDriver {
		if f.set.getenv(name) != "" {
			return env, files // it could not be told apart from the driver's
		}
	}
	me, err := typed.Readlink("/proc/self/exe")
	if err != nil || strings.ContainsAny(me, "'\n$") || !strings.HasPrefix(typed.Base(me), typed.OwnName) {
		return env, files
	}
	before := f.set.getenv("MAKE") + "\n" + f.set.getenv("LIBRARY_PATH") + "\n"
	env = without(env, "MAKE")
	if slices.Contains(f.cmd.argv, "-flto") && !f.hasJobserver() {
		var pipe [2]int
		if syscall.Pipe2(pipe[:], syscall.O_CLOEXEC) == nil {
			_, _ = syscall.Write(pipe[1], []byte("+")) // an empty pipe has room
			r, w := itoa(len(files)), itoa(len(files)+1)
			files = append(files, uintptr(pipe[0]), uintptr(pipe[1]))
			env = append(without(env, "MAKEFLAGS"), "MAKEFLAGS= -j --jobserver-auth="+r+","+w)
			before += "ours"
		}
	}
	return append(env, "MAKE="+me, linkEnv+"="+before, ipc.PartVariable+"="+typed.Absolute(f.plan.Linked(), workingDir(f.set))), files
}

// hasJobserver reports whether a make above us gives the command places.
func (f *flow) hasJobserver() bool {
	places := jobserver.Open(f.set.getenv("MAKEFLAGS"))
	places.Close()
	return places != nil
}

// without returns env without the variables names.
func without(env []string, names ...string) []string {
	kept := make([]string, 0, len(env)+2)
next:
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		for _, n := range names {
			if name == n {
				continue next
			}
		}
		kept = append(kept, kv)
	}
	return kept
}

// asMake runs the real make with the words that lto-wrapper gave us in its place. before is the value of linkEnv.
func (s *settings) asMake(words []string, before string) int {
	maker, rest, _ := strings.Cut(before, "\n")
	libraries, ours, _ := strings.Cut(rest, "\n")
	s.env = without(without(s.env, linkEnv, typed.Safeguard, "MAKE", "LIBRARY_PATH"), setByDriver[:]...)
	if libraries != "" {
		s.env = append(s.env, "LIBRARY_PATH="+libraries)
	}
	if maker == "" {
		maker = "make"
	} else {
		s.env = append(s.env, "MAKE="+maker)
	}
	if ours != "" {
		s.env = without(s.env, "MAKEFLAGS")
	}
	if len(words) > 1 && words[0] == "-f" {
		if ours != "" {
			words = append([]string{words[0], words[1], "-j" + itoa(runtime.NumCPU())}, words[2:]...)
		}
		if n := toFarm(words[1]); n > 0 {
			s.widen(words, n)
		}
	}
	file, _, code := typed.FindProgram(maker, s.Path, self(), false)
	if code != 0 {
		return code // lto-wrapper does without make then
	}
	err := become(file, append([]string{maker}, words...), s.env)
	return s.cannotRun(command{file: file, argv: []string{maker}}, err)
}

// toFarm changes the compiles in lto-wrapper's makefile into ours. It returns how many there are; 0 if the file has stayed as it is.
func toFarm(makefile string) int {
	const compiles = " '-xlto' '-c' "
	b, err := os.ReadFile(makefile)
	me, linkErr := typed.Readlink("/proc/self/exe")
	if err != nil || linkErr != nil || strings.Contains(string(b), "-save-temps") {
		return 0
	}
	n, lines := 0, slices.Collect(strings.Lines(string(b)))
	var text strings.Builder
	for i := 0; i < len(lines); i++ {
		words, ok := strings.CutPrefix(lines[i], "\t@")
		if !ok || !strings.Contains(strings.ReplaceAll(words, "  ", " "), compiles) {
			text.WriteString(lines[i])
			continue
		}
		n++
		// The input is emptied once it has been read. With gcc 15 and later the driver does that, which on a host is done to a copy; before,
		// a second line of three processes, two of which are programs.
		words, input, emptied := strings.Cut(strings.TrimSuffix(words, "\n"), " -truncate ")
		if !emptied && i+1 < len(lines) {
			input = words[strings.LastIndexByte(words, ' ')+1:]
			name := strings.Trim(input, "'")
			if emptied = lines[i+1] == "\t@-touch -r "+name+" "+name+".tem > /dev/null 2>&1 && mv "+name+".tem "+name+"\n"; emptied {
				i++
			}
		}
		text.WriteString("\t@'" + me + "' ")
		if emptied {
			text.WriteString(typed.EmptyWord + " " + input + " ")
		}
		text.WriteString(words + "\n")
	}
	if n == 0 || os.WriteFile(makefile, []byte(text.String()), 0o600) != nil {
		return 0
	}
	return n
}

// widen lets make start as many compiles as there are partitions where a manager holds back those that there is no place for. Without
// -jN the places are those of a jobserver.
func (s *settings) widen(words []string, partitions int) {
	for i, w := range words {
		n, err := strconv.Atoi(strings.TrimPrefix(w, "-j"))
		if err != nil || n >= partitions || !strings.HasPrefix(w, "-j") {
			continue
		}
		conn, err := s.connect(false)
		if conn == nil || err != nil {
			return
		}
		conn.Close()
		words[i] = "-j" + itoa(min(partitions, maxPartitions))
	}
}
