package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/standin"
)

// backendsVar turns this program into what a plain link has its parts compiled by: lld's distributor or gcc's make. It names the file for
// the CPU time of the compiles, in nanoseconds.
const backendsVar = "RDISTCC_BENCH_BACKENDS"

// beBackends does what a plain link would do by itself, and records what its compiles took.
func beBackends(times string, args []string) error {
	if len(args) == 1 && strings.HasSuffix(args[0], ".json") {
		text, err := os.ReadFile(args[0])
		if err != nil {
			return err
		}
		var link struct {
			Common struct{ Args []string }
			Jobs   []struct{ Args []string }
		}
		if err := json.Unmarshal(text, &link); err != nil {
			return err
		}
		for _, j := range link.Jobs {
			words := slices.Concat(link.Common.Args, j.Args)
			if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, lastLines(out, 2))
			}
		}
	} else {
		cmd := exec.Command("make", args...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil || len(args) == 1 { // make --version
			return err
		}
	}
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u); err != nil {
		return err
	}
	return os.WriteFile(times, strconv.AppendInt(nil, u.Utime.Nano()+u.Stime.Nano(), 10), 0o600)
}

// ltoLink is a link with LTO, of objects that were compiled before, in a directory of its own.
type ltoLink struct {
	id, name string
	compile  []string // words of a compile of one source
	link     []string // of the link
	local    []string // more of them for the plain one
	ours     []string // and for the one through rdistcc
}

// ltoProgram is what is linked: dwebp of libwebp, 135 sources.
const ltoProgram = "github.com/chai2010/webp@v1.4.0"

var ltoSources = []string{"src/d*/*.c", "src/utils/*.c", "sharpyuv/*.c", "imageio/*.c", "src/enc/*.c", "src/mux/*.c", "examples/dwebp.c", "examples/example_util.c"}

// thinLinks measures P27: a ThinLTO link by lld, whose back ends a distributor has compiled.
func (b *bench) thinLinks() error {
	for _, n := range []string{"22", "21"} {
		clang, err := exec.LookPath("clang-" + n)
		lld := "/usr/lib/llvm-" + n + "/bin/ld.lld"
		if _, none := os.Stat(lld); err != nil || none != nil {
			continue
		}
		return b.linked(ltoLink{id: "P27", name: "ThinLTO link by clang and lld " + n,
			compile: []string{clang, "-O2", "-g", "-flto=thin"},
			link:    []string{clang, "-O2", "-g", "-flto=thin", "-fuse-ld=" + lld, "-Wl,--thinlto-remote-compiler=" + clang},
			local:   []string{"-fthinlto-distributor=/proc/self/exe"},
			ours:    []string{"-fthinlto-distributor=" + filepath.Join(b.bin, "rdistcc-dtlto")}})
	}
	fmt.Println("# P27 is left out: no lld 21 or later with its clang (Debian: clang-22 and lld-22)")
	return nil
}

// gccLinks measures P28: a link with LTO by gcc. The program is small: smaller partitions than usual make as many of it as gcc makes of a
// large one.
func (b *bench) gccLinks() error {
	words := []string{b.gcc, "-O2", "-g", "-flto=2"}
	return b.linked(ltoLink{id: "P28", name: "LTO link by gcc", compile: words,
		link: slices.Concat(words, []string{"--param=lto-min-partition=400"})})
}

