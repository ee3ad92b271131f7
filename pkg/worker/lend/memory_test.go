package lend

import (
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
)

// TestMemoryLies: what a client says of its jobs' memory counts as far as its earlier
// ones have borne it out.
func TestMemoryLies(t *testing.T) {
	s := newSite(Options{Cores: 8})
	honest, liar, mute := s.add("a", 1), s.add("b", 1), s.add("c", 1)
	for range 20 {
		honest.tenant.learn(time.Second, 500<<20, 490<<20)
		liar.tenant.learn(time.Second, 1<<20, 500<<20)
		mute.tenant.learn(time.Second, 0, 500<<20)
	}
	mib := func(c *Conn, said uint64) uint64 { return s.expected(&Job{client: c.client, Memory: said << 20}) >> 20 }
	if n := mib(honest, 300); n != 300 {
		t.Errorf("of the honest one's 300 MiB %d are expected", n)
	}
	if n := mib(liar, 1); n < 400 {
		t.Errorf("of the liar's 1 MiB %d are expected, where they took 500", n)
	}
	if n := mib(mute, 0); n < 400 {
		t.Errorf("of nothing said %d MiB are expected, where they took 500", n)
	}
	stranger := s.add("d", 1)
	s.memory.meanRSS = 200 << 20
	if n := mib(stranger, 0); n != 200 {
		t.Errorf("of a stranger's %d MiB are expected, where all others' took 200", n)
	}
}

// TestNothingStartsUnderPressure: while the host is short of memory, no job starts next to a running one,
// whatever its client says; a job alone does.
func TestNothingStartsUnderPressure(t *testing.T) {
	for name, m := range map[string]memory{
		"pressure":       {free: 8 << 30, pressure: tightMemory + 1},
		"nothing free":   {free: MemoryFloor / 2, pressure: job.NoPressure},
		"pressure alone": {pressure: tightMemory + 1},
	} {
		s := newSite(Options{Cores: 4})
		s.SetMemory(m.free, m.pressure)
		c := s.add("a", 1)
		first, second := s.submit(c, time.Second, Job{}), s.submit(c, time.Second, Job{})
		if got, no := s.next(); got != first || no != nil {
			t.Errorf("%s: the first job does not start: %+v, %v", name, got, no)
		}
		if got, _ := s.next(); got != nil {
			t.Errorf("%s: a second job starts", name)
		}
		s.now = s.now.Add(memoryWait)
		if got, no := s.next(); got != second || no == nil || no.Cause != job.CauseMemory {
			t.Errorf("%s: the second job is not sent elsewhere in time: %+v, %v", name, got, no)
		}
	}
}

// A job does not wait for memory for ever.
func TestMemoryWaitEnds(t *testing.T) {
	s := newSite(Options{Cores: 2})
	s.SetMemory(1<<30, job.NoPressure)
	c := s.add("a", 1)
	big := Job{Memory: 600 << 20, Expect: time.Hour}
	first, second := s.submit(c, 0, big), s.submit(c, 0, big)
	if got, no := s.next(); got != first || no != nil {
		t.Fatalf("the first: %+v, %v", got, no)
	}
	s.now = s.now.Add(memoryWait - time.Millisecond)
	if got, _ := s.next(); got != nil {
		t.Fatalf("the second runs without memory: %+v", got)
	}
	s.now = s.now.Add(time.Millisecond)
	if got, no := s.next(); got != second || no == nil || no.Cause != job.CauseMemory {
		t.Errorf("the second after %v: %+v, %v", memoryWait, got, no)
	}
}

// TestContentsMakeRoom: if dropping contents could make room for a job, the ledger asks for that, once at a
// time, but not for a claim that the tenant's jobs have not borne out.
func TestContentsMakeRoom(t *testing.T) {
	s := newSite(Options{Cores: 2})
	s.SetMemory(500<<20, job.NoPressure)
	c := s.add("a", 1)
	j := s.submit(c, 0, Job{Memory: 600 << 20})
	s.Looked(500<<20, s.now)
	if turn := s.Next(s.now); turn.Act != Start || turn.No == nil {
		t.Errorf("the first word of a client: %+v", turn)
	}
	s.Ended(j, true, s.now)
	c.tenant.learn(time.Second, 600<<20, 600<<20)
	j = s.submit(c, 0, Job{Memory: 600 << 20})
	want := Turn{Act: Drop, Bytes: 100<<20 + MemoryFloor}
	if turn := s.Next(s.now); turn != want {
		t.Errorf("%+v, want %+v", turn, want)
	}
	s.Kept(want.Bytes-1, s.now)
	if turn := s.Next(s.now); turn.Act != Start || turn.No == nil {
		t.Errorf("with fewer contents: %+v", turn)
	}
	s.Ended(j, true, s.now)
	j = s.submit(c, 0, Job{Memory: 600 << 20})
	s.now = s.now.Add(time.Millisecond)
	if turn := s.Next(s.now); turn != want {
		t.Errorf("later: %+v, want %+v", turn, want)
	}
	s.Looked(800<<20, s.now)
	if turn := s.Next(s.now); turn.Act != Start || turn.Job != j || turn.No != nil {
		t.Errorf("with room: %+v", turn)
	}
}
