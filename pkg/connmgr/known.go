package connmgr

import (
	"os"
	"strconv"
	"strings"

	"github.com/rdistcc/rdistcc/internal/driver/recipes"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
)

// know finds out what the job reads. why is the reason if that is not known; then the wrapper lists the files.
func (c *client) know(native recipes.Native) (k *known.Job, why string) {
	cmd := c.command(native)
	k, asked, why := c.m.known.Know(c.Context(), cmd)
	if asked != nil {
		c.query = asked
	}
	if k != nil {
		c.Watch()
		if c.sought = c.m.known.Judge(c.Context(), cmd, k); c.sought != "" {
			c.here.k = nil
			return nil, known.Sought
		}
		c.reading(k)
	}
	c.here.k = k
	return k, why
}

// command returns the job's command, as package known takes it.
func (c *client) command(native recipes.Native) *known.Command {
	return &known.Command{Lease: c.lease, Compiler: &c.compiler, Native: native, Foreign: c.foreign(), Fast: c.m.live().Fast, Environ: c.environ}
}

// compileWith compiles a job that may use precompiled headers. A compiler can fail to load one for want of the addresses that it was
// made for, which says nothing about the source.
func (c *client) compileWith(k *known.Job) (*ipc.Result, *ipc.GoLocal) {
	r, no := c.compileKnown(k)
	if no == nil && r.Exit != 0 && len(k.Images) > 0 {
		return nil, &ipc.GoLocal{Reason: reason.Diagnostics, Host: r.Host}
	}
	return r, no
}

// environ returns the wrapper's whole environment: a compiler may heed a variable that no job takes along.
func (c *client) environ() []string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(int(c.pid)) + "/environ")
	if err != nil {
		return c.lease.Command.Env
	}
	return strings.FieldsFunc(string(b), func(r rune) bool { return r == 0 })
}

// onKnown makes a host compile a job whose inputs are known, and answers with the result.
func (c *client) onKnown(k *known.Job, native recipes.Native) error {
	var err error
	if c.sink, err = c.m.memory.Sink(c.Context(), c.uid, c.Watch); err != nil {
		return c.goLocal(attempt.NoSlot(err))
	}
	c.free = true // the wrapper has no source to write to
	fd, err := c.sink.OpenReader()
	if err != nil {
		return c.goLocal(attempt.NoSlot(err))
	}
	defer closeFD(fd)
	c.Watch()
	r, no := c.compileWith(k)
	if no != nil && no.Reason == known.Changed {
		// A file has changed since it was looked at. Try once more, with its current state.
		if again, _ := c.know(native); again != nil {
			k = again
			r, no = c.compileWith(k)
		}
	}
	switch {
	case c.Context().Err() != nil:
		return nil
	case no != nil:
		return c.goLocal(no)
	}
	return c.sendKnown(k, r, fd)
}

// sendKnown answers a Lease with the result of a job whose inputs are known. fd is the sink that was leased.
func (c *client) sendKnown(k *known.Job, r *ipc.Result, fd int) error {
	how := ipc.InputsScan
	if k.Set.Memo {
		how = ipc.InputsMemo
	}
	c.m.metrics.Inputs(how)
	c.record.Inputs, c.record.Files = how, uint32(len(k.Set.Files))
	c.record.Host = r.Host
	var leased []byte
	if c.plain != nil {
		if p := c.plain.Place(r); p != nil {
			leased = p.Append(nil)
		}
	}
	leased = (&ipc.Leased{Job: c.id, Family: c.compiler.Family, Major: uint32(c.compiler.Major), Tree: true, Fast: c.m.live().Fast,
		Known: true, Inputs: how, Files: uint32(len(k.Set.Files)), Unsure: k.Set.Unsure, Lacking: lacking(k, r)}).Append(leased)
	if !r.Moved {
		return c.SendFrame(r.Append(leased), fd) // both at once: the wrapper wakes up once
	}
	// The result is in another sink, whose descriptor travels with it.
	if err := c.SendFrame(leased, fd); err != nil {
		return err
	}
	return c.sendResult(r)
}

// lacking returns which headers are not to be found here, for the wrapper to compare with what the compiler says of a failure.
func lacking(k *known.Job, r *ipc.Result) []string {
	if r.Exit == 0 || len(k.Lacking) > ipc.MaxWords {
		return nil
	}
	return k.Lacking
}

// knownTask returns the task of a job whose inputs are known.
func (c *client) knownTask(k *known.Job) *attempt.Task {
	t := c.newTask(k.Body)
	t.Known, t.Modules = k, k.Modules
	c.predict(t)
	return t
}

// include returns the directories where the job's compiler looks for headers by default. Unless ask is set,
// it returns nil if they are not known yet.
func (c *client) include(ask bool) []string {
	if c.lease.Language == "" {
		return nil
	}
	return c.compiler.Search(c.lease.Language, nil, ask).Dirs
}

// direct returns what the compiler's driver would run to list the sources (tree) or to preprocess, or nil if
// the wrapper has to run the driver.
func (c *client) direct(tree bool) []string {
	if c.foreign() { // we must not run anything with another user's words
		return nil
	}
	if tree {
		return c.compiler.Direct(c.lease.List)
	}
	return c.compiler.Direct(c.lease.Preprocess)
}

// staysHere says that a command stays here because its compiler searches in a way that the manager does not know.
func (c *client) staysHere() *ipc.GoLocal {
	return &ipc.GoLocal{Reason: reason.NotReproducible + known.Sought, Detail: "its compiler also looks for " + c.sought}
}
