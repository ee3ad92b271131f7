package toolchain

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// program adds an executable and the shared libraries that it loads.
func (f *finding) program(role, path string) error {
	if err := f.file(role, path); err != nil {
		return err
	}
	interp, err := interpreter(path)
	if err != nil {
		return fmt.Errorf("identify compiler: %s: %w", path, err)
	}
	if interp == "" {
		f.static = append(f.static, path)
		return nil // a script, or linked statically
	}
	return f.libraries(interp, path)
}

// unfit returns the first program that is a script whose interpreter the toolchain does not show, or "".
func (f *finding) unfit() string {
	for _, path := range f.static {
		if by, script := strings.CutPrefix(beginning(path), "#!"); script && !f.shown[firstWord(strings.TrimSpace(by))] {
			return path
		}
	}
	return ""
}

// IsScript reports whether a program is run by another one: shells also run files without a "#!".
func IsScript(path string) bool {
	line := beginning(path)
	return line != "" && !strings.HasPrefix(line, elf.ELFMAG)
}

// beginning returns at most 256 bytes of a file's first line, or "" if it cannot be read.
func beginning(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	var head [256]byte
	n, _ := io.ReadFull(file, head[:]) // most programs are longer
	line, _, _ := strings.Cut(string(head[:n]), "\n")
	return line
}

// libraries adds what a loader loads for a program or a library.
func (f *finding) libraries(loader, path string) error {
	// The dynamic loader itself knows best where it finds them. glibc's and musl's both accept --list, and
	// then do not run the program.
	out, err := f.run(loader, "--list", path)
	if err != nil {
		return fmt.Errorf("identify compiler: libraries of %s: %w", path, err)
	}
	for line := range strings.Lines(out) {
		name, lib := parseList(line)
		if lib == "" {
			continue
		}
		if err := f.file("lib:"+filepath.Base(name), lib); err != nil {
			return err
		}
	}
	return nil
}

// parseList reads one line of a loader's list: "NAME => PATH (ADDRESS)" or
// "PATH (ADDRESS)". The kernel's own library has no path.
func parseList(line string) (name, path string) {
	line = strings.TrimSpace(line)
	if i := strings.LastIndex(line, " (0x"); i >= 0 {
		line = line[:i]
	}
	name, path, ok := strings.Cut(line, " => ")
	if !ok {
		path = name
	}
	if !filepath.IsAbs(path) {
		return name, ""
	}
	return name, path
}

// interpreter returns the dynamic loader that an ELF program names, or "".
func interpreter(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	var magic [4]byte
	if _, err := io.ReadFull(file, magic[:]); err != nil || string(magic[:]) != elf.ELFMAG {
		return "", nil
	}
	e, err := elf.NewFile(file)
	if err != nil {
		return "", err
	}
	for _, p := range e.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		b := make([]byte, min(p.Filesz, 4096))
		if _, err := p.ReadAt(b, 0); err != nil {
			return "", err
		}
		return string(bytes.TrimRight(b, "\x00")), nil
	}
	return "", nil
}
