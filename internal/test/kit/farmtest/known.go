package farmtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Files in which a daemon and a manager keep what they know of compilers.
const (
	compilersName        = "rdistccd.compilers"
	managerCompilersName = "cm.compilers"
)

// know puts what is known of the compilers into the directory in which a daemon and a manager of the programs in bin
// look for it.
func know(bin, dir string) error {
	if programs, err := sharedPrograms(); err != nil || bin != programs {
		return err // other programs take no other's word
	}
	return errors.Join(Know(filepath.Join(bin, "rdistccd"), dir), knowSums(filepath.Join(bin, "rdistcc-cm"), dir))
}

// Know puts what is known of the compilers into the directory in which the daemon program looks for it. That is the one
// of Programs, or a copy.
func Know(program, dir string) error {
	return knowAs(program, filepath.Join(dir, compilersName))
}

// knowSums puts the digests of the compilers' files into the directory in which the manager program looks for them. It asks the
// compilers itself, as a manager does so in its user's home and environment; most of the time goes into the digests.
func knowSums(program, dir string) error {
	return knowAs(program, filepath.Join(dir, managerCompilersName), "Sums")
}

// knowAs writes what is known of the compilers to the file name, as if program had found it: all, or only some fields.
func knowAs(program, name string, fields ...string) error {
	from, err := sharedCompilers()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(from, compilersName))
	if err != nil {
		return fmt.Errorf("read what is known of compilers: %w", err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return fmt.Errorf("read what is known of compilers: %w", err)
	}
	some := make(map[string]json.RawMessage)
	for _, field := range fields {
		some[field] = all[field]
	}
	if len(fields) == 0 {
		some = all
	}
	if some["Program"], err = stamp(program); err != nil {
		return err
	}
	if text, err = json.Marshal(some); err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o600)
}

// stamp returns how such a file names the program that may use it.
func stamp(program string) (json.RawMessage, error) {
	var st unix.Stat_t
	if err := unix.Stat(program, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: program, Err: err}
	}
	return json.Marshal(map[string]any{"Dev": st.Dev, "Ino": st.Ino, "Size": st.Size, "MTime": st.Mtim, "CTime": st.Ctim})
}
