package main

import (
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/typed"
)

// announce tells the manager of a command that makes a precompiled header here, before it runs: hosts can then make the same
// one for compiles that use it.
func (f *flow) announce() {
	if f.plan.Makes == nil || f.conn == nil || f.set.Mode == ipc.ModeLocal {
		return
	}
	cwd := workingDir(f.set)
	if cwd == "" {
		return
	}
	l := &ipc.Lease{Version: ipc.Version, Hosts: f.set.hostText(), Mode: f.set.Mode, Compiler: typed.Absolute(f.cc.file, cwd), Source: f.plan.Source, Cwd: cwd,
		IOTimeoutMS: f.set.IOTimeoutMS, Path: f.set.childPath, Libraries: f.set.getenv("LD_LIBRARY_PATH"), Build: f.set.Build, Command: f.typed(cwd).Command(&f.plan)}
	f.announced = l.Command != nil && f.conn.Send(l.AppendMaking(nil)) == nil
}

// made tells the manager that the command has made the header, if its exit status is 0. It waits until the manager can tell
// this header from any later one: what the build does next may change it.
func (f *flow) made(code int) {
	if !f.announced || code != 0 || f.conn == nil {
		return
	}
	if f.conn.Send(ipc.AppendBare(nil, ipc.KindMade)) != nil {
		return // if the manager is gone, so is what it knew
	}
	if kind, _, err := f.conn.Recv(); err != nil || kind != ipc.KindList {
		return
	}
	if f.conn.Send(f.madeOf().Append(nil)) == nil {
		_, _, _ = f.conn.Recv()
	}
}

// mostListed bounds what a header is made of, in bytes.
const mostListed = 256 << 20

// madeOf returns what the compiler lists for the header that the command has made, for a manager that cannot know it by itself. There
// is nothing in it if that is uncertain.
func (f *flow) madeOf() (l *ipc.Listed) {
	l = new(ipc.Listed)
	u := &flow{set: f.set, cmd: f.cmd, cc: f.cc, plan: *f.plan.Header(), in: f.in, rec: f.rec}
	name, err := f.tempObject(u.plan.Source)
	if err != nil {
		return l
	}
	fd, err := syscall.Open(name, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	_ = syscall.Unlink(name) // it has no other use for its name
	if err != nil {
		return l
	}
	defer syscall.Close(fd)
	u.slot = &slot{source: fd, sink: -1, cwd: workingDir(f.set), closed: true}
	u.slot.SourceMax, u.slot.Tree = mostListed, true
	if len(u.plan.Roots()) > 0 {
		var ok bool
		if u.below, ok = u.lookBelow(); !ok {
			return l
		}
	}
	began := time.Now()
	names, why := u.list()
	if why != "" {
		return l
	}
	o, body := u.packing(names, began)
	own := u.plan.Makes.Outputs[0].Name
	pack, why := u.pack(o)
	if why != "" || pack.Unsure || slices.ContainsFunc(pack.Images, func(x string) bool { return !sameName(x, own) }) {
		return l // another precompiled header may have gone into it
	}
	for i := range pack.Files {
		l.Names = append(l.Names, pack.Files[i].Name)
	}
	if l.Dirs = append(body.Dirs, pack.Dirs...); len(l.Names) > ipc.MaxAbsent || len(l.Dirs) > ipc.MaxWords {
		return new(ipc.Listed)
	}
	return l
}

// sameName reports whether two names are the same but for a "./" at their beginning.
func sameName(a, b string) bool { return strings.TrimPrefix(a, "./") == strings.TrimPrefix(b, "./") }
