package main

import (
	"bytes"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/internal/jobserver"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/typed"
)

// Bounds of a command that is taken apart; a command beyond them runs whole.
const (
	maxLink = 1 << 20   // bytes of words: response files are expanded in the link's
	maxWord = 100 << 10 // bytes of one of them
	maxSaid = 1 << 20   // bytes that a compile has printed
)

// several takes the command apart if it has several sources, or links what it compiles.
// It returns nil if neither is the case or the command must not be taken apart.
func (f *flow) several() *compile.Several {
	if !f.plan.Several || f.set.Mode == ipc.ModeLocal {
		return nil
	}
	words, size := f.plan.Whole(), 0 // response files are read once: their words must not change in between
	for _, w := range words {
		if size += len(w) + 1; len(w) > maxWord || size > maxLink {
			return nil
		}
	}
	s := compile.Split(words, f.plan.Driver)
	for i := 0; s != nil && i < len(s.Sources); i++ {
		if s.Links && sameFile(s.Output, s.Sources[i]) {
			return nil // gcc says so, whatever the names
		}
	}
	return s
}

// runSeveral has hosts do the compiles and links here. Like the driver it does one after
// the other; under make's jobserver it does one more at a time for each token it gets.
// It prints nothing before all have gone well: if anything is in the way of one, the
// command as it was typed runs here and prints its own messages.
func (f *flow) runSeveral(s *compile.Several) int {
	f.in.watch() // from now on there are files to remove
	defer f.in.leave()
	var units []*flow
	var objects []string
	for i, source := range s.Sources {
		object := ""
		if s.Links {
			var err error
			if object, err = f.tempObject(source); err != nil {
				return f.here(byRule(reason.Diagnostics))
			}
			objects = append(objects, object)
		}
		u := f.unit(s.Unit(i, unitObject(object, i)))
		u.object, u.passing = object, s.Links
		units = append(units, u)
	}
	f.divided = true
	said, d := f.compileAll(units)
	if d == nil && s.Links && !linkable(s) && slices.ContainsFunc(units, func(u *flow) bool { return u.rec.exit != 0 }) {
		d = byRule(reason.Diagnostics) // the driver may say something else first
	}
	if d != nil {
		f.in.leave()
		return f.here(d)
	}
	begun := false
	for _, words := range said {
		if write(1, string(words.stdout))+write(2, string(words.stderr)) != 0 && !begun {
			return f.here(byRule(reason.Diagnostics)) // as remote does
		}
		begun = begun || len(words.stdout)+len(words.stderr) > 0
	}
	f.units = units
	for _, u := range units {
		if u.rec.exit != 0 {
			return u.rec.exit // the driver compiles the other sources too, and does not link
		}
	}
	if !s.Links {
		return 0
	}
	f.cmd = command{file: f.cc.file, argv: append([]string{f.cc.argv[0]}, s.Link(objects)...)}
	return f.local(f.plan.Reason, ipc.TurnLocal)
}

// linkable reports whether the driver has nothing to say about the link before it compiles.
func linkable(s *compile.Several) bool {
	files, ok := s.Linked()
	return ok && !slices.ContainsFunc(files, func(name string) bool { return !exists(name) })
}

// compiled says how one compile of several ended.
type compiled struct {
	unit   int
	result *result
	detour *detour
}

// compileAll has hosts compile units, as many at a time as there are tokens for. It
// returns what they printed, in their order, or why the command runs here; f then gets
// the connection on which that was said.
func (f *flow) compileAll(units []*flow) (said []segments, d *detour) {
	places := f.places(units)
	done := make(chan compiled, len(units))
	granted := make(chan struct{})
	if places != nil {
		defer places.Close() // before the link, which has the command's own place
		f.in.uses(places)
		gone := make(chan struct{})
		defer close(gone)
		go func() {
			for places.Acquire() {
				select {
				case granted <- struct{}{}:
				case <-gone: // Close gives the token back
					return
				}
			}
		}()
	}
	said = make([]segments, len(units))
	next, running := 0, 0 // the first compile uses the command's own token, each further one a token of make's
	start := func() {
		i, u := next, units[next]
		u.rec.start = time.Now()
		go func() {
			defer places.CloseOnPanic()
			r, d := u.compile()
			done <- compiled{i, r, d}
		}()
		if next++; next == len(units) {
			places.Enough()
		}
	}
	start()
	for running = 1; running > 0; {
		wanted := granted
		if running == maxAtOnce {
			wanted = nil
		}
		select {
		case <-wanted:
			if d != nil || next == len(units) {
				places.Release()
				continue
			}
			start()
			running++
		case c := <-done:
			u := units[c.unit]
			if d == nil {
				if said[c.unit], d = f.land(u, c); d != nil {
					f.conn, f.slot, u.conn, u.slot = u.conn, u.slot, nil, nil
					f.in.holds(f.conn, 0)
					places.Enough()
					for _, other := range units {
						other.in.cancel()
					}
				}
			}
			u.hangUp()
			u.release()
			if d == nil && next < len(units) {
				start()
				continue
			}
			if running--; running > 0 {
				places.Release()
			}
		}
	}
	return said, d
}

