package debsrc

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Program returns a script that runs a program of another suite of Debian's, such as unstable, with the libraries of that
// suite. The package that has it, and what that depends on, are fetched if need be, and unpacked below our directory;
// nothing is installed. Beside it are scripts for the programs of these packages in more, which it may run.
func (a *Archives) Program(ctx context.Context, suite, pkg, program string, more ...string) (script string, err error) {
	dir := filepath.Join(a.dir, pkg+"-"+suite)
	script = filepath.Join(dir, "run", filepath.Base(program))
	if _, err := os.Stat(script); err == nil {
		return script, nil
	}
	if err := a.unpackFrom(ctx, suite, pkg, dir); err != nil {
		return "", fmt.Errorf("%s of %s: %w", pkg, suite, err)
	}
	loaders, _ := filepath.Glob(filepath.Join(dir, "root/usr/lib/*/ld-linux*.so*")) // the pattern is right
	if len(loaders) == 0 {
		return "", fmt.Errorf("%s of %s: no loader among its libraries", pkg, suite)
	}
	if err := os.MkdirAll(filepath.Dir(script), 0o755); err != nil {
		return "", err
	}
	for _, p := range append(more, program) { // which is the last, so that all are there
		to := filepath.Join(dir, "run", filepath.Base(p))
		lines := fmt.Sprintf("#!/bin/sh\nexec %s --library-path %s %s \"$@\"\n", loaders[0], filepath.Dir(loaders[0]), filepath.Join(dir, "root", p))
		if err := os.WriteFile(to+".new", []byte(lines), 0o755); err != nil {
			return "", err
		}
		if err := os.Rename(to+".new", to); err != nil {
			return "", err
		}
	}
	return script, nil
}

// unpackFrom unpacks a package of a suite, with all that it depends on, into dir/root.
func (a *Archives) unpackFrom(ctx context.Context, suite, pkg, dir string) error {
	uri, err := archive(ctx)
	if err != nil {
		return err
	}
	for _, sub := range []string{"lists/partial", "cache/archives/partial", "root"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	conf := fmt.Sprintf("Dir::Etc::sourcelist %q;\nDir::Etc::sourceparts \"-\";\nDir::State::lists %q;\nDir::State::status %q;\nDir::Cache %q;\n"+
		"APT::Install-Recommends \"false\";\nAcquire::Languages \"none\";\nDebug::NoLocking \"true\";\n",
		filepath.Join(dir, "sources.list"), filepath.Join(dir, "lists"), filepath.Join(dir, "status"), filepath.Join(dir, "cache"))
	for name, text := range map[string]string{"sources.list": "deb " + uri + " " + suite + " main\n", "status": "", "apt.conf": conf} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"update"}, {"-y", "--download-only", "install", pkg}} {
		cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-q"}, args...)...)
		cmd.Env = append(os.Environ(), "APT_CONFIG="+filepath.Join(dir, "apt.conf"))
		if err := try(cmd); err != nil {
			return err
		}
	}
	files, _ := filepath.Glob(filepath.Join(dir, "cache/archives/*.deb")) // the pattern is right
	for _, f := range files {
		if err := try(exec.CommandContext(ctx, "dpkg-deb", "-x", f, filepath.Join(dir, "root"))); err != nil {
			return err
		}
	}
	return nil
}

// archive returns where this machine has its Debian from.
func archive(ctx context.Context) (uri string, err error) {
	lines, err := sourcesOf(ctx)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(lines) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasSuffix(strings.TrimSuffix(f[1], "/"), "/debian") {
			return f[1], nil
		}
	}
	return "", fmt.Errorf("apt is told of no archive of Debian's on this machine")
}
