package main

import (
	"bytes"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// Bounds of a command that is taken apart; beyond them it runs whole.
const (
	maxLink = 1 << 20   // bytes of words: those of response files lie open in the link's
	maxWord = 100 << 10 // bytes of one of them
	maxSaid = 1 << 20   // bytes that a compile has printed
)

// several takes the command apart if it is of several sources, or links what it
// compiles. nil: it is not, or must not be.
func (f *flow) several() *compile.Several {
	if !f.plan.Several || f.set.mode == ipc.ModeLocal {
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

// runSeveral has hosts do the compiles, one behind the other as the driver does,
// and links here. Nothing is printed before all have gone well: whatever is in
// the way of one, the command as it was typed runs here and says it.
func (f *flow) runSeveral(s *compile.Several) int {
	f.in.watch() // from now on there are files to remove
	var objects []string
	defer f.in.remove()
	var units []*flow
	var said []segments
	for i, source := range s.Sources {
		object := ""
		if s.Links {
			var err error
			if object, err = f.tempObject(source); err != nil {
				return f.here(byRule(reasonDiagnostics))
			}
			objects = append(objects, object)
		}
		u := f.unit(s.Unit(i, object))
		r, d := u.compile()
		var words segments
		if d == nil {
			words, d = u.words(r)
		}
		if d == nil {
			d = u.place(r)
		}
		if d != nil {
			f.conn, f.slot = u.conn, u.slot
			f.in.remove()
			return f.here(d)
		}
		u.rec.remote, u.rec.host = true, r.Host
		u.finish(0)
		u.release()
		units, said = append(units, u), append(said, words)
	}
	begun := false
	for _, words := range said {
		if write(1, string(words.stdout))+write(2, string(words.stderr)) != 0 && !begun {
			return f.here(byRule(reasonDiagnostics)) // as remote does
		}
		begun = begun || len(words.stdout)+len(words.stderr) > 0
	}
	f.units = units
	if !s.Links {
		return 0
	}
	f.cmd = command{file: f.cc.file, argv: append([]string{f.cc.argv[0]}, s.Link(objects)...)}
	return f.local(compile.ReasonLink, ipc.GateLocal)
}

// unit is the command of one compile of ours.
func (f *flow) unit(words []string) *flow {
	u := &flow{set: f.set, in: f.in, cmd: command{file: f.cc.file, argv: append([]string{f.cc.argv[0]}, words...)}}
	u.rec.start = time.Now()
	u.makePlan()
	return u
}

// segments is what a compile has printed.
type segments struct{ stdout, stderr []byte }

// words is what a compile of several has printed. What the driver itself says it
// would have said once for all of them.
func (f *flow) words(r *result) (w segments, d *detour) {
	if r.Exit != 0 || r.Stdout.Len > maxSaid || r.Stderr.Len > maxSaid {
		return w, byRule(reasonDiagnostics)
	}
	var ok1, ok2 bool
	w.stdout, ok1 = readOut(f.slot.sink, r.Stdout)
	w.stderr, ok2 = readOut(f.slot.sink, r.Stderr)
	if !ok1 || !ok2 {
		return w, byRule(reasonDiagnostics)
	}
	for line := range bytes.Lines(w.stderr) {
		if bytes.HasPrefix(line, []byte(base(f.cc.argv[0])+": ")) || bytes.HasPrefix(line, []byte("clang")) {
			return w, byRule(reasonDiagnostics)
		}
	}
	return w, nil
}

// release gives back what a finished compile holds.
func (f *flow) release() {
	if f.slot != nil {
		syscall.Close(f.slot.source)
		syscall.Close(f.slot.sink)
		f.slot = nil
	}
}

// tempObject makes an empty file where the driver would have an object that it
// only links, under a name like its own.
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

// tempDir is where the driver has its temporary files, absolute.
func (f *flow) tempDir(gcc bool) string {
	for _, name := range [...]string{"TMPDIR", "TMP", "TEMP", "TEMPDIR"} {
		dir := f.set.getenv(name)
		var st syscall.Stat_t
		switch {
		case dir == "" || gcc && name == "TEMPDIR":
			continue
		case gcc && (stat(dir, &st) != nil || st.Mode&syscall.S_IFMT != syscall.S_IFDIR || syscall.Access(dir, 7 /* R_OK | W_OK | X_OK */) != nil):
			continue
		}
		return absolute(dir, workingDir(f.set))
	}
	return "/tmp"
}
