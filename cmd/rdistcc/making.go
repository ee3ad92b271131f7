package main

import "github.com/rdistcc/rdistcc/pkg/connmgr/ipc"

// announce tells the manager of a command that makes a precompiled header here, before it runs: hosts can then make the same
// one for compiles that use it.
func (f *flow) announce() {
	if f.plan.Makes == nil || f.conn == nil || f.set.mode == ipc.ModeLocal {
		return
	}
	cwd := workingDir(f.set)
	if cwd == "" {
		return
	}
	l := &ipc.Lease{Version: ipc.Version, Hosts: f.set.hostText(), Mode: f.set.mode, Compiler: absolute(f.cc.file, cwd), Source: f.plan.Source, Cwd: cwd,
		IOTimeoutMS: f.set.ioTimeoutMS, Path: f.set.childPath, Libraries: f.set.getenv("LD_LIBRARY_PATH"), Build: f.set.build, Command: f.command(cwd)}
	f.announced = l.Command != nil && f.conn.Send(l.AppendMaking(nil)) == nil
}

// made tells the manager that the command has made the header, if its exit status is 0. It waits until the manager can tell
// this header from any later one: what the build does next may change it.
func (f *flow) made(code int) {
	if !f.announced || code != 0 || f.conn == nil {
		return
	}
	if f.conn.Send(ipc.AppendBare(nil, ipc.KindMade)) == nil {
		_, _, _ = f.conn.Recv() // if the manager is gone, so is what it knew
	}
}
