package config

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"gopkg.in/yaml.v3"

	"github.com/rdistcc/rdistcc/internal/textfile"
)

// MaxFile bounds a configuration file, in bytes.
const MaxFile = 1 << 20

// Error means that a setting cannot be used: exit status 101 of a program that needs it.
type Error struct {
	Where   string // "FILE:LINE", or what set it
	Problem string
}

func (e *Error) Error() string { return e.Where + ": " + e.Problem }

// Locate returns the file to read: RDISTCC_CONFIG, or the first that exists of the user's and the system's.
// "" means none. explicit is true for RDISTCC_CONFIG, which must then exist.
func Locate(getenv func(string) string) (path string, explicit bool) {
	if p := getenv("RDISTCC_CONFIG"); p != "" {
		return p, true
	}
	base := getenv("XDG_CONFIG_HOME")
	if base == "" && getenv("HOME") != "" {
		base = getenv("HOME") + "/.config"
	}
	if base != "" {
		p := strings.TrimSuffix(base, "/") + "/rdistcc/config.yaml"
		if there(p) {
			return p, false
		}
	}
	const system = "/etc/rdistcc/config.yaml"
	if there(system) {
		return system, false
	}
	return "", false
}

// StateHome returns the directory for what is kept from one session to the next: XDG_STATE_HOME/rdistcc, else
// HOME/.local/state/rdistcc, else "".
func StateHome(getenv func(string) string) string {
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "rdistcc")
	}
	if dir := getenv("HOME"); filepath.IsAbs(dir) { // a service's may not exist
		if st, err := os.Stat(dir); err == nil && st.IsDir() {
			return filepath.Join(dir, ".local", "state", "rdistcc")
		}
	}
	return ""
}

// there reports whether a file exists. Errors other than absence are left for Load to report.
func there(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR)
}

// Load returns the defaults overlaid with the file at path; an empty path means the defaults alone. A file
// that someone else may write is rejected, as it determines which programs run where.
func Load(path string) (*Config, error) {
	if path == "" {
		return Default(), nil
	}
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, text)
}

func readFile(path string) ([]byte, error) {
	text, info, err := textfile.Read(path, MaxFile)
	switch {
	case err != nil:
		return nil, &Error{path, err.Error()}
	case info.Mode().Perm()&0o002 != 0:
		return nil, &Error{path, "can be written by anyone; use chmod o-w " + path}
	}
	return text, nil
}

// Parse returns the defaults overlaid with text, a yaml document that errors and Settings call name.
func Parse(name string, text []byte) (*Config, error) {
	c := Default()
	c.path = name
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, next yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return c, nil // empty, or comments alone
	case err != nil:
		return nil, yamlError(name, err)
	}
	if err := dec.Decode(&next); !errors.Is(err, io.EOF) {
		return nil, &Error{name, "holds more than one yaml document"}
	}
	root := doc.Content[0]
	if err := c.section(name, root, "", c.fields()); err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return c, nil
}

// yamlError converts the library's error into ours: one line, which begins with file and line.
func yamlError(name string, err error) error {
	problem := strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " ")
	if rest, ok := strings.CutPrefix(problem, "line "); ok {
		if line, rest, ok := strings.Cut(rest, ": "); ok {
			name, problem = name+":"+line, rest
		}
	}
	return &Error{name, problem}
}
