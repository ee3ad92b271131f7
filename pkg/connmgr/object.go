package connmgr

import (
	"strings"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/outputs"
)

// expectObject begins to find out what kind of object the job's compiler makes, while a host compiles. The
// function that it returns waits for the answer.
func (c *client) expectObject(body *job.Body) func() (want outputs.Object, ok bool) {
	words, exact := outputs.ModeWords(body.Args)
	if !exact {
		return func() (outputs.Object, bool) { return outputs.Object{}, false }
	}
	language := "c"
	if strings.HasPrefix(body.Language, "c++") {
		language = "c++" // the driver's own if it has no other
	}
	if strings.HasPrefix(body.Language, "assembler") {
		language = "assembler" // whatever -flto makes of others
	}
	done := make(chan struct{})
	var head []byte
	c.m.clients.Go(func() {
		defer close(done)
		head = c.compiler.Object(language, words)
	})
	return func() (outputs.Object, bool) {
		<-done
		if len(head) == 0 {
			return outputs.Object{}, false
		}
		want, err := outputs.ReadObject(head)
		return want, err == nil
	}
}
