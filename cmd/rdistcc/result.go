package main

import (
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// result is a host's answer.
type result struct{ ipc.Result }

// says reports whether the result is more than a silent success.
func (r *result) says() bool { return r.Exit != 0 || r.Stdout.Len != 0 || r.Stderr.Len != 0 }

// submit has a host compile the content of the slot.
func (f *flow) submit(text *ipc.Submit) (*result, *ipc.GoLocal) {
	began := time.Now()
	if err := f.conn.Send(text.Append(nil)); err != nil {
		return nil, f.lostManager(err)
	}
	r, here := f.answer()
	f.rec.submit = time.Since(began)
	return r, here
}

// answer returns the manager's answer about a job that a host has, or had.
func (f *flow) answer() (*result, *ipc.GoLocal) {
	kind, fields, err := f.conn.Recv()
	if err != nil {
		return nil, f.lostManager(err)
	}
	switch kind {
	case ipc.KindGoLocal:
		return nil, f.goLocal(fields)
	case ipc.KindResult:
		r := &result{}
		if err := r.Parse(fields); err != nil {
			return nil, f.lostManager(err)
		}
		if r.Moved {
			fds, err := f.conn.TakeFDs(1)
			if err != nil {
				return nil, f.lostManager(err)
			}
			syscall.Close(f.slot.sink)
			f.slot.sink = fds[0]
		}
		f.rec.result = r.Result
		if r.Signal != 0 {
			// Said before the command runs here, as it may come to the same end here.
			return nil, &ipc.GoLocal{Reason: reason.HostLost, Trouble: true, Code: reason.ExitConnect, Host: r.Host,
				Detail: "the compiler on " + r.Host + " was killed by signal " + itoa(int(r.Signal))}
		}
		return r, nil
	}
	return nil, f.lostManager(ipc.ErrMalformed)
}

// errOutputs means that a successful compile lacks files that it must have.
var errOutputs = errors.New("the result has not the files of this command")

// maxSink is larger than any sink; offsets and lengths below it can be added without overflow.
const maxSink = 1 << 40

// place puts the files where the compiler would have put them. If that fails, the compiler
// runs here and prints its own message about it.
func (f *flow) place(r *result) *detour {
	began := time.Now()
	err := f.placeAll(r)
	f.rec.place = time.Since(began)
	if err != nil {
		f.set.say(2, err.Error())
		return byRule(reason.Diagnostics)
	}
	return nil
}

// placeAll requires each output once, and the main one not empty: a build that goes on
// with an old object, or none, would be worse than one that fails.
func (f *flow) placeAll(r *result) error {
	outputs := slices.Clone(f.outputs)
	if f.object != "" && len(outputs) > 0 {
		outputs[0].Name = f.object
	}
	var there uint64
	for _, out := range r.Files {
		switch {
		case int(out.Index) >= len(outputs), there&(1<<out.Index) != 0,
			out.Off > maxSink, out.Len > maxSink, out.Index == 0 && out.Len == 0 && !f.plan.Syntax:
			return errOutputs
		}
		there |= 1 << out.Index
	}
	for i := range outputs {
		if r.Exit == 0 && !outputs[i].Optional && there&(1<<i) == 0 {
			return errOutputs
		}
	}
	// All or none: the compiler here must find the files as they were before.
	for _, out := range r.Files {
		if err := f.plan.CanPlace(outputs[out.Index], int64(out.Len)); err != nil {
			return err
		}
	}
	if r.Exit != 0 {
		said, _ := readOut(f.slot.sink, r.Stderr)
		err := f.plan.Failed(int(r.Exit), func(i int) bool { return there&(1<<i) != 0 }, said, syscall.Getenv)
		if err != nil && !f.set.SkipRetry && !f.slot.Fast {
			return err
		}
	}
	// The object comes last, as from a compiler: a file of rules may be a link to it. What is appended cannot be taken
	// back if anything else fails.
	for turn := range 3 {
		for _, out := range r.Files {
			own := 0
			switch {
			case f.plan.Appends(outputs[out.Index]):
				own = 2
			case out.Index == 0:
				own = 1
			}
			if own != turn {
				continue
			}
			if err := f.plan.Place(outputs[out.Index], f.slot.sink, int64(out.Off), int64(out.Len)); err != nil {
				return err
			}
		}
	}
	return nil
}

// remote finishes a job that a host did, by printing what its compiler printed. Where that
// cannot be printed, the compiler runs here and meets the same error: some fail then.
func (f *flow) remote(r *result) int {
	printed := false
	if f.plan.Driver.Tidy {
		printed = f.printTidy(r)
	} else {
		printed = copyOut(1, f.slot.sink, r.Stdout) && copyOut(2, f.slot.sink, r.Stderr)
	}
	if !printed {
		return f.local(reason.Diagnostics, ipc.TurnLocal)
	}
	f.rec.remote, f.rec.host = true, r.Host
	return int(r.Exit)
}

// copyOut prints a part of the sink. It reports whether all of it was printed, or at least
// the beginning: it must not be printed again then.
func copyOut(fd, sink int, s ipc.Segment) bool {
	buf := make([]byte, min(s.Len, 64<<10))
	for begun := false; s.Len > 0; begun = true {
		n, err := syscall.Pread(sink, buf[:min(s.Len, uint64(len(buf)))], int64(s.Off))
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n == 0 || write(fd, string(buf[:n])) != 0 {
			return begun
		}
		s.Off, s.Len = s.Off+uint64(n), s.Len-uint64(n)
	}
	return true
}
