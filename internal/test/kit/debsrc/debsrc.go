// Package debsrc fetches the sources of Debian's packages: real code for tests and measurements. It changes
// nothing of the system and needs no rights.
package debsrc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Archives is a directory with source packages, which are fetched when they are first needed.
type Archives struct {
	dir string
	apt string // apt's configuration for source packages; "" before the first fetch
}

// New uses dir or, if that is empty, a directory in the user's cache.
func New(dir string) (*Archives, error) {
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(cache, "rdistcc-sources")
	}
	return &Archives{dir: dir}, os.MkdirAll(dir, 0o755)
}

// Find returns the archive with the upstream sources of a package, and fetches it if need be.
func (a *Archives) Find(ctx context.Context, name string) (file string, err error) {
	if file := a.find(name); file != "" {
		return file, nil
	}
	if err := a.fetch(ctx, name); err != nil {
		return "", fmt.Errorf("sources of %s: %w", name, err)
	}
	if file := a.find(name); file != "" {
		return file, nil
	}
	return "", fmt.Errorf("no upstream sources of %s in %s", name, a.dir)
}

// Has reports whether the package is there without being fetched.
func (a *Archives) Has(name string) bool { return a.find(name) != "" }

func (a *Archives) find(name string) string {
	found, _ := filepath.Glob(filepath.Join(a.dir, name+"_*.orig.tar.*")) // the pattern is right
	for _, f := range found {
		if !strings.HasSuffix(f, ".asc") {
			return f
		}
	}
	return ""
}

// Unpack unpacks the upstream sources of a package into dir, which must not exist.
func (a *Archives) Unpack(ctx context.Context, name, dir string) error {
	file, err := a.Find(ctx, name)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return try(exec.CommandContext(ctx, "tar", "-C", dir, "--strip-components=1", "-xf", file))
}

// fetch gets a source package with apt-get, whose lists of source packages are in our directory as well.
func (a *Archives) fetch(ctx context.Context, name string) error {
	if a.apt == "" {
		if err := a.update(ctx); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, "apt-get", "source", "-q", "--download-only", name)
	cmd.Dir, cmd.Env = a.dir, append(os.Environ(), "APT_CONFIG="+a.apt)
	return try(cmd)
}

// update writes a configuration of apt for source packages only, and reads their lists.
func (a *Archives) update(ctx context.Context) error {
	archives, err := sourcesOf(ctx)
	if err != nil {
		return err
	}
	dir := filepath.Join(a.dir, "apt")
	for _, sub := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	list := filepath.Join(dir, "sources.list")
	if err := os.WriteFile(list, []byte(archives), 0o644); err != nil {
		return err
	}
	conf := fmt.Sprintf("Dir::Etc::sourcelist %q;\nDir::Etc::sourceparts \"-\";\nDir::State::lists %q;\nDir::Cache %q;\n",
		list, filepath.Join(dir, "lists"), filepath.Join(dir, "cache"))
	path := filepath.Join(dir, "apt.conf")
	if err := os.WriteFile(path, []byte(conf), 0o644); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "apt-get", "-q", "update")
	cmd.Env = append(os.Environ(), "APT_CONFIG="+path)
	if err := try(cmd); err != nil {
		return err
	}
	a.apt = path
	return nil
}

// sourcesOf returns lines of apt's for the source packages of Debian, from where this machine has its packages.
func sourcesOf(ctx context.Context) (lines string, err error) {
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages").Output()
	if err != nil {
		return "", fmt.Errorf("source packages come from Debian's apt-get only: %w", err)
	}
	seen := make(map[string]bool)
	for line := range strings.Lines(string(out)) {
		uri, _, _ := strings.Cut(line, " ")
		if path := strings.TrimSuffix(uri, "/"); !seen[line] && (strings.HasSuffix(path, "/debian") || strings.HasSuffix(path, "/debian-security")) {
			seen[line] = true
			lines += "deb-src " + line
		}
	}
	if lines == "" {
		return "", errors.New("source packages come from Debian's archives, and apt is told of none on this machine")
	}
	return lines, nil
}

// try runs a command; the error has the end of its output.
func try(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("%q: %w: %s", cmd.Args, err, strings.Join(lines[max(0, len(lines)-3):], " | "))
	}
	return nil
}
