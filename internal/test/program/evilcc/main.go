// Command evilcc takes the place of a part of a compiler, its driver, its cc1 or its assembler, as an attacker would
// send it to a daemon. The test suite attacks builds it, and sends it in a toolchain that is otherwise genuine.
//
// It does what the file "attack" in the working directory says, which comes with a job:
//
//	NAME                 one of probe.Attempts, or one of the attacks of this program
//	KEY=VALUE...         on further lines: the probe's targets; MARK, a word by which the test knows what was left; OBJECT, what
//	                     the job makes, if not out.o
//
// and says on stderr what came of it: "evilcc NAME begins", and "evilcc NAME reachable" or "evilcc NAME refused WHY".
// Without that file it becomes the genuine part, whose name is its own with ".real" behind it.
//
// It attacks only where nothing of the machine's own system can be seen, and must never run anywhere else.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/sandbox/probe"
)

// order is what the file says.
type order struct {
	name    string
	mark    string
	targets *probe.Targets
}

func main() {
	text, err := os.ReadFile("attack")
	if errors.Is(err, os.ErrNotExist) {
		becomeReal()
	}
	o, perr := parse(string(text))
	if err = errors.Join(err, perr); err == nil {
		err = confined()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "evilcc:", err)
		os.Exit(1)
	}
	debug.SetGCPercent(-1) // a forked child has no other thread that could help to collect
	runtime.LockOSThread()
	say(o.name, "begins")
	err = o.do()
	if err == nil {
		say(o.name, "reachable")
	} else {
		say(o.name, "refused", strings.ReplaceAll(err.Error(), "\n", " "))
	}
	os.Exit(1)
}

func say(words ...string) { fmt.Fprintln(os.Stderr, "evilcc", strings.Join(words, " ")) }

// becomeReal becomes the genuine part.
func becomeReal() {
	self, err := os.Readlink("/proc/self/exe")
	if err == nil {
		err = unix.Exec(self+".real", os.Args, os.Environ())
	}
	fmt.Fprintln(os.Stderr, "evilcc: become the genuine part:", err)
	os.Exit(1)
}

func parse(text string) (*order, error) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	o := &order{name: lines[0]}
	var args []string
	for _, line := range lines[1:] {
		if mark, ok := strings.CutPrefix(line, "MARK="); ok {
			o.mark = mark
			continue
		}
		if name, ok := strings.CutPrefix(line, "OBJECT="); ok {
			objectName = name
			continue
		}
		args = append(args, line)
	}
	var err error
	o.targets, err = probe.ParseTargets(args)
	return o, err
}

// confined returns an error where files can be seen that every machine has, and no private tree.
func confined() error {
	for _, name := range []string{"/etc/passwd", "/root", "/home", "/usr/bin/env", "/bin/sh", "/sbin", "/var/lib"} {
		if _, err := os.Lstat(name); err == nil {
			return fmt.Errorf("no attack: %s is there, so this is no private tree", name)
		}
	}
	return nil
}

// do makes the attack. nil means that it has reached what it was after.
func (o *order) do() error {
	if f := attacks[o.name]; f != nil {
		return f(o)
	}
	all := probe.Attempts()
	i := slices.IndexFunc(all, func(a probe.Attempt) bool { return a.Name == o.name })
	if i < 0 {
		return errors.New("no such attack")
	}
	return all[i].Do(o.targets)
}
