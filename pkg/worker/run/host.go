// Package run does jobs in the places of a compile host. Each job goes one way, whatever its form and wherever
// it runs: what came is opened, the command is checked, its files are laid out, the compiler runs, what it made is
// gathered, and the answer is sealed. Which form the job has, and which kind of place it needs, is chosen
// once (Place.form); the steps that differ are a form's methods.
//
// The package knows no connections and no queue. Its caller decides when a job runs where, and sends the answer.
package run

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/driver/recipes"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/shm"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/pkg/worker/large"
)

// SearchPath is what compilers find their assembler on; package toolchain
// identifies it with the same one.
const SearchPath = "/usr/local/bin:/usr/bin:/bin"

// cpuPerWall is how much processor time a compile may take for each second of its
// time limit. Those that are honest use one core; what starts more has that many.
const cpuPerWall = 2

// Host is what all places of a daemon share. The exported fields are set before the first job, and do not change.
type Host struct {
	Context context.Context // the daemon's life: what waits gives up when it ends
	Log     *slog.Logger
	WorkDir string // the daemon's work area
	Places  int

	// Bounds of a compile: bytes of one file, of its words, that each of its programs may map (0 = no bound), and that
	// all together may have; and how many processes there may be at a time.
	File, Output, Memory, JobMemory int64
	Processes                       int
	// Result is how many bytes a result may have that is offered, in memory of Large.
	Result int64
	Large  *large.Memory

	Trees    bool // there are private trees: jobs of the sources form are taken
	Confined bool // every compile runs in a tree, confined
	Bare     bool // trees are directories of the host: it offers no namespaces

	Nice func() int // of compiles
	// Verify refuses a toolchain whose files are not those that it was identified by any more.
	Verify func(ctx context.Context, t *toolchain.Toolchain) error
	// OOMKills returns how many processes the system has killed for want of memory.
	OOMKills func() uint64
	// Denied counts a compile that was ended, or whose output was cut, by one of Denials.
	Denied func(word string)
	// Forgets grows when trees have to drop what they keep.
	Forgets *atomic.Uint64

	recipes  recipes.Cache
	programs sync.Map // name of a program to its path on SearchPath
	pairs    pairs
	outputs  *shm.Pool // for words of commands that are not confined
	devNull  *os.File
	kept     atomic.Int64 // bytes that trees keep from job to job
}

// Open gets what a Host needs. Close follows.
func (h *Host) Open() (err error) {
	if h.devNull, err = os.Open(os.DevNull); err != nil {
		return err
	}
	h.outputs, err = shm.NewPool(shm.Options{Name: "rdistccd-out", Size: 2 * h.Output, Max: 2 * h.Places})
	return err
}

// Close gives back what Open got. The places are closed before.
func (h *Host) Close() {
	if h.outputs != nil {
		h.outputs.Close()
	}
	if h.devNull != nil {
		h.devNull.Close()
	}
}

// Trim gives unused memory back to the system.
func (h *Host) Trim() { h.outputs.Trim(0) }

// Kept returns how many bytes all trees keep for later jobs.
func (h *Host) Kept() int64 { return h.kept.Load() }

// Recipes returns for how many sets of options it is known what a driver would run.
func (h *Host) Recipes() int { return h.recipes.Len() }

// TreeRoom returns how many bytes a job may write beside its own sources: a large file,
// and its assembly in the meantime.
func (h *Host) TreeRoom() int64 { return 2 * h.File }

// limits bound a confined compile that may take that much wall time.
func (h *Host) limits(wall time.Duration) sandbox.Limits {
	return sandbox.Limits{File: h.File, Memory: h.Memory, JobMemory: h.JobMemory, Processes: h.Processes, CPU: cpuPerWall * wall}
}

// exceeded returns the answer to a compile that was ended for what it did, or nil.
func (h *Host) exceeded(x sandbox.Excess, l *sandbox.Limits) *job.Refusal {
	switch x {
	case sandbox.ExcessMemory:
		return job.Refuse(job.CauseMemory, "the compile took more than %d bytes of memory (limits.job-memory)", l.JobMemory)
	case sandbox.ExcessProcesses:
		return job.Refuse(job.CauseLimit, "the compile had more than %d processes at a time (limits.processes)", l.Processes)
	case sandbox.ExcessFile:
		return job.Refuse(job.CauseTooBig, "the compile wrote more than %d bytes to a file, or %d in all (limits.file)", l.File, h.TreeRoom())
	case sandbox.ExcessCPU:
		return job.Refuse(job.CauseTimeout, "the compile took more than %v of processor time", l.CPU)
	case sandbox.ExcessDenied:
		return job.Refuse(job.CauseLimit, "the compile did what the sandbox forbids")
	case sandbox.ExcessNone:
	}
	return nil
}

// lookPath returns the path of a program on SearchPath, which it looks for once. A name that is not there is returned as
// it is, and cannot be started.
func (h *Host) lookPath(name string) string {
	if path, ok := h.programs.Load(name); ok {
		return path.(string)
	}
	for _, dir := range filepath.SplitList(SearchPath) {
		path := filepath.Join(dir, name)
		if unix.Access(path, unix.X_OK) == nil {
			h.programs.Store(name, path)
			return path
		}
	}
	return name
}
