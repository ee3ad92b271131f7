package connmgr

import (
	"strings"

	"github.com/rdistcc/rdistcc/pkg/artifact"
	"github.com/rdistcc/rdistcc/pkg/job"
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
