package connmgr

import (
	"crypto/sha256"
	"encoding/binary"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdistcc/rdistcc/internal/costs/journal"
	"github.com/rdistcc/rdistcc/internal/inputs"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/history"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// maxUnwritten is how many compiles wait to be written to the journal together. A manager that is killed loses them.
const maxUnwritten = 64

// costs notes in the journal what compiles read and took. It is safe for concurrent use.
type costs struct {
	w   *journal.Writer // nil: nothing is noted
	log *slog.Logger

	mu        sync.Mutex
	unwritten []spent
	failed    bool // to write, the last time
}

// spent is a compile that is to be noted.
type spent struct {
	journal.Compile
	reads *reads // nil: not known
	key   history.Key
}

// reads is what a compile reads, as far as it is known when it is answered.
type reads struct {
	set       *inputs.Set
	args      []string
	cwd       string // that the names of a job from a wrapper are relative to
	toolchain [16]byte
	unnamed   bool // the result has no name in the cache, so the sum of set has not been taken
	// unread says which files of the job's set it has not read. It is set in the background, by what the compile has written; nil: not
	// known yet.
	unread atomic.Pointer[inputs.Unread]
}

// left records what the compile of k has left unread, if read is not nil. r may be that of another job, or nil.
func (r *reads) left(k *known.Job, read *listed) {
	if r != nil && r.set == k.Set && read != nil {
		r.unread.Store((*inputs.Unread)(&read.Unread))
	}
}

// openCosts returns the costs whose journal is in dir; "": nothing is noted.
func openCosts(dir string, log *slog.Logger) *costs {
	x := &costs{log: log}
	if dir != "" {
		x.w = journal.NewWriter(dir)
	}
	return x
}

// reading records what the command's job reads; nil: that is not known.
func (c *client) reading(k *known.Job) {
	c.reads = nil
	if k != nil { // what else it has, such as its source, is too much to be kept
		c.reads = &reads{set: k.Set, args: k.Body.Args, cwd: k.Body.Cwd, toolchain: c.compiler.ID, unnamed: c.m.results == nil || k.Set.Timed}
	}
}

// spend notes what the command took, if it is a compile that has come to its end.
func (c *client) spend() {
	r, x := &c.record, c.m.costs
	if x.w == nil || r.Source == "" || !r.Finished || r.Local && !reason.Compiles(r.Reason) {
		return
	}
	s := spent{reads: c.reads, Compile: journal.Compile{Ended: r.Ended, Build: r.Build, OK: r.Exit == 0, Asked: r.Asked, Memory: r.Memory,
		Source: within(r.Cwd, r.Source), Output: within(r.Cwd, r.Output), Why: r.Missed}}
	us := r.HereUS
	switch r.Place() {
	case report.PlaceRemote:
		s.Place, s.Where, s.Ran = journal.Remote, r.Host, time.Duration(r.CompileUS)*time.Microsecond
	case report.PlaceCached:
		s.Place, s.Where, s.Ran = journal.Cached, r.Cached, time.Duration(r.CompileUS)*time.Microsecond
	case report.PlaceLocal:
		s.Place, s.Why, us = journal.Here, r.Reason, r.CPUUS
		if !c.began.IsZero() {
			s.Ran = r.Ended.Sub(c.began)
		}
	}
	s.CPU = time.Duration(us) * time.Microsecond
	if s.reads != nil {
		s.key = history.Of(s.reads.toolchain, s.Source, s.reads.args)
		if s.Memory == 0 {
			s.Memory = c.m.past.memory(s.key)
		}
	}
	x.mu.Lock()
	x.unwritten = append(x.unwritten, s)
	due := len(x.unwritten) >= maxUnwritten
	x.mu.Unlock()
	if due {
		x.flush()
	}
}

// within returns the absolute name of a file that a command in cwd names.
func within(cwd, name string) string {
	if name == "" || cwd == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(cwd, name)
}

// flush writes what was noted.
func (x *costs) flush() {
	if x.w == nil {
		return
	}
	x.mu.Lock()
	list := x.unwritten
	x.unwritten = nil
	x.mu.Unlock()
	for i := range list {
		list[i].add(x.w)
	}
	err := x.w.Flush()
	x.mu.Lock()
	news := err != nil && !x.failed
	x.failed = err != nil
	x.mu.Unlock()
	if news { // a full disk stays so for a while
		x.log.Warn("note what compiles cost", "err", err)
	}
}

// close writes what was noted, for the last time.
func (x *costs) close() {
	if x.w != nil {
		x.flush()
		_ = x.w.Close() // flush has written it
	}
}

// add adds s to a journal.
func (s *spent) add(w *journal.Writer) {
	if s.reads == nil {
		w.Add(&s.Compile, journal.List{}, nil)
		return
	}
	set, cwd := s.reads.set, s.reads.cwd
	s.Command = s.reads.command()
	var unread inputs.Unread
	if u := s.reads.unread.Load(); u != nil {
		unread, s.Exact = *u, true
	}
	w.Add(&s.Compile, s.reads.list(unread), func(yield func(*journal.File)) {
		for i, f := range set.Files {
			if unread == nil || !unread.Has(i) {
				yield(&journal.File{Name: within(cwd, f.Name), Size: f.Len, Sum: binary.LittleEndian.Uint64(f.ID[:])})
			}
		}
	})
}

// command returns a number that tells the command from others for the same source.
func (r *reads) command() uint64 {
	h := sha256.New()
	h.Write(r.toolchain[:])
	for _, w := range r.args {
		h.Write([]byte(w))
		h.Write([]byte{0})
	}
	return binary.LittleEndian.Uint64(h.Sum(nil))
}

// list names what a compile has read, by a sum that the job has needed anyway: each is as long to take as what it names.
func (r *reads) list(unread inputs.Unread) journal.List {
	h := sha256.New()
	if r.unnamed { // it was sent to a host
		source := r.set.Files[0].ID
		h.Write(source[:])
		for s := r.set; s != nil; s = s.Base() {
			id, _ := s.List()
			h.Write(id[:])
		}
	} else {
		sum := r.set.Sum()
		h.Write(sum[:])
	}
	h.Write([]byte(r.cwd))
	h.Write([]byte{0})
	h.Write(unread)
	return journal.List(h.Sum(nil))
}
