package daemontest

import (
	"errors"
	"fmt"

	"github.com/rdistcc/rdistcc/internal/compress"
	"github.com/rdistcc/rdistcc/internal/digest"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Answer is the outcome of a job. Out, Err and Objects go to the sink one after the other.
type Answer struct {
	job.Result
	Out, Err []byte
	Objects  [][]byte
	NoNext   bool
	Change   func(r *job.Result) // called before r is sent; may be nil
	Offered  bool                // offer the data in a window, as if they were too big for the sink
}

// Compiled returns the answer to a successful compile. The object contains the name and text of the source.
func Compiled(j *Job) *Answer {
	return &Answer{Objects: [][]byte{fmt.Appendf(nil, "object of %s: %s", j.body.Name, j.Text)}}
}

// Finish writes an answer into j's sink, or offers it in a window, and sends the Result.
func (c *Conn) Finish(j *Job, a *Answer) {
	j.cancel()
	c.Mu.Lock()
	delete(c.running, j.ID)
	c.Mu.Unlock()
	r := a.Result
	r.ID = j.ID
	var data []byte
	add := func(b []byte) job.Segment {
		s := job.Segment{Off: uint64(len(data)), Len: uint64(len(b))}
		data = append(data, b...)
		return s
	}
	r.Stdout, r.Stderr = add(a.Out), add(a.Err)
	for i, b := range a.Objects {
		r.Files = append(r.Files, job.File{Index: uint8(i), Segment: add(b)})
	}
	r.Digest = digest.Sum(data)
	if c.d.Zstd && j.Zstd {
		data, _ = compress.Pack(nil, data)
		r.Packed = uint64(len(data))
	}
	if a.Offered || uint64(len(data)) > j.Sink.Len {
		r.Window = c.offer(j.ID, data, nil)
	} else if len(data) > 0 {
		mr, err := c.d.pd.RegMR(data, 0, nil)
		if err != nil {
			c.d.t.Errorf("fake daemon: %v", err)
			return
		}
		err = c.QP.PostSend(&iwarp.SendWR{Op: iwarp.OpWrite, STag: iwarp.STag(j.Sink.STag), TO: j.Sink.TO,
			SGL: []iwarp.SGE{{Addr: mr.Base(), Length: uint32(len(data)), LKey: mr.STag()}}})
		if err != nil && !errors.Is(err, iwarp.ErrState) {
			c.d.t.Errorf("fake daemon: write: %v", err)
		}
		c.Mu.Lock()
		c.results = append(c.results, mr)
		c.Mu.Unlock()
	}
	if !a.NoNext {
		next := c.credit()
		r.Next = &next
	}
	if a.Change != nil {
		a.Change(&r)
	}
	c.Send(&r, iwarp.STag(j.Sink.STag))
}
