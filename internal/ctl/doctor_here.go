package ctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// localTool is a compiler of this machine, with the names that it is called by.
type localTool struct {
	toolchain.Toolchain
	names   []string
	packing []*packing // of each name: a parcel has the links that lead from it
}

// doctorNames lists the compilers to look for on PATH.
var doctorNames = []string{"cc", "gcc", "g++", "c++", "clang", "clang++"}

// compilers finds the compilers of this machine, each once.
func (d *doctor) compilers(f *findings) {
	tools := d.c.tools
	if tools == nil {
		tools = &toolchain.Cache{Home: d.c.getenv("HOME")}
	}
	var known, strange []string
	for _, name := range doctorNames {
		path := d.lookPath(name)
		if path == "" {
			continue
		}
		t, err := tools.Identify(context.Background(), path)
		if err != nil {
			strange = append(strange, fmt.Sprintf("%s (%v)", path, err))
			continue
		}
		known = append(known, name)
		if i := slices.IndexFunc(d.tools, func(o localTool) bool { return o.ID == t.ID }); i >= 0 {
			d.tools[i].names = append(d.tools[i].names, name)
			d.tools[i].packing = append(d.tools[i].packing, &packing{tc: t})
			continue
		}
		d.tools = append(d.tools, localTool{t, []string{name}, []*packing{{tc: t}}})
	}
	switch {
	case len(known) == 0 && len(strange) == 0:
		f.fail("compilers", "PATH has none of "+strings.Join(doctorNames, ", "), "install one, say the package gcc, the same as on the hosts")
	case len(known) == 0:
		f.fail("compilers", "none that can be identified: "+strings.Join(strange, ", "), "install gcc or clang itself: a script in its place is not understood")
	case len(strange) > 0:
		f.warn("compilers", strings.Join(known, " ")+"; not identified, so they compile here only: "+strings.Join(strange, ", "), "a script in a compiler's place is not understood")
	default:
		var text []string
		for _, t := range d.tools {
			text = append(text, fmt.Sprintf("%s (%s %s)", strings.Join(t.names, " "), t.Family, t.Version))
		}
		f.ok("compilers", "%s", strings.Join(text, ", "))
	}
}

// lookPath finds a program that is not a link to rdistcc; "" if there is none.
func (d *doctor) lookPath(name string) string {
	for _, dir := range filepath.SplitList(d.c.getenv("PATH")) {
		path := filepath.Join(dir, name)
		if filepath.IsAbs(path) && !leadsToUs(path) {
			if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode().Perm()&0o111 != 0 {
				return path
			}
		}
	}
	return ""
}

// leadsToUs reports whether a program's name is a link to rdistcc, wherever that is.
func leadsToUs(path string) bool {
	real, err := filepath.EvalSymlinks(path)
	return err == nil && filepath.Base(real) == "rdistcc"
}

// machine checks what compiles here depend on, whatever the hosts.
func (d *doctor) machine(f *findings) {
	d.managerLine(f)
	d.socketDir(f)
	d.capacity(f)
	d.links(f)
}

// socketDir checks that no other user can put a socket in place of the manager's.
func (d *doctor) socketDir(f *findings) {
	path := ipc.SocketPath(d.c.getenv)
	dir := filepath.Dir(path)
	shared := d.c.getenv("RDISTCC_CM_SOCKET") != "" // of a manager that serves several users
	st, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		f.ok("directory", "%s is made by the first compile", dir)
		return
	}
	if err != nil {
		f.fail("directory", err.Error(), "RDISTCC_DIR names another one")
		return
	}
	mode, uid := st.Mode().Perm(), -1
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		uid = int(s.Uid)
	}
	switch own := uid == os.Geteuid(); {
	case !st.IsDir():
		f.fail("directory", dir+" is no directory", "remove it, or name another one by RDISTCC_DIR")
	case !own && (uid != 0 || !shared):
		f.fail("directory", fmt.Sprintf("%s belongs to user %d: it is not believed", dir, uid), "name one of your own by RDISTCC_DIR")
	case mode&0o022 != 0 && !(shared && st.Mode()&fs.ModeSticky != 0):
		f.fail("directory", fmt.Sprintf("%s can be written by others (mode %04o): they could stand in for the manager", dir, mode), "chmod go-w "+dir)
	case own && !shared && mode&0o077 != 0:
		f.warn("directory", fmt.Sprintf("%s can be entered by others (mode %04o)", dir, mode), "chmod 700 "+dir)
	default:
		f.ok("directory", "%s, mode %04o", dir, mode)
	}
}

// capacity checks whether there is enough memory for slots.
func (d *doctor) capacity(f *findings) {
	b := &d.cfg.Buffers
	slots := b.SlotsFor(memoryOf("MemTotal:"))
	need := uint64(slots) * uint64(b.Prefault)
	free := memoryOf("MemAvailable:")
	text := fmt.Sprintf("%s, %s of memory available; %s that keep up to %s", figure.Count(d.c.cores, "core"), figure.Bytes(free), figure.Count(slots, "slot"), figure.Bytes(need))
	if free > 0 && free < need+(256<<20) {
		f.warn("capacity", text, "lower buffers.slots or buffers.prefault in the configuration, or end what takes the memory")
		return
	}
	f.ok("capacity", "%s", text)
}

// memoryOf returns the value of a line of /proc/meminfo in bytes, such as what is available without swapping; 0: the kernel
// does not say.
func memoryOf(line string) uint64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for l := range bytes.Lines(text) {
		if f := bytes.Fields(l); len(f) == 3 && string(f[0]) == line {
			n, _ := strconv.ParseUint(string(f[1]), 10, 64) // 0 if it is not a number
			return n << 10
		}
	}
	return 0
}

// links checks the masquerade links on PATH: each must come before the compiler that it stands for, and
// lead somewhere.
func (d *doctor) links(f *findings) {
	var dirs, late, dead []string
	passed := make(map[string]string) // compilers that came earlier, and where
	for _, dir := range filepath.SplitList(d.c.getenv("PATH")) {
		for _, name := range doctorNames {
			path := filepath.Join(dir, name)
			target, err := os.Readlink(path)
			_, gone := os.Stat(path)
			switch {
			case err == nil && gone != nil && filepath.Base(target) == "rdistcc":
				dead = append(dead, path)
			case gone != nil:
			case !leadsToUs(path):
				if passed[name] == "" {
					passed[name] = path
				}
			default:
				if !slices.Contains(dirs, dir) {
					dirs = append(dirs, dir)
				}
				if passed[name] != "" {
					late = append(late, name)
				}
			}
		}
	}
	switch {
	case len(dead) > 0:
		f.fail("links", strings.Join(dead, ", ")+": lead to no rdistcc", "rdistcc install-links "+filepath.Dir(dead[0]))
	case len(late) > 0:
		f.warn("links", fmt.Sprintf("%s of %s come after the compilers themselves on PATH", strings.Join(late, " "), strings.Join(dirs, ", ")), "put the directory first: export PATH="+dirs[0]+":$PATH")
	case len(dirs) > 0:
		f.ok("links", "%s is on PATH before the compilers", strings.Join(dirs, ", "))
	default:
		f.ok("links", "none on PATH: builds call rdistcc by name (rdistcc gcc ...), or rdistcc install-links DIR")
	}
}
