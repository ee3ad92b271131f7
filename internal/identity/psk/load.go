package psk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// maxFile is far more than two keys take, in bytes.
const maxFile = 4 << 10

// Load reads a key file. It refuses one that others than its owner can read or write, as those could be anyone.
// A credential that systemd passes to a service is an exception: it belongs to root and is readable by the
// service alone, through an access list that looks like a group right. The error is one line that names the
// file and the remedy, and nothing of the content.
func Load(path string) (*Key, error) {
	// Non-blocking: it may be a pipe without a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("pre-shared key: there is no %s (%s)", path, Remedy)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("pre-shared key: %s cannot be read by user %d: chown %d %s", path, os.Geteuid(), os.Geteuid(), path)
	case err != nil:
		return nil, fmt.Errorf("pre-shared key: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("pre-shared key: %w", err)
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		return nil, fmt.Errorf("pre-shared key: %s is a directory: name the file", path)
	case !mode.IsRegular():
		return nil, fmt.Errorf("pre-shared key: %s is no ordinary file", path)
	case mode&0o077 != 0 && !credential(path, info):
		return nil, fmt.Errorf("pre-shared key: %s can be read or written by others than its owner (mode %04o): chmod 600 %s", path, mode.Perm(), path)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("pre-shared key: %s has %d bytes: it should hold a key of one line", path, info.Size())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, fmt.Errorf("pre-shared key: %w", err)
	}
	k, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("pre-shared key: %s %w", path, err)
	}
	return k, nil
}

// credential reports whether a file is one of systemd's for this service: owned by root, in the directory that
// the environment names, and not writable.
func credential(path string, info fs.FileInfo) bool {
	dir := os.Getenv("CREDENTIALS_DIRECTORY")
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && dir != "" && filepath.Dir(filepath.Clean(path)) == filepath.Clean(dir) && s.Uid == 0 && info.Mode().Perm()&^0o440 == 0
}
