package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// What a manager in P20 knows: units, each with headers of its own.
const (
	knownUnits   = 40
	knownHeaders = 500
)

// knows measures P20's memory: that of a manager that knows 20,000 files from earlier jobs.
func (b *bench) knows() error {
	dir := filepath.Join(b.tmp, "knows")
	header := strings.Repeat("extern int declared_in_a_header(const char *first, unsigned long second); /* and what it is good for */\n", 20)
	for u := range knownUnits {
		sub := filepath.Join(dir, fmt.Sprintf("unit%d", u))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return err
		}
		var source strings.Builder
		for h := range knownHeaders {
			name := fmt.Sprintf("a_header_of_some_length_%d_%d.h", u, h)
			fmt.Fprintf(&source, "#include \"%s\"\n", name)
			if err := os.WriteFile(filepath.Join(sub, name), fmt.Appendf(nil, "/* %d %d */\n%s", u, h, header), 0o644); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(sub, "unit.c"), []byte(source.String()), 0o644); err != nil {
			return err
		}
	}
	f, err := b.newFarm(farmSpec{name: "p20"})
	if err != nil {
		return err
	}
	defer f.close()
	r, err := newRunner(f.g, b.tmp)
	if err != nil {
		return err
	}
	defer r.close()
	for range 2 {
		for u := range knownUnits {
			if _, err := r.run(b.ctx, 0, f.env, filepath.Join(dir, fmt.Sprintf("unit%d", u)), filepath.Join(b.bin, "rdistcc"), "gcc", "-c", "unit.c", "-o", "unit.o"); err != nil {
				return f.trouble(err)
			}
		}
	}
	if err := f.check(); err != nil {
		return err
	}
	b.table.note("P20", fmt.Sprintf("memory of a manager that knows %d files", knownUnits*knownHeaders),
		fmt.Sprintf("%.0f MiB", mib(resident(f.manager.cmd.Process.Pid))), "", "<= 64 MiB")
	return nil
}
