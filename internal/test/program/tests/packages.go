package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

// module is the import path that all packages begin with.
const module = "github.com/rdistcc/rdistcc"

// meets are imports by which a package or its tests meet the machine they run on: its programs, rights and tools. The
// others do the same everywhere.
var meets = []string{"os/exec", "os/user", module + "/internal/privatetree", module + "/internal/sandbox", module + "/internal/toolchain",
	module + "/internal/driver/recipes", module + "/lab/netlab", module + "/internal/test/kit/"}

// apart are packages of the kit that tests may use and be the same everywhere.
var apart = []string{module + "/internal/test/kit/daemontest", module + "/internal/test/kit/explore", module + "/internal/test/kit/inproc",
	module + "/internal/test/kit/iwarptest", module + "/internal/test/kit/part", module + "/internal/test/kit/relay", module + "/internal/test/kit/reporttest"}

type listed struct {
	ImportPath                         string
	Module                             struct{ Dir string }
	Imports, TestImports, XTestImports []string
	TestGoFiles, XTestGoFiles          []string
}

// list returns the module's directory and the chosen packages of the patterns that have tests, by their directories in it.
func list(ctx context.Context, patterns []string, chosen func(listed) bool) (root string, names []string, err error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-json=ImportPath,Module,Imports,TestImports,XTestImports,TestGoFiles,XTestGoFiles"}, patterns...)...)
	out, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return "", nil, fmt.Errorf("go list: %s", strings.TrimSpace(string(exit.Stderr)))
	} else if err != nil {
		return "", nil, err
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return "", nil, fmt.Errorf("go list: %w", err)
		}
		root = p.Module.Dir
		if len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 && chosen(p) {
			names = append(names, dirOf(p.ImportPath))
		}
	}
	if len(names) == 0 {
		return "", nil, fmt.Errorf("no package of %s has tests", strings.Join(patterns, " "))
	}
	return root, names, nil
}

func (p listed) meetsMachine() bool {
	return slices.ContainsFunc(slices.Concat(p.Imports, p.TestImports, p.XTestImports), func(imp string) bool {
		return !slices.Contains(apart, imp) && slices.ContainsFunc(meets, func(m string) bool {
			return imp == m || strings.HasSuffix(m, "/") && strings.HasPrefix(imp, m)
		})
	})
}

// beside reports whether a package is none of the product's and no test of it: the laboratory, and programs for tests.
func (p listed) beside() bool {
	dir := dirOf(p.ImportPath)
	return strings.HasPrefix(dir, "lab/") || strings.HasPrefix(dir, "internal/test/program/")
}

// dirOf returns the directory of a package in the module; "." for the module's own.
func dirOf(importPath string) string {
	// Of a test binary that could not be built: "PACKAGE [PACKAGE.test]".
	path, _, _ := strings.Cut(importPath, " ")
	if dir, ok := strings.CutPrefix(path, module+"/"); ok {
		return dir
	} else if path == module {
		return "."
	}
	return path
}
