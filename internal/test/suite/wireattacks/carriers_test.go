package wireattacks

import (
	"bytes"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
)

// TestEagerLies: what a message says of the source that it carries is held against its length, and costs the
// connection nothing as long as the message itself is one.
func TestEagerLies(t *testing.T) {
	s := newScene(t, patient)
	r := s.attacker()
	id := uint64(0)
	for name, x := range map[string]struct {
		change func(m *job.Job)
		cause  job.Cause
	}{
		"one byte more":        {func(m *job.Job) { m.Carried = append(m.Carried, 1) }, job.CauseMalformed},
		"one byte less":        {func(m *job.Job) { m.Carried = m.Carried[:len(m.Carried)-1] }, job.CauseMalformed},
		"a longer text":        {func(m *job.Job) { m.TextLen = 1 << 40 }, job.CauseMalformed},
		"a text of 2^64":       {func(m *job.Job) { m.TextLen = 1<<64 - 64 }, job.CauseMalformed},
		"a window as well":     {func(m *job.Job) { m.Source = job.Window{STag: 7, Len: 9} }, job.CauseMalformed},
		"a body of noise":      {func(m *job.Job) { copy(m.Carried, bytes.Repeat([]byte{0x5a}, 64)) }, job.CauseMalformed},
		"another digest":       {func(m *job.Job) { m.Digest[0] = 1 }, job.CauseDigest},
		"a frame that is none": {func(m *job.Job) { m.Packed = uint64(len(m.Carried)) }, job.CauseDigest},
	} {
		id++
		k := r.credit()
		m, content := r.compile(k, id, "int x;\n")
		m.Carried = content
		x.change(m)
		r.send(m, k.Slot.STag)
		if res := r.answer(id); res.Status == job.StatusRan || res.Cause != x.cause {
			t.Errorf("%s: %+v, want %v", name, res, x.cause)
		}
	}
	// An honest one is compiled.
	id++
	k := r.credit()
	m, content := r.compile(k, id, "int x;\n")
	m.Carried = content
	r.send(m, k.Slot.STag)
	if res := r.answer(id); res.Status != job.StatusRan || res.Exit != 0 {
		t.Errorf("an honest one: %+v", res)
	}
	r.c.Close()
	s.clean()
	s.compile()
}

// TestUnreadSource: a client that offers a source and answers no Read delays its own jobs only, and loses its
// connection when the source has been unread for too long.
func TestUnreadSource(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for half a minute")
	}
	s := newScene(t, patient)
	r := s.attacker()
	k := r.credit()
	m, content := r.compile(k, 1, "int x;\n")
	m.Source = job.Window{STag: 0x0e0e0e0e, Len: uint64(len(content))}
	_ = r.c.SetDeadline(time.Now().Add(job.WindowTime + patience))
	_ = s.honest.c.SetDeadline(time.Now().Add(job.WindowTime + 2*patience))
	r.send(m, k.Slot.STag)
	s.compile()
	r.closed()
	s.eventually("count of the end", func() string {
		if s.metrics()[`rdistccd_connections_ended_total{cause="unread"}`] != 1 {
			return "none"
		}
		return ""
	})
	if n := s.metrics()["rdistccd_fetched_ahead"]; n != 0 {
		t.Errorf("%v sources are being fetched", n)
	}
	s.clean()
	s.compile()
}
