package connmgr

import (
	"errors"
	"io/fs"
	"os"
	"strings"
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
