package main

import (
	"strings"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/internal/driver"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/quick"
	"github.com/rdistcc/rdistcc/pkg/connmgr/typed"
)

// flow is one command on its way through this program.
type flow struct {
	set  *settings
	cmd  command // as it was typed
	cc   command // the same, with a script around a compiler replaced by that compiler
	plan compile.Plan
	conn *ipc.Conn // to the manager; nil where there is none
	slot *slot     // leased; nil where there is none
	// managerGone says that the manager ended the connection, or died, while it owed an answer.
	managerGone bool
	unmanaged   string         // not empty: there is no manager to ask, and none can be started; for settings.news, why
	announced   bool           // the manager knows that this command makes a precompiled header
	told        ipc.Tell       // what the manager wants to know of the command here
	divided     bool           // the manager knows of single compiles of the command alone
	said        *driver.Answer // what the driver would run for the plan, as far as it was asked
	plugins     []string       // files of what the compiler loads (-fplugin=)
	pluginDir   string         // where the compiler looks for those that are named without a directory
	front       uint32         // job.Body.Front
	outputs     []unit.Output  // the outputs that must come back
	below       *below         // nil without roots, or where what lies below them is not known
	in          *interrupts
	rec         record
	units       []*flow // finished compiles of a command with several
	object      string  // for one of these: the file that the link reads its object from; "": where its words say
	passing     bool    // one of these, and its object is only for the command's link
}

// detour says why a command runs here: by rule, with a documented reason and the turn
// that it waits for, or because of trouble with the farm.
type detour struct {
	reason string
	turn   ipc.Turn
	farm   *ipc.GoLocal
}

func byRule(why string) *detour { return &detour{reason: why, turn: ipc.TurnLocal} }

// run is the whole client: it plans, compiles elsewhere and places the outputs. Every step
// can fall back to compiling here. It returns the exit status.
func (f *flow) run() int {
	f.makePlan()
	if s := f.several(); s != nil {
		return f.runSeveral(s)
	}
	result, d := f.compile()
	if d == nil {
		d = f.place(result)
	}
	if d != nil {
		return f.here(d)
	}
	return f.remote(result)
}

// compile has a host do the compile of the plan. It returns the answer, or why the command
// runs here. If the manager dies meanwhile, the next one, started if need be, gets the job
// anew. A dying manager can still accept a connection, so there are two such retries.
func (f *flow) compile() (*result, *detour) {
	for again := 2; ; again-- {
		f.managerGone = false
		result, d := f.try()
		if d == nil || !f.managerGone || again == 0 || f.in.caught() != 0 {
			return result, d
		}
		f.release()
		time.Sleep(managerPause)
	}
}

// managerPause is long enough for the kernel to clean up after a killed manager.
const managerPause = 10 * time.Millisecond

// try makes one attempt at the compile.
func (f *flow) try() (*result, *detour) {
	// A command that is not a single compile of one source runs here, and so does everything
	// when the user asks for it.
	if f.plan.Local {
		return nil, &detour{reason: f.plan.Reason, turn: ipc.Turn(f.plan.Turn)}
	}
	if !rereadable(f.plan.Source) {
		return nil, byRule(reason.Stdin)
	}
	if f.set.Mode == ipc.ModeLocal {
		return nil, byRule(reason.Mode)
	}
	if f.plan.Text != "" && f.plan.Sources != "" {
		return nil, byRule(reason.NotReproducible + f.plan.Text)
	}
	if names := f.plan.SpecFiles(); len(names) > 0 {
		if why := f.respell(names); why != "" {
			return nil, byRule(why)
		}
	}
	if f.wanders() {
		return nil, byRule(reason.Paths)
	}
	if f.plan.TellsMemory() && memoryLimited() {
		return nil, byRule(reasonLimits)
	}
	if closedUmask() {
		return nil, byRule(reason.Diagnostics) // the compiler here could not reopen its own files
	}
	if dirs := f.plan.ToolDirs(); len(dirs) > 0 {
		if !f.sameTools(dirs) {
			return nil, byRule(reason.NotReproducible + "tool-path")
		}
		f.plan.DropTools()
	}
	if f.plan.KeepsLinks() && configured(f.cc.file) {
		return nil, byRule(reason.NotReproducible + "tool-path")
	}
	if names := f.plan.Plugins(); len(names) > 0 {
		if why := f.findPlugins(names); why != "" {
			return nil, byRule(why)
		}
	}
	if name := f.plan.TraceFile(); name != "" && exists(name+"/") {
		return nil, byRule(reason.NotReproducible + "side-file")
	}
	if main := f.plan.Main(); main != "" && sameFile(main, f.plan.Source) {
		return nil, byRule(reason.Diagnostics) // gcc says so, whatever the names
	}

	// The manager leases a slot, or already knows why it will not. Meanwhile it looks
	// for a host.
	if here := f.lease(); here != nil {
		return nil, &detour{farm: here}
	}
	if f.slot.Known {
		// The manager knew what the compile reads, and a host has already compiled it.
		f.rec.form, f.outputs = "sources", f.plan.Outputs
		f.slot.unsure = f.slot.Unsure || f.plan.Imports
		f.rec.inputs, f.rec.files = f.slot.Inputs, int(f.slot.Files)
		result, here := f.answer()
		return f.judge(result, here)
	}
	if f.plan.Driver.Tidy {
		return nil, byRule(compile.UnknownTidy) // it does not list what it reads
	}
	var limit syscall.Rlimit // applies to the slot too, though it is never visible as a file
	if syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit) == nil && limit.Cur < f.slot.SourceMax {
		return nil, byRule(reason.TooBig)
	}

	front, why := f.plan.Native(f.slot.Native, f.slot.NativeOrder, f.bySources())
	if why != "" {
		return nil, byRule(why)
	}
	f.front = uint32(front)

	// What the compile reads goes into the slot: its files or, where no host shows private
	// trees, the preprocessor's text. If the compiler prints anything on the way, the whole
	// command runs here and prints it once, exactly as the user expects.
	sub, why := f.fill()
	if why != "" {
		return nil, byRule(why)
	}

	// A host compiles. Where its compiler's messages may differ from those of ours, the
	// command runs here too, and the local result stands.
	result, here := f.submit(sub)
	return f.judge(result, here)
}

