package connmgr

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/rdistcc/rdistcc/internal/wholefile"
)

// readDrained returns the hosts that earlier managers were told to drain. The file has one address per line;
// without a file, drains end with the manager.
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

// saveDrained writes the addresses of drained hosts for the next manager. It replaces the file as a whole.
func (o *Options) saveDrained(addrs []string) error {
	if o.Drains == "" {
		return nil
	}
	text := ""
	for _, a := range addrs {
		text += a + "\n"
	}
	return wholefile.Replace(o.Drains, []byte(text))
}