// linked measures what a link costs the build host beyond its own steps, with its parts compiled here and by a host; and again after one
// source has changed.
func (b *bench) linked(l ltoLink) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir := filepath.Join(b.tmp, l.id)
	p := project{name: "libwebp", module: ltoProgram}
	if err := p.copyTo(b, dir); err != nil {
		return err
	}
	dir = filepath.Join(dir, "internal/libwebp-1.4.0")
	var sources, objects []string
	for _, glob := range ltoSources {
		found, err := filepath.Glob(filepath.Join(dir, glob))
		if err != nil {
			return err
		}
		sources = append(sources, found...)
	}
	compile := func(source string) error {
		cmd := exec.CommandContext(b.ctx, l.compile[0], slices.Concat(l.compile[1:], []string{"-I.", "-Isrc", "-DWEBP_USE_THREAD", "-c", source, "-o", source + ".o"})...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", source, err, lastLines(out, 2))
		}
		return nil
	}
	for _, source := range sources {
		if err := compile(source); err != nil {
			return err
		}
		objects = append(objects, source+".o")
	}
	f, err := b.newFarm(farmSpec{name: l.id})
	if err != nil {
		return err
	}
	defer f.close()
	plain, err := b.group(l.id+"-plain", nil)
	if err != nil {
		return err
	}
	times := filepath.Join(b.tmp, "times")
	words := slices.Concat(l.link, objects, []string{"-lm", "-pthread", "-o", "dwebp"})
	for i, w := range l.local {
		l.local[i] = strings.Replace(w, "/proc/self/exe", self, 1)
	}
	local := &side{name: "here", argv: slices.Concat(words, l.local), env: b.env(backendsVar+"="+times, "MAKE="+self)}
	cold := &side{name: "rdistcc", argv: slices.Concat([]string{filepath.Join(b.bin, "rdistcc")}, words, l.ours), env: f.env, host: f.host, manager: f.manager}
	kept := &side{name: "rdistcc, one source changed", argv: cold.argv, env: append(slices.Clone(f.env), "RDISTCC_CACHE=on"), host: f.host, manager: f.manager}
	for s, g := range map[*side]*group{local: plain, cold: f.g, kept: f.g} {
		if s.run, err = newRunner(g, b.tmp); err != nil {
			return err
		}
		defer s.run.close()
		s.run.limit = buildLimit
	}
	var backends, steps []float64 // of the plain links, in ms
	once := func(s *side, round int) (program []byte, err error) {
		far0, mgr0 := s.host.usage(), s.manager.ownCPU()
		t, err := s.run.run(b.ctx, settle, s.env, dir, s.argv...)
		if err != nil {
			return nil, f.trouble(err)
		}
		if round >= 0 {
			s.add(b, l.id, round, t, s.host.usage()-far0, s.manager.ownCPU()-mgr0)
		}
		return os.ReadFile(filepath.Join(dir, "dwebp"))
	}
	here := func(round int) ([]byte, error) {
		program, err := once(local, round)
		if err != nil {
			return nil, err
		}
		text, err := os.ReadFile(times)
		if err != nil {
			return nil, err
		}
		ns, err := strconv.ParseInt(string(text), 10, 64)
		took := ms(time.Duration(ns))
		backends, steps = append(backends, took), append(steps, local.cpu[len(local.cpu)-1]-took)
		return program, err
	}
	places := ""
	for round := -1; round < b.turns; round++ { // the first one makes itself known to the host
		want, err := here(max(round, 0))
		if err != nil {
			return err
		}
		got, err := once(cold, round)
		if err != nil {
			return err
		}
		if !bytes.Equal(want, got) {
			return fmt.Errorf("round %d: the program differs from that of the plain link", round)
		}
		if places, err = f.kinds(); err != nil {
			return err
		}
	}
	fmt.Printf("# %s, %d modules: %s\n", l.name, len(objects), places)
	if _, err := once(kept, -1); err != nil {
		return err
	}
	changed := filepath.Join(dir, "src/dec/frame_dec.c")
	for round := range b.turns {
		text, err := os.ReadFile(changed)
		if err != nil {
			return err
		}
		// A number in a function. One more function or variable changes most partitions of gcc's, which number all that there is.
		was, is := fmt.Sprintf("ilevel > %d - ", 9+round), fmt.Sprintf("ilevel > %d - ", 10+round)
		if !bytes.Contains(text, []byte(was)) {
			return fmt.Errorf("%s has no %q", changed, was)
		}
		if err := os.WriteFile(changed, bytes.Replace(text, []byte(was), []byte(is), 1), 0o600); err != nil {
			return err
		}
		if err := compile(changed); err != nil {
			return err
		}
		_ = os.Remove(f.report)
		got, err := once(kept, round)
		if err != nil {
			return err
		}
		if places, err = f.kinds(); err != nil {
			return err
		}
		fmt.Printf("# %s, one source changed: %s\n", l.name, places)
		want, err := here(0)
		if err != nil {
			return err
		}
		if !bytes.Equal(want, got) {
			return fmt.Errorf("change %d: the program differs from that of the plain link", round)
		}
	}
	parts, own := median(backends), median(steps)
	for _, s := range []*side{local, cold, kept} {
		fmt.Printf("# %s, %s: wall %.2f s; CPU of the build host %.2f s, of them manager %.2f; of the host %.2f\n", l.name, s.name,
			median(s.wall)/1e3, median(b.nearAll(s))/1e3, median(s.mgr)/1e3, median(s.far)/1e3)
	}
	fmt.Printf("# %s: its own steps %.2f s of CPU, compiles of its parts %.2f\n", l.name, own/1e3, parts/1e3)
	b.table.ratio(l.id, "build host's CPU beyond the link's own steps, "+l.name, "s", (median(b.nearAll(cold))-own)/1e3, parts/1e3, "<= 0.25")
	b.table.ratio(l.id, "the same, one source changed", "s", (median(b.nearAll(kept))-own)/1e3, parts/1e3, "<= 0.15")
	b.table.ratio(l.id, "with the host's CPU", "s", (median(kept.cpu)-own)/1e3, parts/1e3, "<= 0.15")
	return nil
}