// judge accepts a host's result if the command here would have come to the same.
func (f *flow) judge(r *result, here *ipc.GoLocal) (*result, *detour) {
	if here != nil {
		return nil, &detour{farm: here}
	}
	if !f.stands(r) {
		return nil, byRule(reason.Diagnostics)
	}
	return r, nil
}

// here runs the command here after all.
func (f *flow) here(d *detour) int {
	if d.farm != nil && d.farm.Reason == reason.Paths && f.plan.Inexact {
		d.farm.Reason = reason.NotReproducible + f.plan.Text // what makes it need a host with private trees
	}
	if d.farm != nil {
		return f.fallback(d.farm)
	}
	return f.local(d.reason, d.turn)
}

// makePlan works out what the command asks for.
func (f *flow) makePlan() {
	real := typed.RealPath(f.cmd.file)
	f.cc = f.cmd
	if behind, path, ok := f.set.behindScript(f.cmd, real); ok {
		f.cc, real = behind, path
	}
	if driver, ok := compile.DriverOf(f.cc.argv[0], real); ok {
		words := f.cc.argv[1:]
		if driver.Tidy { // which reads response files in a way of its own
			words = compile.WithDatabase(words, workingDir(f.set))
		} else {
			words = compile.Expand(words)
			if driver.Family == compile.GCC {
				words = compile.ExpandAssembler(words)
			}
		}
		f.plan = compile.ParseUnlisted(words, driver, syscall.Getenv)
		if why := f.findModules(&f.plan); why != "" {
			f.plan.Local, f.plan.Reason, f.plan.Turn = true, why, compile.TurnLocal
		}
	} else {
		f.plan = compile.Plan{Local: true, Reason: reasonCompiler, Turn: compile.TurnNone}
	}
	f.rec.compiler = real
	f.rec.source = f.plan.Source
	if f.rec.output = f.plan.Main(); f.plan.Local && reason.Links(f.plan.Reason) && f.plan.Source == "" {
		f.rec.output = f.plan.Linked()
	}
}

// bySources reports whether the job uses the sources form. A device as the output is
// for the client alone.
func (f *flow) bySources() bool {
	return f.slot.Tree && f.set.Inputs != typed.InputsText && f.plan.Sources == "" && !strings.HasPrefix(f.plan.Main(), "/dev/")
}

// fill builds the job in its form. A non-empty reason means that the command must run here.
func (f *flow) fill() (*ipc.Submit, string) {
	bySources := f.bySources()
	if bySources && len(f.plan.Roots()) > 0 {
		if f.below, bySources = f.lookBelow(); !bySources && f.plan.Text != "" {
			return nil, reason.NotReproducible + "toolchain"
		}
	}
	if bySources {
		f.rec.form, f.outputs, f.rec.inputs = "sources", f.plan.Outputs, "list"
		return f.collect()
	}
	if f.plan.Text != "" {
		return nil, reason.NotReproducible + f.plan.Text
	}
	if f.slot.Tree {
		f.slot.Direct = nil // it would list the files
	}
	f.rec.form, f.outputs, f.rec.inputs = "text", f.plan.TextOutputs(), "text"
	return f.preprocess()
}

// do runs the job and accounts for it, locally and with the manager.
func (f *flow) do() int {
	f.rec.start = quick.Began()
	code := f.run()
	if s := f.in.caught(); s != 0 && f.rec.local == 0 {
		// Interrupted before anything was done: there is no job to report.
		return 128 + int(s)
	}
	for _, u := range f.units {
		u.report()
	}
	if len(f.units) == 0 || f.rec.reason != "" {
		f.finish(code)
		f.report()
	}
	return code
}

// finish ends the job, with the manager too.
func (f *flow) finish(code int) {
	f.rec.exit = code
	f.rec.total = time.Since(f.rec.start)
	if f.conn == nil {
		return
	}
	where := uint8(ipc.WhereRemote)
	if !f.rec.remote {
		where = ipc.WhereLocal
	}
	// The manager learns from the end of the connection that the job is over; this is for its statistics.
	_ = f.conn.Send((&ipc.Finish{Where: where, Reason: f.rec.reason, Exit: uint8(code), TotalUS: micros(f.rec.total),
		PreprocessUS: micros(f.rec.preprocess), CPUUS: micros(f.rec.cpu), Closed: f.slot == nil || f.slot.closed}).Append(nil))
	f.hangUp()
}

// report tells the user about a finished job.
func (f *flow) report() {
	f.rec.write(f.set)
	if f.set.Verbose >= 2 {
		f.set.say(2, f.cmd.argv[0], " ", f.rec.source, ": ", f.rec.where(), ", exit ", itoa(f.rec.exit), ", ", itoa(int(f.rec.total.Milliseconds())), " ms")
	}
}
