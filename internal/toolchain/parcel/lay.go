package parcel

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// Lay makes dir, which must not exist, a root directory with the entries of p. content returns the name of a file with an
// entry's content and mode, on the same file system; it gets a further name. When it can have no more, fresh has to put another
// file in its place. If that fails, dir is left as it is then.
func (p *Parcel) Lay(dir string, content func(e *Entry) string, fresh func(e *Entry) error) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	made := map[string]bool{"/": true}
	for i := range p.Entries {
		e := &p.Entries[i]
		// No entry is above another one, so nothing on the way is a link.
		if parent := filepath.Dir(e.Name); !made[parent] {
			if err := os.MkdirAll(dir+parent, 0o755); err != nil {
				return err
			}
			made[parent] = true
		}
		var err error
		if e.Link() {
			err = os.Symlink(e.Target, dir+e.Name)
		} else {
			err = os.Link(content(e), dir+e.Name)
			if errors.Is(err, syscall.EMLINK) {
				if err = fresh(e); err == nil {
					err = os.Link(content(e), dir+e.Name)
				}
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