// nearAll returns what the build host spent each time, in ms, with the compilers that the manager asks something. Without control groups
// these are missing.
func (b *bench) nearAll(s *side) []float64 {
	if b.acct.exact {
		return diff(s.cpu, s.far)
	}
	return s.near()
}

// P29: linkJobs compiles on linkPlaces places.
const (
	linkJobs   = 512
	linkPlaces = 128
)

// waiting measures P29: what a link hands to its distributor, with a compiler that only takes its time, of one to eight seconds.
func (b *bench) waiting() error {
	cc, dir := filepath.Join(b.tmp, "p29-cc"), filepath.Join(b.tmp, "p29-link")
	for _, d := range []string{cc, dir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	compiler := filepath.Join(cc, "gcc")
	if err := standin.Build(b.ctx, b.gcc, compiler); err != nil {
		return err
	}
	f, err := b.newFarm(farmSpec{name: "p29", compilers: cc, places: linkPlaces})
	if err != nil {
		return err
	}
	defer f.close()
	type job struct {
		Args    []string `json:"args"`
		Inputs  []string `json:"inputs"`
		Outputs []string `json:"outputs"`
	}
	s := &side{name: "rdistcc", env: f.env, host: f.host, manager: f.manager, argv: []string{filepath.Join(b.bin, "rdistcc"), "dtlto", "link.json"}}
	if s.run, err = newRunner(f.g, b.tmp); err != nil {
		return err
	}
	defer s.run.close()
	s.run.limit = buildLimit
	var ideal float64
	for round := -1; round < b.turns; round++ {
		var jobs []job
		sum, longest := 0, 0
		for i := range linkJobs {
			wait := 1000 + (i*2654435761>>8)%7000 // ms
			if round < 0 {
				wait = 1
			}
			sum, longest = sum+wait, max(longest, wait)
			name := fmt.Sprintf("unit%d", i)
			text := fmt.Sprintf("/* stand-in: sleep %d output 4000 */\nint unit%d_%d;\n/*%s*/\n", wait, i, round, strings.Repeat("x", wait)) // larger ones take longer
			if err := os.WriteFile(filepath.Join(dir, name+".c"), []byte(text), 0o600); err != nil {
				return err
			}
			jobs = append(jobs, job{[]string{name + ".c", "-o", name + ".o"}, []string{name + ".c"}, []string{name + ".o"}})
		}
		text, err := json.Marshal(map[string]any{"common": map[string]any{"linker_output": "x", "args": []string{compiler, "-xlto", "-c", "-fltrans"}, "inputs": []string{}}, "jobs": jobs})
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "link.json"), text, 0o600); err != nil {
			return err
		}
		far0, mgr0 := s.host.usage(), s.manager.ownCPU()
		t, err := s.run.run(b.ctx, settle, s.env, dir, s.argv...)
		if err != nil {
			return f.trouble(err)
		}
		if round >= 0 {
			s.add(b, "P29", round, t, s.host.usage()-far0, s.manager.ownCPU()-mgr0)
			ideal = float64(max(longest, (sum+linkPlaces-1)/linkPlaces))
		}
	}
	places, err := f.places()
	if err != nil {
		return err
	}
	fmt.Printf("# P29, %d compiles on %d places: %s; CPU of the build host %.2f ms a job, of it the manager %.2f; of the host %.2f\n", linkJobs, linkPlaces, places,
		median(b.nearAll(s))/linkJobs, median(s.mgr)/linkJobs, median(s.far)/linkJobs)
	b.table.ratio("P29", fmt.Sprintf("wall of %d compiles that only take time on %d places; the ideal", linkJobs, linkPlaces), "s", median(s.wall)/1e3, ideal/1e3, "<= 1.15")
	b.table.note("P29", "CPU of the build host for each", fmt.Sprintf("%.2f ms", median(b.nearAll(s))/linkJobs), "", "<= 5 ms")
	return nil
}
