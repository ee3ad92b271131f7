package worker

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// BenchmarkCarriers measures what a job costs both sides beside its compile, by carrier and size: from the
// registration of the source to the answer. The digest is wrong, so the job is answered where its source is
// read, in its place. Client and server are one process; cpu-ns/op counts both.
func BenchmarkCarriers(b *testing.B) {
	for _, size := range []int{512, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 64 << 10, 256 << 10} {
		for by := range job.CarrierNames() {
			by := job.Carrier(by)
			b.Run(fmt.Sprintf("%d/%v", size, by), func(b *testing.B) { benchCarrier(b, by, size) })
		}
	}
}

func benchCarrier(b *testing.B, by job.Carrier, size int) {
	ts := startServer(b, func(o *Options) { o.Eager, o.NoWrite = 256<<10, by != job.Write })
	c := dial(b, ts.addr, &job.Hello{})
	sink := make([]byte, 1<<20)
	body := compileBody("cpp-output", "a.c")
	head := body.Append(nil)
	off := job.TextOffset(len(head))
	raw := make([]byte, max(size, off+1))
	copy(raw, head)
	tool := ts.tool("gcc")
	cpu := func() int64 {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		return u.Utime.Nano() + u.Stime.Nano()
	}
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	msg := make([]byte, len(raw)+job.MaxMessage) // reused, as a manager does
	msgMR, err := c.pd.RegMR(msg, 0, nil)
	must(err)
	began := cpu()
	for b.Loop() {
		c.wait("a credit", func() bool { return len(c.credits) > 0 })
		c.mu.Lock()
		k := c.credits[0]
		c.credits = c.credits[1:]
		c.lastJob++
		r := &testResult{sink: sink}
		var err error
		r.mr, err = c.pd.RegMR(sink, iwarp.LocalWrite|iwarp.RemoteWrite, &iwarp.MROptions{QP: c.qp})
		must(err)
		m := &job.Job{ID: c.lastJob, Credit: k.ID, Toolchain: tool, BodyLen: uint32(len(head)), TextOff: uint32(off), TextLen: uint64(len(raw) - off),
			Sink: job.Window{STag: uint32(r.mr.STag()), TO: r.mr.Base(), Len: uint64(len(sink))}, Digest: [16]byte{1}}
		c.results[m.ID] = r
		var src iwarp.MR
		wr := &iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Unsignaled | iwarp.Inline}
		if k.Slot.STag != 0 {
			wr.Op, wr.InvSTag = iwarp.OpSendInv, iwarp.STag(k.Slot.STag)
		}
		switch by {
		case job.Write:
			src, err = c.pd.RegMR(raw, 0, nil)
			must(err)
			must(c.qp.PostSend(&iwarp.SendWR{Op: iwarp.OpWrite, Flags: iwarp.Unsignaled | iwarp.More, STag: iwarp.STag(k.Slot.STag), TO: k.Slot.TO,
				SGL: []iwarp.SGE{{Addr: src.Base(), Length: uint32(len(raw)), LKey: src.STag()}}}))
		case job.Pull:
			src, err = c.pd.RegMR(raw, iwarp.RemoteRead, &iwarp.MROptions{QP: c.qp})
			must(err)
			m.Source = job.Window{STag: uint32(src.STag()), TO: src.Base(), Len: uint64(len(raw))}
		case job.Eager:
			m.Carried = raw
		}
		if by == job.Eager {
			wr.SGL = []iwarp.SGE{{Addr: msgMR.Base(), Length: uint32(len(job.Append(msg[:0], m))), LKey: msgMR.STag()}}
			wr.Flags = iwarp.Unsignaled
		} else {
			wr.Data = job.Append(nil, m)
		}
		must(c.qp.PostSend(wr))
		c.mu.Unlock()
		if r := c.result(m.ID); r.Cause != job.CauseDigest {
			b.Fatalf("%+v", r.Result)
		}
		c.mu.Lock()
		delete(c.results, m.ID)
		c.mu.Unlock()
		if src != nil {
			must(src.Dereg())
		}
		must(r.mr.Dereg())
	}
	b.ReportMetric(float64(cpu()-began)/float64(b.N), "cpu-ns/op")
}
