package main

import (
	"time"

	"github.com/rdistcc/rdistcc/internal/driver"
	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/quick"
	"github.com/rdistcc/rdistcc/pkg/connmgr/typed"
)

// slot is leased memory: outgoing data is written to source, the result is read from sink.
type slot struct {
	ipc.Leased
	source, sink int
	cwd          string
	unsure       bool // sources form: a message may quote a file that does not exist
	// closed means that no process of ours can write to the source any more, so that it can
	// be used for another job.
	closed bool
}

// typed returns what the manager is told of the command beside its plan.
func (f *flow) typed(cwd string) *typed.Command {
	return &typed.Command{
		Settings: f.set.Settings, Env: f.set.env, Path: f.set.childPath, Hosts: f.set.hostText(),
		File: f.cc.file, Argv0: f.cc.argv[0], Real: f.rec.compiler, Cwd: cwd, Source: f.rec.source, Output: f.rec.output,
		Plugins: f.plugins, PluginDir: f.pluginDir,
		Terminal: func() bool { return isTerminal(2) }, Look: func() ipc.View { return ipc.Look(".") },
	}
}

// lease asks the manager for a slot and a host. A result other than nil says that the
// command runs here; it is the manager's answer, or ours when there is no manager.
func (f *flow) lease() *ipc.GoLocal {
	began := time.Now()
	cwd := workingDir(f.set)
	if cwd == "" {
		return &ipc.GoLocal{Reason: reasonDirectory}
	}
	c := f.typed(cwd)
	l, names := c.Lease(&f.plan)
	kind, fields, here := f.request(l)
	if here != nil {
		return here
	}
	f.rec.lease = time.Since(began)
	switch kind {
	case ipc.KindGoLocal:
		return f.goLocal(fields)
	case ipc.KindLeased:
		s := &slot{closed: true, cwd: cwd}
		if err := s.Parse(fields); err != nil {
			return f.lostManager(err)
		}
		if s.Known {
			fds, err := f.conn.TakeFDs(1)
			if err != nil {
				return f.lostManager(err)
			}
			s.source, s.sink = -1, fds[0]
			f.slot = s
			return nil
		}
		fds, err := f.conn.TakeFDs(2)
		if err != nil {
			return f.lostManager(err)
		}
		s.source, s.sink = fds[0], fds[1]
		if s.Major < compile.KeepsMacrosFrom {
			s.Direct = nil // we asked with options of a newer compiler
		}
		if len(s.Direct) > 0 {
			s.Direct = driver.Fill(s.Direct, names)
		}
		f.slot = s
		return nil
	}
	return f.lostManager(ipc.ErrMalformed)
}

// maxMeets bounds how often a command may meet an older manager although its successor serves: while the socket goes from
// one to the other, both accept.
const maxMeets = 4

// asked returns the manager's answer to this process's command if it was asked before the runtime has started. ok is false if it
// was not, or if a Lease is what it wants now: on f.conn, if that is still there.
func (f *flow) asked() (kind ipc.Kind, fields []byte, ok bool) {
	conn := quick.Left()
	if conn == nil {
		return 0, nil, false
	}
	f.conn = conn
	f.in.holds(conn, 0)
	kind, fields, err := conn.Recv()
	if err != nil || otherVersion(kind, fields) {
		f.hangUp() // what that means, the next connection will show
		return 0, nil, false
	}
	return kind, fields, kind != ipc.KindAsk
}

// request connects, sends l and returns the manager's answer. A manager older than us is
// replaced, and its successor's answer counts.
func (f *flow) request(l *ipc.Lease) (kind ipc.Kind, fields []byte, here *ipc.GoLocal) {
	if kind, fields, ok := f.asked(); ok {
		return kind, fields, nil
	}
	frame := l.Append(nil)
	for meets := 1; ; meets++ {
		var err error
		if f.conn == nil {
			if f.conn, err = f.set.connect(true); err != nil {
				return 0, nil, f.noManager(err)
			}
			f.in.holds(f.conn, 0)
		}
		if err = f.conn.Send(frame); err == nil {
			kind, fields, err = f.conn.Recv()
		}
		if err != nil {
			return 0, nil, f.lostManager(err)
		}
		if meets > maxMeets || !otherVersion(kind, fields) || !f.set.replaceManager() {
			return kind, fields, nil
		}
		f.hangUp()
	}
}
