package connmgr

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// What a compile came to on this machine is what a host would have answered, since that is why a host's answer may take its place.
// It is kept under the same name, if what the name says was there all the time, the compile has written its outputs itself, and the
// compiler was the same one to its end. What the compiler proper reads is known; what inline assembler has the assembler read is not,
// unless that tells, so the results of others are for those who ask for them (KeepHere).

// KeepHere says of which compiles on this machine the results are kept.
type KeepHere uint8

// Values of KeepHere.
const (
	KeepTold KeepHere = iota // of those whose assembler, if there is one, tells what it reads
	KeepAll
	KeepNone
)

// ranHere is what a client knows of a compile that runs on this machine.
type ranHere struct {
	k      *known.Job   // the job, if its inputs are known: what it comes to here may be kept
	guard  *known.Guard // watches over the compile, or nil
	tell   ipc.Tell     // what the wrapper is to tell
	missed string       // why the cache has had no result
}

// mayKeepHere reports whether what the command comes to on this machine may be kept, as far as is known before its compiler is.
func (c *client) mayKeepHere() bool { return c.m.o.KeepHere != KeepNone && c.mayKeep() }

// watchHere begins to watch over a compile that is about to run here, if its result may be kept. It returns what the wrapper is to
// tell of it. The record says why not if the cache was asked in vain.
func (c *client) watchHere() ipc.Tell {
	if c.here.guard != nil || c.lease == nil || !c.mayKeep() {
		return c.here.tell
	}
	why, tell := "", ipc.TellRan
	if k := c.here.k; k != nil && c.m.o.KeepHere == KeepTold {
		tell, why = c.assembles(k)
	}
	switch k := c.here.k; {
	case c.record.Reason == reason.Diagnostics:
		why = "a host, which shows it nothing else, came to something else"
	case c.lease.Command == nil:
		why = "the wrapper was not to say what it is made from"
	case k == nil:
		why = c.unknownHere()
	case !c.names(k).ok:
		why = "it may depend on when it runs"
	case c.m.o.KeepHere == KeepNone:
		why = "cache.here is off"
	case why != "":
	default:
		c.here.guard, why = c.m.known.Guard(k)
	}
	c.here.missed, c.here.tell = c.record.Missed, ipc.TellNot
	if c.here.guard != nil {
		c.here.tell = tell
		why = "it failed, or printed something on a terminal or on its standard output" // unless onRan knows better
	}
	c.notKept(why)
	return c.here.tell
}

// unknownHere returns why the result of a command whose inputs are not known is not kept.
func (c *client) unknownHere() string {
	switch {
	case strings.HasPrefix(c.record.Reason, reason.UnknownOption):
		return "rdistcc does not know an option of its for certain"
	case c.record.Doubt != "":
		return "only its compiler knows what it reads (" + c.record.Doubt + ")"
	}
	return "only its compiler knows what it reads"
}

// notKept notes why the result of a command that runs here is not kept, if the cache was asked for it.
func (c *client) notKept(why string) {
	if c.lease.Cache == ipc.CacheOn || c.lease.Cache == ipc.CacheRead {
		c.record.Missed = "its result is not kept: it runs here, and " + why
	}
}

// endGuard ends the watch over a compile here whose result is not kept.
func (c *client) endGuard() {
	if c.here.guard != nil {
		c.here.guard.End()
		c.here.guard = nil
	}
}

