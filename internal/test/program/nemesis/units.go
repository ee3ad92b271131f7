package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// unit is a command that compiles one source, without its -o, with its result without rdistcc.
type unit struct {
	args   []string // from the compiler's name on
	status int
	stderr string
	object []byte // nil: it makes none
	links  bool   // a link with LTO, whose parts are compiles of their own
}

// outName is the name that commands give their output, for the words of -MT and messages: each job writes
// to a name of its own.
const outName = "unit.o"

// makeUnits writes sources into dir and compiles them there. Without debug none has debug information,
// which preprocessed text does not reproduce exactly.
func makeUnits(ctx context.Context, dir string, seed uint64, debug bool) ([]unit, error) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	header := "#ifndef SHARED_H\n#define SHARED_H\n#include <stddef.h>\n#include <string.h>\n"
	for i := range 200 {
		header += fmt.Sprintf("static inline int shared_%d(int x) { return (x ^ %d) * %d; }\n", i, rnd.IntN(1<<20), 3+rnd.IntN(100))
	}
	files := map[string]string{"shared.h": header + "#endif\n"}
	var units []unit
	add := func(name, text string, args ...string) {
		files[name] = text
		units = append(units, unit{args: append(args, "-c", name)})
	}
	levels := []string{"-O0", "-O1", "-O2", "-Os"}
	for i := range 24 {
		text := cText(rnd, i, 5+rnd.IntN(40))
		if debug { // that is where hosts keep headers
			text = wideText(rnd, i, files) + text
		}
		add(fmt.Sprintf("plain%d.c", i), text, "gcc", levels[rnd.IntN(len(levels))])
	}
	for i := range 6 {
		flags := []string{"gcc", "-O1", "-Wall"}
		if debug {
			flags = append(flags, "-g")
		}
		add(fmt.Sprintf("debug%d.c", i), cText(rnd, 100+i, 10+rnd.IntN(30)), flags...)
	}
	for i := range 4 {
		add(fmt.Sprintf("cpp%d.cc", i), cxxText(rnd, i), "g++", "-O1", "-std=c++17")
	}
	// Large ones give faults on links something to hit.
	for i := range 6 {
		var text strings.Builder
		for v := range 6000 + rnd.IntN(6000) {
			fmt.Fprintf(&text, "int large_%d_variable_with_a_long_name_%d = %d;\n", i, v, rnd.IntN(1<<30))
		}
		add(fmt.Sprintf("large%d.c", i), text.String(), "gcc", "-O1")
	}
	add("warns.c", "#include \"shared.h\"\nint warns(void) { int unused = 1; return shared_1(2); }\n", "gcc", "-O1", "-Wall")
	add("wrong.c", "#include \"shared.h\"\nint wrong(void) { return undeclared; }\n", "gcc", "-O1")
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	if debug { // hosts without private trees get no partitions
		for i := range 3 {
			l, err := makeLink(ctx, dir, rnd, i)
			if err != nil {
				return nil, err
			}
			units = append(units, l)
		}
	}
	for i := range units {
		if err := units[i].compile(ctx, dir); err != nil {
			return nil, err
		}
	}
	return units, nil
}

// makeLink compiles some objects in dir, and returns the link of them, which compiles each function again.
func makeLink(ctx context.Context, dir string, rnd *rand.Rand, id int) (unit, error) {
	u := unit{args: []string{"gcc", "-O1", "-g", "-flto=2", "--param=lto-min-partition=10", "-flto-partition=max"}, links: true}
	text := fmt.Sprintf("int part%d_0(int);\nint main(int argc, char **argv) { return part%d_0(argc) & 1; }\n", id, id)
	for i := range 4 {
		name := fmt.Sprintf("link%d_%d", id, i)
		text += fmt.Sprintf("int part%d_%d(int);\nstatic int kept%d[64];\nint part%d_%d(int x) { kept%d[x & 63] += x * %d; return x > 90 ? kept%d[x & 7] : part%d_%d(x + %d); }\n",
			id, (i+1)%4, i, id, i, i, 2+rnd.IntN(1000), i, id, (i+1)%4, 1+i)
		if err := os.WriteFile(filepath.Join(dir, name+".c"), []byte(text), 0o600); err != nil {
			return u, err
		}
		cmd := exec.CommandContext(ctx, "gcc", "-O1", "-g", "-flto", "-c", name+".c")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return u, fmt.Errorf("%s: %w: %s", name, err, out)
		}
		u.args, text = append(u.args, name+".o"), ""
	}
	return u, nil
}

// compile records the unit's result here.
func (u *unit) compile(ctx context.Context, dir string) error {
	out := filepath.Join(dir, outName)
	cmd := exec.CommandContext(ctx, u.args[0], append(u.args[1:], "-o", out)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "LC_ALL=C")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return err
	}
	u.status, u.stderr = cmd.ProcessState.ExitCode(), stderr.String()
	u.object, err = os.ReadFile(out)
	if (err == nil) != (u.status == 0) {
		return fmt.Errorf("%q: exit status %d, object: %w", u.args, u.status, err)
	}
	_ = os.Remove(out)
	return nil
}

// cText returns C with n functions.
func cText(rnd *rand.Rand, id, n int) string {
	var b strings.Builder
	b.WriteString("#include <stdio.h>\n#include <stdlib.h>\n#include \"shared.h\"\n")
	for f := range n {
		fmt.Fprintf(&b, "int unit%d_%d(int x, const char *s) {\n\tint sum = %d;\n\tfor (int i = 0; i < x; i++)\n\t\tsum += shared_%d(i) + (int)strlen(s) * %d;\n\treturn printf(\"%%d\\n\", sum) + abs(x);\n}\n",
			id, f, rnd.IntN(1000), rnd.IntN(200), 1+rnd.IntN(9))
	}
	return b.String()
}

// wideText makes two headers of 1 MiB for a unit, and returns the unit's use of them. They compile fast,
// and the object depends on each part of them.
func wideText(rnd *rand.Rand, id int, files map[string]string) string {
	var use strings.Builder
	for half := range 2 {
		var b strings.Builder
		name := fmt.Sprintf("wide%d_%d", id, half)
		for part := range 16 {
			fmt.Fprintf(&b, "/* %d\n", rnd.IntN(1<<30))
			for b.Len() < part<<16+60<<10 {
				b.WriteString("   What a compiler soon has read, and a host has to keep all the same.\n")
			}
			fmt.Fprintf(&b, "*/\nstatic const char %s_%d[] =\n", name, part)
			for b.Len() < (part+1)<<16-100 {
				fmt.Fprintf(&b, "\t\"%060d\"\n", rnd.IntN(1<<30))
			}
			b.WriteString("\t;\n")
			fmt.Fprintf(&use, "char use_%s_%d(unsigned i) { return %s_%d[i]; }\n", name, part, name, part)
		}
		files[name+".h"] = b.String()
	}
	return fmt.Sprintf("#include \"wide%d_0.h\"\n#include \"wide%d_1.h\"\n", id, id) + use.String()
}

// cxxText returns C++ that takes the compiler longer than C.
func cxxText(rnd *rand.Rand, id int) string {
	return fmt.Sprintf(`#include <map>
#include <string>
#include <vector>
struct unit%[1]d { std::map<int, std::vector<std::string>> all; };
int count%[1]d(const unit%[1]d &u) {
	int n = %[2]d;
	for (const auto &[k, v] : u.all)
		for (const auto &s : v)
			n += k * static_cast<int>(s.size());
	return n;
}
`, id, rnd.IntN(1000))
}
