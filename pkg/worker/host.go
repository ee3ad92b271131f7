package worker

import (
	"bytes"
	"math"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/cgroup"
	"github.com/rdistcc/rdistcc/internal/job"
)

func (s *Server) readHostLoad() {
	var h hostLoad
	if b, err := os.ReadFile(s.o.Proc + "/loadavg"); err == nil {
		first, _, _ := bytes.Cut(b, []byte(" "))
		if f, err := strconv.ParseFloat(string(first), 64); err == nil {
			h.loadAvg = uint32(min(f*100, math.MaxUint32))
		}
	}
	h.memoryFree = s.readMemory()
	h.ample = s.readAmple()
	h.oomKills = s.readOOMKills()
	var st unix.Statfs_t
	h.diskErr = unix.Statfs(s.o.WorkBase, &st)
	h.diskFree = st.Bavail * uint64(st.Bsize)
	h.pressure = job.Pressure{CPU: s.pressure("cpu"), Memory: s.pressure("memory"), IO: s.pressure("io")}
	s.load.Store(&h)
}

// tellMemoryLocked tells the ledger how much memory is free.
func (s *Server) tellMemoryLocked() {
	h := s.load.Load()
	s.lend.SetMemory(h.memoryFree, h.waits())
}

// readMemory returns how many bytes programs could still use without swapping, on this machine and in the
// control groups around this process; 0 if not known.
func (s *Server) readMemory() (free uint64) {
	if b, err := os.ReadFile(s.o.Proc + "/meminfo"); err == nil {
		free = number(b, "MemAvailable:") << 10
	}
	if n, ok := s.groups.MemoryFree(); ok && (free == 0 || n < free) {
		free = n
	}
	return free
}

// readAmple reports whether it is known that plenty of memory is free, on this machine and in the control groups around
// this process.
func (s *Server) readAmple() bool {
	b, err := os.ReadFile(s.o.Proc + "/meminfo")
	total, free := number(b, "MemTotal:")<<10, number(b, "MemAvailable:")<<10
	return err == nil && total > 0 && !cgroup.Scarce(free, total) && !s.groups.Scarce()
}

// readOOMKills returns how many processes the kernel has killed because memory ran out.
func (s *Server) readOOMKills() uint64 {
	b, err := os.ReadFile(s.o.Proc + "/vmstat")
	if err != nil {
		return 0
	}
	return number(b, "oom_kill ")
}

// number returns the number that follows a name in the text b, or 0 if the name is not there.
func number(b []byte, name string) uint64 {
	_, rest, _ := bytes.Cut(b, []byte(name))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	n, err := strconv.ParseUint(string(bytes.TrimSuffix(bytes.TrimSpace(line), []byte(" kB"))), 10, 54)
	if err != nil {
		return 0
	}
	return n
}

// pressure returns how long processes have waited for a resource (Linux PSI), in hundredths of a percent, or
// job.NoPressure if the kernel does not say.
func (s *Server) pressure(resource string) uint16 {
	b, err := os.ReadFile(s.o.Proc + "/pressure/" + resource)
	if err != nil {
		return job.NoPressure
	}
	_, rest, _ := bytes.Cut(b, []byte("some avg10="))
	word, _, _ := bytes.Cut(rest, []byte(" "))
	f, err := strconv.ParseFloat(string(word), 64)
	if err != nil {
		return job.NoPressure
	}
	return uint16(max(0, min(f*100, job.NoPressure-1)))
}

// jobMemory returns the default of Options.JobMemory: three quarters of machineMemory.
func (s *Server) jobMemory() int64 { return s.machineMemory() / 4 * 3 }

// machineMemory returns the memory of the machine, or what the control groups around this process allow if
// that is less, in bytes; 0 if not known.
func (s *Server) machineMemory() (n int64) {
	if b, err := os.ReadFile(s.o.Proc + "/meminfo"); err == nil {
		n = int64(number(b, "MemTotal:") << 10)
	}
	if most := s.groups.Memory(); most > 0 && (n == 0 || most < n) {
		n = most
	}
	return n
}

// loadLocked returns this host's load as messages carry it.
func (s *Server) loadLocked() job.Load {
	h := s.load.Load()
	free := 0
	if !s.drain.begun { // a draining host grants none
		free = s.lend.Free(time.Now())
	}
	return job.Load{
		Jobs:       clip16(s.o.Jobs),
		Running:    clip16(s.lend.Running()),
		Queued:     clip16(s.lend.Queued()),
		Free:       clip16(free),
		Draining:   s.drain.begun,
		LoadAvg:    h.loadAvg,
		MemoryFree: h.memoryFree,
	}
}

func clip16(n int) uint16 { return uint16(max(0, min(n, math.MaxUint16))) }
