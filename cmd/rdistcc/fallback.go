package main

import (
	"strconv"
	"strings"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// Reasons that the wrapper itself gives. Others come from the command line (package
// compile), from the text, or from the manager. docs/troubleshooting.md lists them all.
const (
	// In order: not a compiler that we know; a working directory without a name; a
	// preprocessor that left something running; no memory to look at the text; limits of memory that show in assembly.
	reasonCompiler     = reason.NotReproducible + "compiler"
	reasonDirectory    = reason.NotReproducible + "directory"
	reasonPreprocessor = reason.NotReproducible + "preprocessor"
	reasonMemory       = reason.NotReproducible + "memory"
	reasonLimits       = reason.NotReproducible + "limits"
)

// local runs a command here because a rule says so; why is one of package reason's words.
// If a manager runs, local first asks it for the command's turn and gives the slot back.
// Without a manager the command just runs.
func (f *flow) local(why string, turn ipc.Turn) int {
	if s := f.in.caught(); s != 0 {
		return 128 + int(s)
	}
	f.rec.reason = why
	if names := f.plan.SpecFiles(); len(names) > 0 && f.plan.FromHeader() && f.set.Mode != ipc.ModeLocal {
		_ = f.respell(names) // hosts may be able to make the header, though it is made here
	}
	if f.conn == nil {
		if _, _, ok := f.asked(); ok {
			f.hangUp() // the manager has answered what is no longer asked
		}
	}
	if f.conn == nil {
		// Commands that need the manager report trouble with it; this one does not.
		f.conn, _ = f.set.connect(f.plan.Makes != nil && f.set.Mode != ipc.ModeLocal)
	}
	f.announce()
	if f.conn != nil && !f.askTurn(why, turn) {
		f.hangUp()
	}
	if s := f.in.caught(); s != 0 {
		return 128 + int(s)
	}
	f.hint()
	code := f.runHere(f.cmd)
	f.made(code)
	return code
}

// hint says, once a build, that hosts could compile what a link with ThinLTO has the linker compile. Without a manager there are none.
func (f *flow) hint() {
	if f.rec.reason != reason.LinkThin || f.conn == nil || f.set.Mode == ipc.ModeLocal || tried(f.plan.Linked()) || olderLLVM(f.rec.compiler) || f.set.getenv("CCC_OVERRIDE_OPTIONS") != "" || configured(f.cc.file) {
		return
	}
	const line = "links with -flto=thin compile here; with lld 21 or later hosts can do that (rdistcc help lto)"
	if f.set.news(line) {
		f.set.say(1, line)
	}
}

// tried reports whether a link's output is that of a configure test. Some of them fail if anything is printed.
func tried(output string) bool {
	base := output[strings.LastIndexByte(output, '/')+1:]
	return strings.HasPrefix(base, "conftest") || strings.HasPrefix(base, "cmTC_") || strings.Contains(output, "meson-private/")
}

// olderLLVM reports whether a compiler's path says that it is of an LLVM whose lld knows no distributors (.../llvm-19/bin/clang, clang-19).
func olderLLVM(path string) bool {
	for _, before := range [...]string{"/llvm-", "/clang-"} {
		i := strings.LastIndex(path, before)
		version, _, _ := strings.Cut(path[i+1:], "/")
		if major, err := strconv.Atoi(strings.TrimPrefix(version, before[1:])); i >= 0 && err == nil && major < 21 {
			return true
		}
	}
	return false
}

// askTurn announces a local command and waits until the manager lets it run. It
// reports whether the manager is still there.
func (f *flow) askTurn(why string, turn ipc.Turn) bool {
	err := f.conn.Send((&ipc.Local{Version: ipc.Version, Reason: why, Turn: turn, Compiler: f.rec.compiler,
		Source: f.rec.source, Output: f.rec.output, Build: f.set.Build, Link: f.set.Link, Closed: f.slot != nil && f.slot.closed}).Append(nil))
	if err != nil {
		return false
	}
	if turn == ipc.TurnNone {
		return true
	}
	kind, _, err := f.conn.Recv()
	if err != nil {
		return false
	}
	switch kind {
	case ipc.KindTell:
		f.told = ipc.TellRan
	case ipc.KindTellReads:
		f.told = ipc.TellReads
	case ipc.KindGo:
	default:
		return false
	}
	return true
}

// fallback compiles here because the farm did not. Trouble costs the user one line. Where
// fallback is forbidden, the job fails with rdistcc's own exit code.
func (f *flow) fallback(here *ipc.GoLocal) int {
	if s := f.in.caught(); s != 0 {
		return 128 + int(s)
	}
	f.rec.reason, f.rec.host = here.Reason, here.Host
	forbidden, by := f.set.Fallback == ipc.FallbackForbidden, "; not compiled here ("+f.set.ForbiddenBy+")"
	if here.NoFallback && f.set.Fallback == ipc.FallbackUnsaid {
		forbidden, by = true, "; not compiled here (fallback.allow is off; RDISTCC_FALLBACK=1 overrides it)"
	}
	if forbidden && (here.Trouble || here.Code != 0) {
		f.set.say(0, orReason(here), by)
		if here.Code == 0 {
			return reason.ExitGeneral
		}
		return int(here.Code)
	}
	if here.Trouble && (f.unmanaged == "" || f.set.news(f.unmanaged)) {
		f.set.say(1, orReason(here), "; compiled here")
	}
	f.told = here.Tell
	return f.runHere(f.cmd)
}

func orReason(here *ipc.GoLocal) string {
	if here.Detail == "" {
		return here.Reason
	}
	return here.Detail
}

// goLocal decodes the manager's answer that the command runs here.
func (f *flow) goLocal(fields []byte) *ipc.GoLocal {
	here := &ipc.GoLocal{}
	if err := here.Parse(fields); err != nil {
		return f.lostManager(err)
	}
	return here
}

// lostManager gives up on a manager that died, hangs, or sent nonsense.
func (f *flow) lostManager(err error) *ipc.GoLocal {
	f.hangUp()
	code := uint8(reason.ExitConnect)
	switch err {
	case ipc.ErrMalformed:
		code = reason.ExitProtocol
	case ipc.ErrSilent:
		code = reason.ExitTimeout
	}
	f.managerGone = err == ipc.ErrClosed
	return &ipc.GoLocal{Reason: reason.Manager, Trouble: true, Code: code, Detail: err.Error()}
}

// noManager returns the answer to use when there is no manager to ask.
func (f *flow) noManager(err error) *ipc.GoLocal {
	f.unmanaged = reason.Manager // whether no manager starts, or did not start a moment ago
	code := uint8(reason.ExitConnect)
	if r, ok := err.(*startRefusal); ok {
		code, f.unmanaged = r.code, r.line
	}
	return &ipc.GoLocal{Reason: reason.Manager, Trouble: true, Code: code, Detail: err.Error()}
}

// hangUp ends the connection; the manager cancels what it was doing for us.
func (f *flow) hangUp() {
	if f.conn != nil {
		f.in.holds(nil, 0)
		f.conn.Close()
		f.conn = nil
	}
}
