package ctl

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// safeguard is the wrapper's variable that counts how deeply it is nested in itself.
const safeguard = "_RDISTCC_SAFEGUARD"

// maxBackends bounds how many compiles of one link are started at a time.
const maxBackends = 256

// backends is what lld writes for a distributor (LLVM's "Integrated Distributed ThinLTO"): the compiles that a link has left. Names
// are relative to the linker's directory, which is ours.
type backends struct {
	Common struct {
		Output string   `json:"linker_output"`
		Args   []string `json:"args"`   // of each compile the first ones; they begin with the compiler
		Inputs []string `json:"inputs"` // of all, besides their own
	} `json:"common"`
	Jobs []backend `json:"jobs"`

	why    string // they run here; "": they need not
	shared bool   // some make the same file: one after the other, in their order
}

type backend struct {
	Args    []string `json:"args"`    // after the common ones
	Inputs  []string `json:"inputs"`  // the module first
	Outputs []string `json:"outputs"` // what the linker reads when we have ended
}

func (c *ctl) dtltoCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "dtlto FILE",
		Aliases: []string{"lto"},
		Short:   "Compile what a ThinLTO link has left, for lld (a distributor)",
		Long: "Links with LTO have the farm compile their parts: docs/special-compiles.md.\n\n" +
			"gcc needs nothing but to be run through rdistcc, for links too. CMake (3.21 or later) does that with\n" +
			"-DCMAKE_C_LINKER_LAUNCHER=rdistcc -DCMAKE_CXX_LINKER_LAUNCHER=rdistcc beside the launchers of compiles.\n\n" +
			"For clang, lld (21 or later) runs rdistcc as the distributor of a ThinLTO link; FILE is what it writes for that. Words for\n" +
			"the compiler, besides -flto=thin, and for the link, besides -fuse-ld=lld:\n\n" +
			"  -fthinlto-distributor=$(command -v rdistcc-dtlto) -Wl,--thinlto-remote-compiler=$(command -v clang)\n\n" +
			"make:   LDFLAGS=\"-flto=thin -fuse-ld=lld -fthinlto-distributor=... -Wl,--thinlto-remote-compiler=...\"\n" +
			"CMake:  -DCMAKE_INTERPROCEDURAL_OPTIMIZATION=ON -DCMAKE_EXE_LINKER_FLAGS=\"-fuse-ld=lld -fthinlto-distributor=... -Wl,...\"\n" +
			"Meson:  -Db_lto=true -Db_lto_mode=thin -Dc_link_args=\"-fuse-ld=lld -fthinlto-distributor=... -Wl,...\"",
		Example: "  clang -flto=thin -fuse-ld=lld -fthinlto-distributor=$(command -v rdistcc-dtlto) -Wl,--thinlto-remote-compiler=$(command -v clang) *.o",
		Args:    one("FILE"),
		RunE:    func(_ *cobra.Command, args []string) error { return c.dtlto(args[0]) },
	}
}

// readBackends reads what lld has written to file. What it does not understand of it, as of a later lld, has the compiles run here.
func readBackends(file string) (*backends, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, failf(reason.ExitIO, "dtlto: %v", err)
	}
	var all backends
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, failf(reason.ExitArguments, "dtlto: %s: %v; want what lld writes for a distributor", file, err)
	}
	strict := json.NewDecoder(bytes.NewReader(b))
	strict.DisallowUnknownFields()
	if err := strict.Decode(new(backends)); err != nil {
		all.why = strings.TrimPrefix(err.Error(), "json: ")
	}
	if len(all.Common.Args) == 0 || all.Common.Args[0] == "" {
		return nil, failf(reason.ExitArguments, "dtlto: %s names no compiler (common.args); give the link -Wl,--thinlto-remote-compiler=CLANG", file)
	}
	makes := make(map[string]bool)
	for i, j := range all.Jobs {
		if len(j.Outputs) == 0 {
			return nil, failf(reason.ExitArguments, "dtlto: %s: job %d has no outputs; want what lld writes for a distributor", file, i)
		}
		for _, name := range j.Outputs {
			if makes[filepath.Clean(name)] {
				all.why, all.shared = "two jobs make "+name, true
			}
			makes[filepath.Clean(name)] = true
		}
	}
	return &all, nil
}

