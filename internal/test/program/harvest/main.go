// Harvest writes internal/test/kit/honest/packages.txt: it fetches the sources of Debian's packages, has each built
// by its own build system in several ways, and records the compiler commands: those that ninja and make -n
// say they would run, or otherwise those that are run. The compiler is then this program itself, which
// makes empty objects, so that a build of thousands of files takes seconds; only what examines the machine
// is really compiled.
//
//	go run ./internal/test/program/harvest -out internal/test/kit/honest/packages.txt
//
// It needs Debian, a network, and the build dependencies of the packages (make deps). Packages that cannot
// be built as far as needed are left out, with a line that says so.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/debsrc"
)

// patience bounds one step of a build.
const patience = 15 * time.Minute

func main() {
	if slices.Contains(compilers, filepath.Base(os.Args[0])) {
		os.Exit(standIn(os.Args))
	}
	var h harvest
	var out, names string
	flag.StringVar(&out, "out", "", "the file to write")
	flag.StringVar(&names, "packages", "", "only these, with commas between; in the file the lists of others stay")
	flag.StringVar(&h.dir, "dir", "", "directory to build in; what is recorded there already is not built again (default: a new one)")
	flag.IntVar(&h.each, "each", 4, "lists of one shape that are taken of a package")
	flag.IntVar(&h.most, "most", 120, "lists that are taken of a package")
	flag.Parse()
	if err := h.run(context.Background(), out, names); err != nil {
		fmt.Fprintln(os.Stderr, "harvest:", err)
		os.Exit(1)
	}
}

type harvest struct {
	dir        string
	each, most int

	fetching sync.Mutex
	archives *debsrc.Archives
	bin      string // the recording compilers, and empty files
}

func (h *harvest) run(ctx context.Context, out, names string) (err error) {
	if h.dir == "" {
		if h.dir, err = os.MkdirTemp("", "rdistcc-harvest-"); err != nil {
			return err
		}
		defer os.RemoveAll(h.dir)
	}
	if h.dir, err = filepath.Abs(h.dir); err != nil { // builds find the compilers there from wherever they run
		return err
	}
	if h.archives, err = debsrc.New(""); err != nil {
		return err
	}
	if err := h.prepare(ctx); err != nil {
		return err
	}
	all := make([]crop, len(recipes))
	var wait sync.WaitGroup
	room := make(chan bool, 3)
	for _, i := range order(names) {
		r := recipes[i]
		room <- true
		wait.Go(func() {
			defer func() { <-room }()
			c, err := h.pack(ctx, r)
			if err != nil {
				fmt.Fprintf(os.Stderr, "%s is left out: %v\n", r.name, err)
				return
			}
			fmt.Fprintf(os.Stderr, "%s %s: %d commands, %d lists, %d shapes; %d taken\n", r.name, c.version, c.commands, c.distinct, c.shapes, len(c.lists))
			all[i] = c
		})
	}
	wait.Wait()
	if out == "" {
		return nil
	}
	all = slices.DeleteFunc(all, func(c crop) bool { return c.lists == nil })
	old := ""
	if names != "" {
		b, err := os.ReadFile(out)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		old = string(b)
	}
	file, err := text(all, old)
	if err != nil {
		return err
	}
	return os.WriteFile(out, []byte(file), 0o644)
}

// order returns the indices of the recipes with these names, or of all.
func order(names string) (indices []int) {
	if names == "" {
		for i := range recipes {
			indices = append(indices, i)
		}
		return indices
	}
	for name := range strings.SplitSeq(names, ",") {
		if i := slices.IndexFunc(recipes, func(r recipe) bool { return r.name == name }); i >= 0 {
			indices = append(indices, i)
		} else {
			fmt.Fprintf(os.Stderr, "no recipe for %s\n", name)
		}
	}
	return indices
}

