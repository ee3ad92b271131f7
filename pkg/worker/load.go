package worker

import (
	"bytes"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/rdistcc/rdistcc/pkg/job"
)

// hostLoad is the machine's state, read once a tick as it costs some files.
type hostLoad struct {
	loadAvg    uint32 // x 100
	memoryFree uint64 // bytes
	pressure   job.Pressure
}

func (s *Server) readHostLoad() {
	var h hostLoad
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		first, _, _ := bytes.Cut(b, []byte(" "))
		if f, err := strconv.ParseFloat(string(first), 64); err == nil {
			h.loadAvg = uint32(min(f*100, math.MaxUint32))
		}
	}
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		if _, rest, ok := bytes.Cut(b, []byte("MemAvailable:")); ok {
			line, _, _ := bytes.Cut(rest, []byte("\n"))
			kib, err := strconv.ParseUint(string(bytes.TrimSuffix(bytes.TrimSpace(line), []byte(" kB"))), 10, 54)
			if err == nil {
				h.memoryFree = kib << 10
			}
		}
	}
	h.pressure = job.Pressure{CPU: pressure("cpu"), Memory: pressure("memory"), IO: pressure("io")}
	s.host.Store(&h)
}

// pressure reads how long processes waited for a resource (Linux PSI), where the
// kernel tells.
func pressure(resource string) uint16 {
	b, err := os.ReadFile("/proc/pressure/" + resource)
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

// loadLocked is what messages say about this host.
func (s *Server) loadLocked() job.Load {
	h := s.host.Load()
	held := 0
	for c := range s.conns {
		held += c.heldLocked()
	}
	return job.Load{
		Jobs:       clip16(s.o.Jobs),
		Running:    clip16(s.running),
		Queued:     clip16(len(s.queue)),
		Free:       clip16(s.spare() + len(s.conns) - held),
		Draining:   s.draining,
		LoadAvg:    h.loadAvg,
		MemoryFree: h.memoryFree,
	}
}

func clip16(n int) uint16 { return uint16(max(0, min(n, math.MaxUint16))) }

// tick looks after the connections and the credits until the server stops.
func (s *Server) tick() {
	every := min(time.Second, s.o.Heartbeat)
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-t.C:
			s.readHostLoad()
			s.mu.Lock()
			for c := range s.conns {
				c.checkLifeLocked(every)
			}
			s.rebalanceLocked()
			s.publishLocked()
			idle := len(s.conns) == 0
			now := time.Now()
			scan := now.After(s.nextScan) && !s.draining
			if scan {
				s.nextScan = now.Add(rescanTime)
			}
			s.mu.Unlock()
			if idle {
				s.slots.Trim(0)
				s.outputs.Trim(0)
				s.large.trim()
			}
			if scan {
				s.serving.Go(s.rescan) // it may take seconds
			}
		}
	}
}

func (s *Server) rescan() {
	if err := s.Rescan(s.ctx); err != nil && s.ctx.Err() == nil {
		s.o.Log.Error("look for compilers", "err", err)
	}
}

// Status is what a status page shows.
type Status struct {
	Load    job.Load
	Large   int64 // bytes of sources and results beyond slots and sinks
	Tree    bool  // jobs of the sources form are taken
	Clients []ClientStatus
}

// ClientStatus is one connection's part of a Status.
type ClientStatus struct {
	Name, Remote      string
	Credits, InHand   int // unspent; queued or running
	Jobs              uint64
	Since             time.Time
	BytesIn, BytesOut uint64
}

// Status returns the state of now.
func (s *Server) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{Load: s.loadLocked(), Large: s.large.used.Load(), Tree: s.trees}
	for c := range s.conns {
		q := ClientStatus{Name: c.name, Remote: c.remote.String(), Credits: len(c.credits), InHand: len(c.tasks), Jobs: c.jobs, Since: c.since}
		if c.qp != nil {
			qs := c.qp.Stats()
			q.BytesIn, q.BytesOut = qs.BytesReceived, qs.BytesSent
		}
		st.Clients = append(st.Clients, q)
	}
	return st
}

// Ready says whether the server takes jobs, or why not.
func (s *Server) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return errDraining
	}
	if len(*s.listed.Load()) == 0 {
		return errNoToolchain
	}
	return nil
}
