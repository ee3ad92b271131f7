package connmgr

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/reason"
)

// readDrained reads which hosts earlier managers were told to drain. The file has one address
// a line; without one nothing outlives a manager.
func (o *Options) readDrained() []string {
	if o.Drains == "" {
		return nil
	}
	text, err := os.ReadFile(o.Drains)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		o.Log.Warn("which hosts were drained by hand", "file", o.Drains, "err", err)
	}
	return strings.Fields(string(text))
}

// saveDrained writes a set of addresses for the next one; the file is always whole.
func (o *Options) saveDrained(addrs []string) error {
	if o.Drains == "" {
		return nil
	}
	text := ""
	for _, a := range addrs {
		text += a + "\n"
	}
	return writeWhole(o.Drains, []byte(text))
}

// onDrain answers drain and undrain. It is for those whose manager this is.
func (c *client) onDrain(f *ipc.Control, on bool) error {
	if len(f.Args) != 2 {
		return c.refuse(reason.ExitArguments, "name one host")
	}
	list := c.m.lists.Of(f.Hosts)
	if list.Err != nil {
		return c.refuse(reason.ExitHostList, list.Err.Error())
	}
	d, err := c.m.farm.Drain(f.Args[1], on, list.Sched, c.m.lists.Of("").Sched)
	if err != nil {
		return c.refuse(reason.ExitArguments, err.Error())
	}
	return c.reply(d)
}
