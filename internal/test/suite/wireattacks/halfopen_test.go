package wireattacks

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/relay"
)

// TestHalfOpen: a peer that vanishes without a FIN, in each state that a connection has.
// Those that have a stream are found silent, the others run into a timer of the
// start-up; what they held comes back.
func TestHalfOpen(t *testing.T) {
	// Long enough for the scene's own client, which answers nothing while a job of another waits in the queue of a busy machine.
	s := newScene(t, "limits: {heartbeat: 200ms, silence: 8s}\n")
	between, err := relay.New(s.d.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer between.Close()
	dial := func() *raw {
		s.answerHeartbeats()
		r := connect(t, offender, between.Addr())
		r.want = 1 // so that nothing is recalled from them, which they would not notice
		return r
	}
	before := s.metrics()
	good := startup(requestKey, plainFlags, 2, greeting())
	starting := []func(){
		func() { dial() },
		func() { dial().put(good[:18]) },
		func() { dial().put(good[:len(good)-1]) },
	}
	text := manyFunctions(2000)
	established := []func(){
		func() { dial().open() },
		func() { dial().open().hello("idle") },
		func() { // amid a message of several segments
			r := dial().open().hello("amid a Send")
			r.put(untagged(header{ddp: ddpV1, msn: r.sends + 1}, mark))
		},
		func() { // amid a frame
			r := dial().open().hello("amid a frame")
			w := r.credits[0].Slot
			r.put(write(w.STag, w.TO, mark)[:40])
		},
		func() { // after a source, before its job
			r := dial().open().hello("amid a source")
			r.place(r.credits[0].Slot, []byte(text))
		},
		func() { // that is to be fetched
			r := dial().open().hello("source offered")
			k := r.credits[0]
			m, _ := r.compile(k, 1, text)
			m.Source = job.Window{STag: 7, Len: uint64(m.TextOff) + m.TextLen}
			r.send(m, k.Slot.STag)
		},
		func() { // while its job runs
			r := dial().open().hello("job running")
			k := r.credits[0]
			m, content := r.compile(k, 1, text)
			r.place(k.Slot, content)
			r.send(m, k.Slot.STag)
		},
		func() { // with a result that it has not fetched
			r := dial().open().hello("result offered")
			k := r.credits[0]
			m, content := r.compile(k, 1, "int x;\n")
			m.Sink.Len, m.Fetch = 8, 1<<20
			r.place(k.Slot, content)
			r.send(m, k.Slot.STag)
			if res := r.answer(1); res.Window.STag == 0 {
				t.Errorf("%+v, want a window", res)
			}
		},
	}
	for i, begin := range append(established, starting...) {
		begin()
		moved, stranded := int64(-1), 0
		s.eventually("connection in state "+strconv.Itoa(i), func() string {
			if now := between.Moved(); now != moved { // what was said shall have arrived
				moved = now
				return "bytes move"
			}
			if stranded += between.Strand(); stranded != 1 {
				return fmt.Sprint(stranded, " connections were stranded")
			}
			return ""
		})
	}
	silent := `rdistccd_connections_ended_total{cause="silent"}`
	s.eventually("end of what was established", func() string {
		if n := s.metrics()[silent] - before[silent]; int(n) < len(established) {
			return fmt.Sprint(n, " were found silent")
		}
		return ""
	})
	s.clean()
	late := `iwarp_startups_refused_total{cause="late"}`
	if n := s.metrics()[late] - before[late]; int(n) != len(starting) {
		t.Errorf("%v start-ups are counted as late, want %d", n, len(starting))
	}
	if m := s.metrics(); m["rdistccd_large_bytes"] != 0 || m["rdistccd_jobs_running"]+m["rdistccd_jobs_queued"] != 0 {
		t.Errorf("large memory %v, running %v, queued %v", m["rdistccd_large_bytes"], m["rdistccd_jobs_running"], m["rdistccd_jobs_queued"])
	}
	s.compile()
}
