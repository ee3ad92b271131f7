package faults

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rdistcc/rdistcc/internal/digest"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// TestLiarsAreFoundOut: what a host returns is used only if it is what the host made, and a host that only
// claims to have results is found out: beside a good host no compile is harmed or has to be done here, and
// the liar soon gets no more jobs.
func TestLiarsAreFoundOut(t *testing.T) {
	part.Skip(t)
	t.Parallel()
	object := objectHead + "this is no object, and nobody shall take it for one"
	sealed := func(change func(r *job.Result)) func(p *peer, m *job.Job) {
		return answered(object, func(r *job.Result) {
			r.Digest = digest.Sum([]byte(object))
			change(r)
		})
	}
	const many = 24 // compiles
	for name, q := range map[string]struct {
		liar
		id   unit.ToolchainID // zero: the right one
		most int              // jobs that it gets
	}{
		"another digest": {most: 6, liar: liar{onJob: sealed(func(r *job.Result) { r.Digest[3]++ })}},
		"a bit that flipped behind the digest": {most: 6, liar: liar{onJob: func(p *peer, m *job.Job) {
			bad := []byte(object)
			bad[7] ^= 4
			p.write(bad, m.Sink.STag, m.Sink.TO)
			p.send(&job.Result{ID: m.ID, Digest: digest.Sum([]byte(object)), Files: []job.File{{Segment: job.Segment{Len: uint64(len(object))}}}}, m.Sink.STag)
		}}},
		"a frame that is none": {most: 6, liar: liar{onJob: sealed(func(r *job.Result) { r.Packed = uint64(len(object)) })}},
		"a window that it does not have": {most: 6, liar: liar{reads: true, onJob: func(p *peer, m *job.Job) {
			p.send(&job.Result{ID: m.ID, Files: []job.File{{Segment: job.Segment{Len: 5 << 20}}},
				Window: job.Window{STag: 0x1234500, Len: 5 << 20}}, m.Sink.STag)
		}}},
		"a source that it did not get": {most: 6, liar: liar{onJob: func(p *peer, m *job.Job) {
			p.send(&job.Result{ID: m.ID, Status: job.StatusFailed, Cause: job.CauseDigest}, m.Sink.STag)
		}}},
		"a compiler that always dies": {most: 12, liar: liar{onJob: sealed(func(r *job.Result) { r.Signal, r.Files = 9, nil })}},
		"free places that are none": {most: 6, liar: liar{load: job.Load{Jobs: 1000, Free: 1000, MemoryFree: 1 << 40}, onJob: func(p *peer, m *job.Job) {
			p.send(&job.Result{ID: m.ID, Status: job.StatusRefused, Cause: job.CauseFull}, m.Sink.STag)
		}}},
		"another compiler": {id: unit.ToolchainID{1, 2, 3}, most: 0, liar: liar{onJob: sealed(func(*job.Result) {})}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			d := s.daemon("d1", "", "--jobs", "2")
			s.manager("", "scheduler: {backoff: 5m, backoff-max: 5m}\n")
			s.on(d.Addr)
			id := q.id
			if id == (unit.ToolchainID{}) {
				id = s.gcc()
			}
			var jobs atomic.Int32
			l := q.liar
			l.credits, l.slot, l.listed, l.again = 4, 1<<20, 1, true
			l.onJob = func(p *peer, m *job.Job) {
				jobs.Add(1)
				q.onJob(p, m)
			}
			host := l.serve(t, id)
			// It is known, and has had a job, before there is a better host to choose.
			if o := s.run([]string{"RDISTCC_HOSTS=" + host}, "gcc", "-O2", "-c", s.units(1)[0]); o.status != 0 || !strings.HasPrefix(o.report, "local:") {
				t.Errorf("with the liar alone: %+v, want it done here", o)
			}
			env := []string{"RDISTCC_HOSTS=" + host + " " + d.Addr, "RDISTCC_FALLBACK=0"}
			for i, u := range s.units(many) {
				if o := s.run(env, "gcc", "-O2", "-c", u); o.status != 0 || o.stderr != "" || o.report != "remote:"+d.Addr {
					t.Errorf("compile %d: %+v, want it done by the good host", i, o)
				}
				s.sameObject(strings.TrimSuffix(u, ".c")+".o", "gcc", "-O2", "-c", u)
			}
			if n := int(jobs.Load()); n > q.most || n == 0 && q.most > 0 {
				t.Errorf("%d jobs of %d were given to the liar, want at most %d, and some", n, many, q.most)
			} else {
				t.Logf("%d jobs of %d were given to the liar", n, many)
			}
			s.eventually("rest", s.busy)
		})
	}
}

// regrant replaces a spent credit.
func (l *liar) regrant(p *peer, seq uint32, slots *[]iwarp.MR) {
	mr, err := p.pd.RegMR(make([]byte, 1<<20), iwarp.LocalWrite|iwarp.RemoteWrite, &iwarp.MROptions{QP: p.qp})
	if err != nil {
		return // it is gone
	}
	*slots = append(*slots, mr)
	p.send(&job.Grant{Seq: seq, Credits: []job.Credit{{ID: 1000 + uint64(seq), Slot: job.Window{STag: uint32(mr.STag()), Len: l.slot}}}}, 0)
}