// prepare sets up the recording compilers and the files that they output.
func (h *harvest) prepare(ctx context.Context) error {
	h.bin = filepath.Join(h.dir, "bin")
	if err := os.MkdirAll(h.bin, 0o755); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, name := range compilers {
		link := filepath.Join(h.bin, name)
		_ = os.Remove(link)
		if err := os.Symlink(self, link); err != nil {
			return err
		}
	}
	line := `echo 'int main(void){return 0;}' >empty.c && /usr/bin/gcc -c empty.c && /usr/bin/gcc -o empty empty.c && /usr/bin/gcc -shared -fPIC -o empty.so empty.c && : >empty.s`
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir = h.bin
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// pack builds one package in all ways, or reads what was recorded earlier.
func (h *harvest) pack(ctx context.Context, r recipe) (crop, error) {
	log := filepath.Join(h.dir, r.name+".log")
	dir := filepath.Join(h.dir, "build", r.name)
	archive, err := h.find(ctx, r)
	if err != nil {
		return crop{}, err
	}
	_, version, _ := strings.Cut(filepath.Base(archive), "_")
	version, _, _ = strings.Cut(version, ".orig.")
	if _, err := os.Stat(log); err != nil {
		if err := h.build(ctx, r, dir, log); err != nil {
			return crop{}, err
		}
	}
	f, err := os.Open(log)
	if err != nil {
		return crop{}, err
	}
	defer f.Close()
	c := crop{name: r.name, version: version}
	s := bufio.NewScanner(f)
	for s.Buffer(nil, 16<<20); s.Scan(); {
		var rec recorded
		if err := json.Unmarshal(s.Bytes(), &rec); err != nil {
			return c, err
		}
		c.add(rec, dir)
	}
	c.choose(h.each, h.most)
	if len(c.lists) == 0 {
		return c, errors.New("nothing was compiled")
	}
	return c, s.Err()
}

// find fetches what a package is built from.
func (h *harvest) find(ctx context.Context, r recipe) (archive string, err error) {
	h.fetching.Lock()
	defer h.fetching.Unlock()
	for _, name := range r.more {
		if _, err := h.archives.Find(ctx, name); err != nil {
			return "", err
		}
	}
	return h.archives.Find(ctx, r.name)
}

func (h *harvest) build(ctx context.Context, r recipe, dir, log string) error {
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Dir(dir), 0o755)); err != nil {
		return err
	}
	if err := h.archives.Unpack(ctx, r.name, dir); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for sub, source := range r.more {
		sub = filepath.Join(dir, sub)
		if err := errors.Join(os.RemoveAll(sub), os.MkdirAll(filepath.Dir(sub), 0o755), h.archives.Unpack(ctx, source, sub)); err != nil {
			return err
		}
	}
	part := log + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	for _, v := range variants {
		env := v.env(dir)
		if _, err := h.shell(ctx, r.configure, dir, env); err != nil {
			fmt.Fprintf(os.Stderr, "%s, variant %s: configure: %v\n", r.name, v.number, err)
			continue
		}
		// It need not complete: what generated programs would have made is missing.
		before := size(part)
		out, err := h.shell(ctx, r.make, dir, append(env, logVariable+"="+part, emptyVariable+"="+h.bin))
		if errors.Is(err, context.DeadlineExceeded) {
			fmt.Fprintf(os.Stderr, "%s, variant %s: stopped\n", r.name, v.number)
		}
		if size(part) > before {
			continue // make prints what it would run
		}
		for _, rec := range printed(out) {
			if err := rec.write(part); err != nil {
				return err
			}
		}
	}
	return os.Rename(part, log)
}

// size returns the size of a file, or 0.
func size(name string) int64 {
	info, err := os.Stat(name)
	if err != nil {
		return 0
	}
	return info.Size()
}

// env returns the variables that recipes use.
func (v variant) env(dir string) []string {
	kc := ""
	if v.number != "1" {
		kc = v.cflags
	}
	env := []string{
		"V=" + v.number, "CC=" + v.cc, "CXX=" + v.cxx, "TYPE=" + v.cmakeType, "MESONTYPE=" + v.meson, "PIC=" + v.pic,
		"KCONFIG=" + v.kconfig, "CACHE=" + filepath.Join(filepath.Dir(filepath.Dir(dir)), "config.cache"), "KCFLAGS=" + strings.ReplaceAll(kc, "$PWD", dir), "SOURCE_DATE_EPOCH=1700000000", "LC_ALL=C", "PWD=" + dir,
	}
	if v.cflags != "" { // otherwise configure uses its own
		env = append(env, "CFLAGS="+strings.ReplaceAll(v.cflags, "$PWD", dir), "CXXFLAGS="+strings.ReplaceAll(v.cflags, "$PWD", dir), "CPPFLAGS="+v.cppflags)
	}
	return env
}

func (h *harvest) shell(ctx context.Context, line, dir string, env []string) (string, error) {
	if line == "" {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir = dir
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(s string) bool {
		name, _, _ := strings.Cut(s, "=")
		return slices.Contains([]string{"CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "MAKEFLAGS", "MFLAGS", "PWD"}, name)
	}), env...)
	cmd.Env = append(cmd.Env, "PATH="+h.bin+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out[max(0, len(out)-600):])
	}
	return string(out), err
}