// onRan keeps what a command came to that has run here, and lets its build go on.
func (c *client) onRan(f *ipc.Ran) error {
	if c.here.guard == nil || c.began.IsZero() {
		return errProtocol
	}
	k, began := c.here.k, c.began
	mem, files, err := c.outputsHere(k)
	own, why := c.here.guard.End()
	tell := c.here.tell
	c.here.guard, c.here.tell = nil, ipc.TellNot
	switch again, ierr := c.m.o.Identify(c.Context(), c.lease.Compiler, c.env()); {
	case why != "":
	case tell == ipc.TellReads && !readsItsTextAlone(k, f.Reads):
		why = "its assembler has read other files than the compiler's text, or does not say which"
	case err != nil:
		why = err.Error()
	case ierr != nil || again.ID != c.compiler.ID:
		why = "its compiler changed while it ran"
	}
	if why != "" {
		c.notKept(why)
		c.m.o.Log.Debug("what a compile here came to is not kept", "source", c.record.Source, "why", why)
		return c.SendFrame(ipc.AppendBare(nil, ipc.KindGo))
	}
	if c.record.Missed = c.here.missed; c.record.Missed != "" {
		c.record.Missed += "; it ran here, and its result is kept"
	}
	files = slices.DeleteFunc(files, func(x ipc.File) bool { return !own[x.Index] })
	words := uint64(len(f.Words))
	r := &ipc.Result{Host: report.HereHost, CompileUS: f.WallUS, Stderr: ipc.Segment{Off: uint64(len(mem)), Len: words}, Files: files}
	mem = append(mem, f.Words...)
	made := &madeFrom{k: k, body: k.Body, compiler: c.compiler.ID, names: *c.names(k), began: began, ended: time.Now()}
	e := &resultcache.Entry{Key: made.names.exact, Origin: resultcache.Origin{Made: made.ended, Host: report.HereHost, Builder: c.m.o.Name, Source: c.record.Source,
		Compiler: c.compiler.Name(), CPU: time.Duration(f.CPUUS) * time.Microsecond, Wall: time.Duration(f.WallUS) * time.Microsecond}}
	twice, cmd := c.stepsTwice(k), c.inBuild(made.names.body)
	c.m.clients.Go(func() {
		entry, err := made.encode(e, r, mem)
		if err != nil {
			c.m.o.Log.Debug("a result is not kept", "source", e.Source, "err", err)
			return
		}
		var read *listed
		if twice {
			read = whatIsRead(made.compiler, k, e.Key, func(index int) []byte { return outputOf(e, index) })
		}
		c.m.results.Keep(cmd, e.Key, entry)
		c.m.keepListed(read)
	})
	return c.SendFrame(ipc.AppendBare(nil, ipc.KindGo))
}

// outputsHere reads the outputs of k that are there, one behind the other. The error says in words for the user why they cannot be kept.
func (c *client) outputsHere(k *known.Job) (mem []byte, files []ipc.File, err error) {
	for i, out := range k.Body.Outputs {
		name := out.Name
		if !filepath.IsAbs(name) {
			name = k.Body.Cwd + "/" + name
		}
		at, there := len(mem), false
		switch mem, there, err = appendOutput(mem, name, c.m.o.SinkSize); {
		case err != nil:
			return nil, nil, fmt.Errorf("its output %s %w", out.Name, err)
		case there:
			files = append(files, ipc.File{Index: uint8(i), Segment: ipc.Segment{Off: uint64(at), Len: uint64(len(mem) - at)}})
		}
	}
	return mem, files, nil
}

// appendOutput appends a file to mem, and reports whether there is one. Both together may have most bytes.
func appendOutput(mem []byte, name string, most int64) (_ []byte, there bool, err error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	switch err {
	case nil:
	case unix.ENOENT:
		return mem, false, nil
	case unix.ELOOP:
		return mem, false, errNoFile
	default:
		return mem, false, fmt.Errorf("cannot be read: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	var st unix.Stat_t
	switch err := unix.Fstat(fd, &st); {
	case err != nil:
		return mem, false, fmt.Errorf("cannot be read: %w", err)
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1:
		return mem, false, errNoFile
	case int64(len(mem))+st.Size > most:
		return mem, false, errors.New("is longer than buffers.sink")
	}
	at := len(mem)
	mem = append(mem, make([]byte, st.Size)...)
	if _, err := io.ReadFull(f, mem[at:]); err != nil {
		return mem[:at], false, fmt.Errorf("cannot be read: %w", err)
	}
	return mem, true, nil
}

// errNoFile says what an output is that is not kept.
var errNoFile = errors.New("is not a file of one name")
