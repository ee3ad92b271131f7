// Package wholefile replaces files as a whole, so that readers find the old content or the new one.
package wholefile

import (
	"errors"
	"os"
	"path/filepath"
)

// Replace makes content that of the file at path, which need not exist; its directory must. The new file has the mode 0600. If
// Replace returns an error, the old file is unchanged.
func Replace(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // it may have been the rename that failed
	}
	return err
}
