// Package run does jobs in the places of a compile host. Every job takes the same steps, whatever its form
// and wherever it runs: open the source, check the command, lay out the files, run the compiler, gather the
// outputs, seal the answer. Place.form decides once which form the job has and which kind of place it needs;
// the steps that differ are methods of the form.
//
// The package knows nothing of connections or queues. Its caller decides when and where a job runs, and sends
// the answer.
package run

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/driver/recipes"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/shm"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/pkg/worker/cluster"
	"github.com/rdistcc/rdistcc/pkg/worker/images"
	"github.com/rdistcc/rdistcc/pkg/worker/large"
)

// SearchPath is the PATH on which compilers find their assembler. Package toolchain uses the same one to
// identify it.
const SearchPath = "/usr/local/bin:/usr/bin:/bin"

// cpuPerWall is how many seconds of CPU time a compile may take per second of its time limit. An honest compile
// uses one core; one that starts more processes gets this many.
const cpuPerWall = 2

// Host is what all places of a daemon share. The exported fields are set before the first job and do not
// change.
type Host struct {
	Context context.Context // ends with the daemon, and ends every wait
	Log     *slog.Logger
	WorkDir string // the daemon's work area
	Places  int

	// Bounds of a compile, in bytes: one file, its standard output and error, what each of its programs may map
	// (0 = no bound), and the memory of all its programs together.
	File, Output, Memory, JobMemory int64
	// Processes is how many processes a compile may have at a time.
	Processes int
	// Result is the largest result, in bytes, that is offered to a client to fetch. It lies in memory of Large.
	Result int64
	Large  *large.Memory

	Trees    bool // private trees are available, so jobs of the sources form are accepted
	Confined bool // every compile runs in a tree, confined
	Bare     bool // trees are directories of the host, which offers no namespaces
	Answered bool // calls that name files are answered in bare trees, which are private trees then

	// Cluster, if not nil, has all jobs done, and nothing of a job runs here. Then Trees is set: its workers show the build host's names.
	Cluster *cluster.Cluster

	Nice func() int // the niceness of compiles
	// Verify refuses a toolchain whose files have changed since it was identified.
	Verify func(ctx context.Context, t *toolchain.Toolchain) error
	// OOMKills returns how many processes the kernel has killed because memory ran out.
	OOMKills func() uint64
	// Denied counts a compile that was stopped, or whose output was cut. The word is one of Denials.
	Denied func(word string)
	// Images keeps the precompiled headers that compiles on this host have made.
	Images *images.Store
	// Forgets grows when trees have to drop what they keep.
	Forgets *atomic.Uint64

	recipes  recipes.Cache
	flags    recipes.FlagCache
	programs sync.Map // from a program's name to its path on SearchPath
	pairs    pairs
	outputs  *shm.Pool // for stdout and stderr of commands that are not confined
	devNull  *os.File
	unasked  atomic.Uint64 // questions about flags that met trouble on the cluster
	kept     atomic.Int64  // bytes that trees keep from job to job
}

// Open acquires the resources of a Host. Close releases them.
func (h *Host) Open() (err error) {
	if h.devNull, err = os.Open(os.DevNull); err != nil {
		return err
	}
	h.outputs, err = shm.NewPool(shm.Options{Name: "rdistccd-out", Size: 2 * h.Output, Max: 2 * h.Places})
	return err
}

// Close releases what Open acquired. All places must be closed before.
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

// Recipes returns for how many sets of options the host knows what a driver would run.
func (h *Host) Recipes() int { return h.recipes.Len() }

// TreeRoom returns how many bytes a job may write in addition to its own sources: one file of the largest size,
// and as much again for the assembly that exists meanwhile.
func (h *Host) TreeRoom() int64 { return 2 * h.File }

// limits returns the limits of a confined compile that may take wall of elapsed time.
func (h *Host) limits(wall time.Duration) sandbox.Limits {
	return sandbox.Limits{File: h.File, Memory: h.Memory, JobMemory: h.JobMemory, Processes: h.Processes, CPU: cpuPerWall * wall}
}

// exceeded returns the refusal for a compile that the sandbox ended because of x, or nil if x is ExcessNone.
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
	case sandbox.ExcessNames:
		return job.Refuse(job.CauseTree, "the compile named files in a way to which this host has no answer")
	case sandbox.ExcessNone:
	}
	return nil
}

// lookPath returns the path of a program of this host's on SearchPath, and remembers it. A name that is not found is returned
// unchanged, and then fails to start.
func (h *Host) lookPath(name string) string {
	if path, ok := h.programs.Load(name); ok {
		return path.(string)
	}
	for _, dir := range filepath.SplitList(SearchPath) {
		if path := filepath.Join(dir, name); unix.Access(path, unix.X_OK) == nil {
			h.programs.Store(name, path)
			return path
		}
	}
	return name
}

// lookAmong is like lookPath with the programs of a toolchain that a client has sent: the names that its trees show. A look at the
// directory where it is laid out would follow its links, as seen from this host, and tell the client what is there.
func lookAmong(files []string, name string) string {
	for _, dir := range filepath.SplitList(SearchPath) {
		if path := filepath.Join(dir, name); slices.Contains(files, path) {
			return path
		}
	}
	return name
}
