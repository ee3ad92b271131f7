package main

import (
	"strings"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/internal/driver"
	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
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

// lease asks the manager for a slot and a host. A result other than nil says that the
// command runs here; it is the manager's answer, or ours when there is no manager.
func (f *flow) lease() *ipc.GoLocal {
	began := time.Now()
	cwd := workingDir(f.set)
	if cwd == "" {
		return &ipc.GoLocal{Reason: reasonDirectory}
	}
	list, _, _ := f.plan.SharedList(compile.KeepsMacrosFrom)
	words, names, ok := f.plan.Shared(compile.KeepsMacrosFrom)
	if len(list) > ipc.MaxWords {
		list = nil
	}
	if len(words) > ipc.MaxWords || !ok || f.plan.Text != "" {
		words = nil
	}
	names.Source = f.plan.Source
	kind, fields, here := f.request(&ipc.Lease{
		Version: ipc.Version, Hosts: f.set.hostText(), Mode: f.set.mode, Fallback: f.set.fallback,
		Compiler: absolute(f.cc.file, cwd), Source: f.rec.source, Output: f.rec.output, Cwd: cwd,
		IOTimeoutMS: f.set.ioTimeoutMS, BackoffMS: f.set.backoffMS,
		List: list, Preprocess: words, Language: f.plan.Language, NeedTree: f.plan.Text != "",
		Machine: f.plan.Machine(), Unlisted: f.plan.Unlisted, Path: f.set.childPath, Libraries: f.set.getenv("LD_LIBRARY_PATH"), Build: f.set.build, Cache: f.set.cache, Base: f.set.base,
		Plugins: f.plugins, PluginDir: f.pluginDir, Link: f.set.link, Command: f.command(cwd),
	})
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

// sumOfNames returns a sum over the names of variables, in any order (FNV-1a of each).
func sumOfNames(env []string) (sum uint64) {
	for _, kv := range env {
		h := uint64(14695981039346656037)
		for i := 0; i < len(kv) && kv[i] != '='; i++ {
			h = (h ^ uint64(kv[i])) * 1099511628211
		}
		sum += h
	}
	return sum
}

// maxFile is the least file size limit (RLIMIT_FSIZE) with which the manager makes the job of
// a command, in bytes.
const maxFile = 1 << 40

// maxCommand bounds the words of a command that the manager turns into a job by itself, in
// bytes: they share a frame with other fields.
const maxCommand = 512 << 10

// command returns what the manager needs to make the job by itself, or nil where it must not.
func (f *flow) command(cwd string) *ipc.Command {
	if f.set.inputs != "" || f.plan.Sources != "" || f.plan.Raw && !f.plan.Assembly() || strings.HasPrefix(f.plan.Main(), "/dev/") {
		return nil
	}
	c := &ipc.Command{Argv0: f.cc.argv[0], Real: f.rec.compiler, Args: f.plan.Whole(), Env: treeEnv(f.set.env, cwd, f.plan.Driver.Tidy), Names: sumOfNames(f.set.env),
		Terminal: isTerminal(2), Words: f.set.skipRetry, View: ipc.Look(".")}
	// What is too big for a file is too big for a slot, and is compiled here.
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit) == nil && limit.Cur < maxFile {
		return nil
	}
	size := 0
	for _, w := range c.Args {
		size += len(w)
	}
	if len(c.Env) > ipc.MaxWords || size > maxCommand {
		return nil
	}
	for _, kv := range f.set.env {
		// No host can tell what the loader of the compiler here would print because of these.
		if strings.HasPrefix(kv, "LD_") && !strings.HasPrefix(kv, "LD_LIBRARY_PATH=") || strings.HasPrefix(kv, "GLIBC_TUNABLES=") {
			return nil
		}
	}
	return c
}

// maxMeets bounds how often a command may meet an older manager although its successor serves: while the socket goes from
// one to the other, both accept.
const maxMeets = 4

// request connects, sends l and returns the manager's answer. A manager older than us is
// replaced, and its successor's answer counts.
func (f *flow) request(l *ipc.Lease) (kind ipc.Kind, fields []byte, here *ipc.GoLocal) {
	frame := l.Append(nil)
	for meets := 1; ; meets++ {
		conn, err := f.set.connect(true)
		if err != nil {
			return 0, nil, f.noManager(err)
		}
		f.conn = conn
		f.in.holds(conn, 0)
		if err = conn.Send(frame); err == nil {
			kind, fields, err = conn.Recv()
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
