package connmgr

import (
	"encoding/json"
	"fmt"

	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// refuse answers with one of rdistcc's exit codes and a line.
func (c *client) refuse(code uint8, line string) error {
	return c.Send(&ipc.Reply{Code: code, Data: []byte(line)})
}

func (c *client) reply(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("answer a question: %w", err)
	}
	return c.Send(&ipc.Reply{Data: data})
}

// sendResult answers with a result, and with the descriptor of its sink if that is not the leased one.
func (c *client) sendResult(r *ipc.Result) error {
	if !r.Moved {
		return c.Send(r)
	}
	fd, err := c.sink.OpenReader()
	if err != nil {
		return c.goLocal(attempt.NoSlot(err))
	}
	defer closeFD(fd)
	return c.Send(r, fd)
}
