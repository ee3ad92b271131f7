package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/relay"
)

// Places of a compile host, and sizes in bytes of the file systems that are filled.
const (
	places   = 2
	hostDisk = 64 << 20
	hereDisk = 64 << 20
)

// host is a daemon behind a relay.
type host struct {
	relay *relay.Relay
	area  string // its work area
	turn  sync.Mutex
	index int // in site.farm.Daemons
	store hostStore

	mu  sync.Mutex
	pid int // 0 while it is down; guarded by mu
}

func (h *host) daemon() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pid
}

func (h *host) set(pid int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pid = pid
}

// site is a farm with everything that belongs to it below one directory, which each of its processes has in
// its environment: so none can be overlooked.
type site struct {
	farm  *farm.Farm
	bin   string
	root  string
	src   string
	out   string
	tmp   string
	trees bool
	cache bool
	disks bool // the work areas and out are file systems of their own
	hosts []*host
	mu    sync.Mutex
	units []unit
}

// openSite starts n hosts; trees says which form jobs use, and cache that results are kept. Close ends everything.
func openSite(ctx context.Context, bin, root string, n int, trees, cache bool) (s *site, err error) {
	s = &site{farm: farm.New(bin, filepath.Join(root, "state")), bin: bin, root: root, trees: trees, cache: cache,
		src: filepath.Join(root, "src"), out: filepath.Join(root, "out"), tmp: filepath.Join(root, "tmp")}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	for _, dir := range []string{s.farm.Dir, s.src, s.out, s.tmp} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return s, err
		}
	}
	config := filepath.Join(root, "config.yaml")
	s.farm.Vars = []string{"TMPDIR=" + s.tmp, "HOME=" + root, "LC_ALL=C", "XDG_STATE_HOME=" + root, "RDISTCC_CONFIG=" + config}
	if cache {
		s.farm.Vars = append(s.farm.Vars, "RDISTCC_CACHE=on")
	}
	s.disks = mount(s.out, hereDisk) == nil
	compilers, err := s.compilers()
	if err != nil {
		return s, err
	}
	var hosts []string
	for i := range n {
		h := &host{index: i, area: filepath.Join(root, "area"+strconv.Itoa(i+1))}
		if err := os.Mkdir(h.area, 0o700); err != nil {
			return s, err
		}
		if s.disks {
			if err := mount(h.area, hostDisk); err != nil {
				return s, err
			}
		}
		text := "toolchains: {dirs: [" + compilers + "]}\ndaemon: {work-dir: " + h.area
		if !trees {
			text += ", tree: off"
		}
		text += "}\n"
		if trees {
			more, err := s.openStore(h)
			if err != nil {
				return s, err
			}
			text += more
		}
		settings := filepath.Join(root, fmt.Sprintf("host%d.yaml", i+1))
		if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
			return s, err
		}
		s.farm.Meminfo = h.store.meminfo
		d, err := s.farm.StartDaemon(ctx, fmt.Sprintf("host%d", i+1), "--config", settings, "--jobs", strconv.Itoa(places))
		if err != nil {
			return s, err
		}
		h.set(d.PID())
		if h.relay, err = relay.New(d.Addr); err != nil {
			return s, err
		}
		s.hosts = append(s.hosts, h)
		hosts = append(hosts, strconv.Quote(h.relay.Addr()))
	}
	// What runs here should do so because of a fault.
	text := "hosts: [" + strings.Join(hosts, ", ") + "]\nhttp: {manager: \"127.0.0.1:0\"}\nlocal: {share: false}\nlinks: {idle: 1s}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return s, err
	}
	s.units, err = makeUnits(ctx, s.src, 1, trees)
	return s, err
}

// compilers returns a directory with the compilers that are used: two are identified faster than all.
func (s *site) compilers() (string, error) {
	dir := filepath.Join(s.root, "compilers")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	for _, name := range []string{"gcc", "g++"} {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(dir, name))
		}
		if err != nil {
			return "", err
		}
	}
	return dir, nil
}

// Close ends all processes and file systems; the caller then removes root.
func (s *site) Close() error {
	_ = s.command("stop").Run() // there may be no manager
	err := s.farm.Stop()
	for _, h := range s.hosts {
		h.relay.Close()
	}
	// A manager that was told to stop ends when its work is done.
	for began := time.Now(); len(belonging(s.root)) > 0 && time.Since(began) < stopTime; {
		time.Sleep(20 * time.Millisecond)
	}
	for _, p := range belonging(s.root) {
		err = errors.Join(err, fmt.Errorf("left at the end: %v", p))
		_ = syscall.Kill(p.pid, syscall.SIGKILL) // it may be gone by now
	}
	if s.disks {
		for _, h := range s.hosts {
			err = errors.Join(err, unix.Unmount(h.area, unix.MNT_DETACH), h.store.unmount())
		}
		err = errors.Join(err, unix.Unmount(s.out, unix.MNT_DETACH))
	}
	return err
}

// stopTime is how long programs may take to end once told to.
const stopTime = 5 * time.Second

// command returns an rdistcc command, run where the sources are.
func (s *site) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.farm.Wrapper, args...)
	cmd.Dir, cmd.Env = s.src, s.farm.Env()
	return cmd
}

// managers returns the running connection managers.
func (s *site) managers() []int {
	var pids []int
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is right
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if p, ok := look(pid); ok && s.isManager(p) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// managerPage returns the address of the last manager's metrics, which only its log has: a manager that
// drains still has the port that they would share.
func (s *site) managerPage() string {
	text, _ := os.ReadFile(filepath.Join(s.farm.Dir, "cm.log")) // a missing log shows at once
	i := strings.LastIndex(string(text), "http server listens")
	if i < 0 {
		return ""
	}
	_, addr, _ := strings.Cut(string(text[i:]), "addr=")
	addr, _, _ = strings.Cut(addr, "\n")
	return strings.Trim(addr, `"`)
}

func (s *site) isManager(p process) bool {
	return strings.HasPrefix(p.line, "rdistcc-cm --socket "+s.farm.Dir)
}

// metrics returns a process's series by name and labels.
func metrics(ctx context.Context, page string) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	text, err := farm.Get(ctx, "http://"+page+"/metrics")
	if err != nil {
		return nil, err
	}
	m := make(map[string]float64)
	for line := range strings.Lines(string(text)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil {
			m[name] = v
		}
	}
	return m, nil
}

// mount makes dir a file system of its own with room for a number of bytes.
func mount(dir string, bytes int) error {
	return unix.Mount("nemesis", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=700", bytes))
}

// fill uses up a file system; removing the file ends it.
func fill(dir string) (file string, err error) {
	f, err := os.CreateTemp(dir, "filler-")
	if err != nil {
		return "", err
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for size := len(block); size > 0; {
		if _, err := f.Write(block[:size]); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			return f.Name(), err
		}
	}
	return f.Name(), nil
}
