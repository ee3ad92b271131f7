// Package textfile reads the short files that people edit while programs use them: configuration and host lists.
package textfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// A file that changes while it is read is read again, after a pause that lets an editor which writes in
// pieces continue.
const (
	attempts = 5
	pause    = 20 * time.Millisecond
)

// Read returns the content of the regular file at path, at most `most` bytes, and its FileInfo when it was
// read. Anything except a regular file is an error, and opening it does not block, as that of a pipe would.
// Errors do not name the file; errors.Is finds the system's errors in them.
func Read(path string, most int64) (text []byte, info fs.FileInfo, err error) {
	for i := range attempts {
		if i > 0 {
			time.Sleep(pause)
		}
		text, info, err = once(path, most)
		if !errors.Is(err, errChanging) {
			return text, info, err
		}
	}
	return nil, nil, err
}

// Optional returns a function that reads a file of at most `most` bytes that may be missing.
func Optional(most int64) func(path string) (text []byte, exists bool, err error) {
	return func(path string) ([]byte, bool, error) {
		text, _, err := Read(path, most)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) { // for example below /dev/null
			return nil, false, nil
		}
		return text, true, err
	}
}

var errChanging = errors.New("is being written again and again")

func once(path string, most int64) ([]byte, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, bare(err)
	}
	defer f.Close()
	before, err := f.Stat()
	switch {
	case err != nil:
		return nil, nil, bare(err)
	case before.IsDir():
		return nil, nil, syscall.EISDIR
	case !before.Mode().IsRegular():
		return nil, nil, errors.New("is not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	switch {
	case err != nil:
		return nil, nil, bare(err)
	case int64(len(text)) > most:
		return nil, nil, fmt.Errorf("longer than %d bytes", most)
	}
	after, err := f.Stat()
	if err != nil {
		return nil, nil, bare(err)
	}
	if int64(len(text)) != after.Size() || !after.ModTime().Equal(before.ModTime()) {
		return nil, nil, errChanging
	}
	return text, after, nil
}

// bare returns an error without the operation and the file, which the caller names.
func bare(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// Stamp identifies the state of a file. The zero Stamp means that there is no file.
type Stamp struct {
	dev, ino uint64 // another file may have been renamed to its name
	size     int64
	written  int64 // nanoseconds
	changed  int64 // its mode, for example; nanoseconds
}

// Look returns the Stamp of the file at path, following links; zero if there is none.
func Look(path string) Stamp {
	var st syscall.Stat_t
	if path == "" || syscall.Stat(path, &st) != nil {
		return Stamp{}
	}
	return Stamp{dev: st.Dev, ino: st.Ino, size: st.Size, written: st.Mtim.Nano(), changed: st.Ctim.Nano()}
}

// settle is how long a file must be left alone before an edit counts as finished: some editors move the
// file away, or empty it, before they write it, and both no file and an empty one have a meaning.
const settle = 100 * time.Millisecond

// Settled calls look, which returns what the caller depends on, until it returns the same twice with settle
// between, or has returned different values a few times in a row, and returns the last one. It waits for
// settle at least.
func Settled[T any](look func() T, same func(a, b T) bool) T {
	now := look()
	for range attempts {
		time.Sleep(settle)
		next := look()
		if same(now, next) {
			return next
		}
		now = next
	}
	return now
}
