// Package secret reads the passwords and tokens that services ask for, from files and from the environment,
// and keeps them out of what people read.
package secret

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/internal/textfile"
)

// maxFile bounds a file with a secret, in bytes. Tokens that carry claims have a few kilobytes.
const maxFile = 64 << 10

// Secret is a password or a token; empty means that there is none. Printing it does not show it.
type Secret struct{ text string }

// New returns text as a Secret.
func New(text string) Secret { return Secret{text} }

// Reveal returns the text, to be sent to the service that asks for it.
func (s Secret) Reveal() string { return s.text }

// Set reports whether there is one.
func (s Secret) Set() bool { return s.text != "" }

// hidden is shown in place of a secret.
const hidden = "[hidden]"

// String returns a word that stands for the secret.
func (s Secret) String() string {
	if !s.Set() {
		return ""
	}
	return hidden
}

// GoString is String for %#v.
func (s Secret) GoString() string { return s.String() }

// Hide returns err with every occurrence of the secret in its text replaced. A server may repeat in an error
// message what it was sent. errors.Is and errors.As still see err.
func (s Secret) Hide(err error) error {
	if err == nil || !s.Set() || !strings.Contains(err.Error(), s.text) {
		return err
	}
	return &cleaned{text: strings.ReplaceAll(err.Error(), s.text, hidden), err: err}
}

type cleaned struct {
	text string
	err  error
}

func (c *cleaned) Error() string        { return c.text }
func (c *cleaned) Is(target error) bool { return errors.Is(c.err, target) }
func (c *cleaned) As(target any) bool   { return errors.As(c.err, target) }

// Find returns the first line of the file, or without a file name the value of the environment variable, or
// no secret. It refuses a file that others than its owner can read, unless systemd passed it to this service
// as a credential. The error is one line that names the file and the remedy.
func Find(file, variable string, getenv func(string) string) (Secret, error) {
	if file == "" {
		return Secret{strings.TrimSpace(getenv(variable))}, nil
	}
	text, err := read(file, getenv)
	if err != nil {
		return Secret{}, err
	}
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if line = strings.TrimSpace(line); line == "" {
		return Secret{}, fmt.Errorf("%s is empty: write the password or token into it", file)
	}
	return Secret{line}, nil
}

// Lines returns the lines of a file of secrets, without empty ones and those that begin with #. It is as careful as Find.
func Lines(file string, getenv func(string) string) (all []Secret, err error) {
	text, err := read(file, getenv)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			all = append(all, Secret{line})
		}
	}
	return all, nil
}

// read returns the text of a file that nobody but its owner can read.
func read(file string, getenv func(string) string) (string, error) {
	text, info, err := textfile.Read(file, maxFile)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "", fmt.Errorf("%s cannot be read by user %d: chown %d %s", file, os.Geteuid(), os.Geteuid(), file)
	case err != nil:
		return "", fmt.Errorf("%s: %w", file, err)
	case info.Mode()&0o077 != 0 && !credential(file, info, getenv):
		return "", fmt.Errorf("%s can be read or written by others than its owner (mode %04o): chmod 600 %s", file, info.Mode().Perm(), file)
	}
	return string(text), nil
}

// credential reports whether a file is one of systemd's for this service: owned by root, in the directory that
// the environment names, and not writable. It is readable by the service alone, through an access list that
// looks like a right of the group.
func credential(path string, info fs.FileInfo, getenv func(string) string) bool {
	dir := getenv("CREDENTIALS_DIRECTORY")
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && dir != "" && filepath.Dir(filepath.Clean(path)) == filepath.Clean(dir) && s.Uid == 0 && info.Mode().Perm()&^0o440 == 0
}
