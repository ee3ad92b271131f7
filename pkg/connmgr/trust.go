package connmgr

import (
	"errors"
	"strings"

	"github.com/rdistcc/rdistcc/pkg/artifact"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/trust"
	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/reason"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// expectObject finds out, while a host compiles, what kind of object the job's compiler
// makes. The answer is closed over; it waits for that.
func (c *client) expectObject(body *job.Body) func() (want artifact.Object, ok bool) {
	words, exact := artifact.ModeWords(body.Args)
	if !exact {
		return func() (artifact.Object, bool) { return artifact.Object{}, false }
	}
	language := "c"
	if strings.HasPrefix(body.Language, "c++") {
		language = "c++" // the driver's own if it has no other
	}
	done := make(chan struct{})
	var head []byte
	c.m.clients.Go(func() {
		defer close(done)
		head = c.compiler.Object(language, words)
	})
	return func() (artifact.Object, bool) {
		<-done
		if len(head) == 0 {
			return artifact.Object{}, false
		}
		want, err := artifact.ReadObject(head)
		return want, err == nil
	}
}

// distrust holds a result that went well, plain in mem, against what the compiler here
// would have made: nobody has looked at more than its numbers yet. An outcome says that
// it does not stand.
func (a *attempt) distrust(r *job.Result, mem []byte) *outcome {
	what, err := trust.Contents(r, mem, a.body, a.object)
	if err == nil {
		return nil
	}
	l, h := a.link, a.at.Addr
	if !errors.Is(err, artifact.ErrForged) {
		a.m.o.Log.Info("a result is not taken: compiled here to be sure", "job", a.id, "source", a.name, "host", h, "what", "its "+what, "err", err)
		a.m.metrics.Distrusted("doubt")
		return &outcome{final: true, blame: scheduler.Unused, local: &ipc.GoLocal{Reason: reason.Doubt + strings.ReplaceAll(what, " ", "-"), Host: h,
			Detail: "the " + what + " of " + h + " has " + err.Error()}}
	}
	a.m.metrics.Distrusted("forged")
	err = errors.New("its " + what + " is " + err.Error())
	l.Fail(err)
	return &outcome{blame: scheduler.Fault, local: lostHost(h, err.Error())}
}