// dtlto runs the compiles that lld has written to file, by the manager or through the wrapper: on the hosts as many as have a place, the
// rest here. It ends when all have, or with the status of the first that fails; when it is told to end, or the linker has, so have they.
func (c *ctl) dtlto(file string) error {
	all, err := readBackends(file)
	if err != nil {
		return err
	}
	wrapper := filepath.Join(filepath.Dir(c.self), "rdistcc")
	if _, err := os.Stat(wrapper); err != nil {
		return failf(reason.ExitGeneral, "dtlto: %s: there is no rdistcc beside rdistcc-cm", wrapper)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go outlived(ctx, cancel)

	// A link that rdistcc runs marks what it runs as its own work, done here; this is not.
	env := slices.DeleteFunc(c.environ(), func(kv string) bool { return strings.HasPrefix(kv, safeguard+"=") })
	if output, err := filepath.Abs(all.Common.Output); err == nil && all.Common.Output != "" {
		env = append(env, ipc.PartVariable+"="+output)
	}
	places, err := c.slots()
	if err != nil {
		places = c.cores // each compile has its own way to say that
	}
	if all.why != "" {
		fmt.Fprintf(c.err, "rdistcc: dtlto: %s: %s; compiled here\n", file, all.why)
		env, places = append(env, "RDISTCC_MODE=local"), c.cores
	}
	if all.shared {
		places = 1
	}
	sizes := make(map[string]int64, len(all.Jobs)) // of modules
	for _, j := range all.Jobs {
		if len(j.Inputs) > 0 {
			if fi, err := os.Stat(j.Inputs[0]); err == nil {
				sizes[j.Outputs[0]] = fi.Size()
			}
		}
	}
	// The longest first, so that none begins when all others have ended.
	if !all.shared {
		slices.SortStableFunc(all.Jobs, func(x, y backend) int { return cmp.Compare(sizes[y.Outputs[0]], sizes[x.Outputs[0]]) })
	}
	var manager *asker
	if all.why == "" {
		manager = c.newAsker(wrapper, env)
	}
	compiles, ctx := errgroup.WithContext(ctx)
	compiles.SetLimit(min(max(places, 1), maxBackends))
	for _, j := range all.Jobs {
		compiles.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			words := slices.Concat(all.Common.Args, j.Args)
			if manager.compile(ctx, wrapper, words) {
				return made(words, j.Outputs)
			}
			return c.compileBackend(ctx, wrapper, env, words, j.Outputs)
		})
	}
	err = compiles.Wait()
	if errors.Is(err, context.Canceled) {
		return &exitError{code: 128 + int(syscall.SIGTERM)}
	}
	return err
}

// compileBackend runs one compile through the wrapper.
func (c *ctl) compileBackend(ctx context.Context, wrapper string, env, words, outputs []string) error {
	cmd := exec.CommandContext(ctx, wrapper, words...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, c.out, c.err
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 2 * time.Second
	err := cmd.Run()
	makes := made(words, outputs) // removes what is empty, whatever else has gone wrong
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case cmd.ProcessState == nil:
		return failf(reason.ExitGeneral, "dtlto: %v", err)
	case !cmd.ProcessState.Success():
		return &exitError{code: statusOf(cmd.ProcessState)} // it has said why
	}
	return makes
}

// made returns an error if a compile has not made what the linker takes for its outputs. Empty ones are removed: the linker would take
// them too.
func made(words, outputs []string) error {
	empty := ""
	for _, name := range outputs {
		if fi, err := os.Stat(name); err == nil && fi.Mode().IsRegular() && fi.Size() == 0 {
			os.Remove(name)
			empty = name
		}
	}
	if empty != "" {
		return failf(reason.ExitIO, "dtlto: %s: made empty: %s", empty, strings.Join(words, " "))
	}
	for _, name := range outputs {
		if _, err := os.Stat(name); err != nil {
			return failf(reason.ExitIO, "dtlto: %s: %v: %s", name, cmp.Or(errors.Unwrap(err), err), strings.Join(words, " "))
		}
	}
	return nil
}

// outlived calls cancel when the process that started this one has ended.
func outlived(ctx context.Context, cancel func()) {
	fd, err := unix.PidfdOpen(os.Getppid(), 0)
	if err != nil {
		return // an old kernel: its end goes unnoticed
	}
	defer unix.Close(fd)
	for ctx.Err() == nil {
		// A bounded wait, as this ends with the command.
		if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 500); n > 0 {
			cancel()
			return
		}
	}
}