// maxAtOnce bounds how many compiles of one command run at a time: each holds one of the
// manager's slots, which others want too.
const maxAtOnce = 16

// places returns make's jobserver if it has tokens to give and if the compiles may end in
// any order: where two write the same file, the last one's output must stay.
func (f *flow) places(units []*flow) *jobserver.Client {
	if len(units) < 2 {
		return nil
	}
	names := make(map[string]bool)
	for _, u := range units {
		for _, out := range u.plan.Outputs {
			if names[out.Name] {
				return nil
			}
			names[out.Name] = true
		}
	}
	return jobserver.Open(f.set.getenv("MAKEFLAGS"))
}

// land puts the files of one compile in place and returns what the compile printed.
func (f *flow) land(u *flow, c compiled) (words segments, d *detour) {
	if c.detour != nil {
		return words, c.detour
	}
	if words, d = u.words(c.result); d == nil {
		if u.passing && c.result.Exit != 0 {
			_ = syscall.Unlink(u.object) // whatever a failed compile leaves of an object, this one is ours
		}
		d = u.place(c.result)
	}
	if d != nil {
		return words, d
	}
	u.rec.remote, u.rec.host = true, c.result.Host
	u.finish(int(c.result.Exit))
	return words, nil
}

// unit returns the flow of one compile of this command.
func (f *flow) unit(words []string) *flow {
	u := &flow{set: f.set, in: f.in.part(), cmd: command{file: f.cc.file, argv: append([]string{f.cc.argv[0]}, words...)}}
	u.makePlan()
	return u
}

// segments holds what a compile has printed.
type segments struct{ stdout, stderr []byte }

// words returns what one compile of several has printed, also one that has failed. A message of the driver itself
// would have been printed once for all of them.
func (f *flow) words(r *result) (w segments, d *detour) {
	if r.Exit > 1 || r.Exit == 1 && r.Stderr.Len == 0 || r.Stdout.Len > maxSaid || r.Stderr.Len > maxSaid {
		return w, byRule(reason.Diagnostics)
	}
	var ok1, ok2 bool
	w.stdout, ok1 = readOut(f.slot.sink, r.Stdout)
	w.stderr, ok2 = readOut(f.slot.sink, r.Stderr)
	if !ok1 || !ok2 {
		return w, byRule(reason.Diagnostics)
	}
	for line := range bytes.Lines(w.stderr) {
		if bytes.HasPrefix(line, []byte(typed.Base(f.cc.argv[0])+": ")) || bytes.HasPrefix(line, []byte("clang")) {
			return w, byRule(reason.Diagnostics)
		}
	}
	return w, nil
}

// release gives back what a finished compile holds.
func (f *flow) release() {
	if f.slot != nil {
		if f.slot.source >= 0 {
			syscall.Close(f.slot.source)
		}
		syscall.Close(f.slot.sink)
		f.slot = nil
	}
}

// unitObject returns the name that the i-th compile of a command has for the object that is linked from the temporary
// file object. It is the same each time, because a result is kept under the words of its compile. Nothing is written
// there: the compile runs on a host, and its object becomes the temporary file. Without a link there is none.
func unitObject(object string, i int) string {
	if object == "" {
		return ""
	}
	return object[:strings.LastIndexByte(object, '/')+1] + "rdistcc-" + itoa(i) + ".o"
}

// tempObject makes an empty file where the driver would put an object that it only links,
// under a similar name.
func (f *flow) tempObject(source string) (string, error) {
	gcc := f.plan.Driver.Family == compile.GCC
	dir, stem, digits, length := f.tempDir(gcc), "cc", alphabet, 6
	if !gcc {
		stem, digits = compile.Stem(source)+"-", alphabet[:16]
	}
	seed := uint64(time.Now().UnixNano()) ^ uint64(syscall.Getpid())<<32
	for try := 0; ; try++ {
		name := []byte(dir + "/" + stem)
		for range length {
			seed = seed*6364136223846793005 + 1442695040888963407 // Knuth's MMIX
			name = append(name, digits[(seed>>33)%uint64(len(digits))])
		}
		fd, err := syscall.Open(string(name)+".o", syscall.O_RDWR|syscall.O_CREAT|syscall.O_EXCL|syscall.O_CLOEXEC, 0o600)
		if err == nil {
			f.in.temp(string(name) + ".o")
			return string(name) + ".o", syscall.Close(fd)
		}
		if err != syscall.EEXIST && err != syscall.EINTR || try > 100 {
			return "", err
		}
	}
}

const alphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// tempDir returns the directory of the driver's temporary files, absolute.
func (f *flow) tempDir(gcc bool) string {
	for _, name := range [...]string{"TMPDIR", "TMP", "TEMP", "TEMPDIR"} {
		dir := f.set.getenv(name)
		var st syscall.Stat_t
		switch {
		case dir == "" || gcc && name == "TEMPDIR":
			continue
		case gcc && (typed.Stat(dir, &st) != nil || st.Mode&syscall.S_IFMT != syscall.S_IFDIR || syscall.Access(dir, 7 /* R_OK | W_OK | X_OK */) != nil):
			continue
		}
		return typed.Absolute(dir, workingDir(f.set))
	}
	return "/tmp"
}
