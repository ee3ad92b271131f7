package attacks

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rawjob"
	"github.com/rdistcc/rdistcc/internal/sandbox/probe"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// ownAttacks are the attacks of internal/test/program/evilcc that are not in the probe, by class. Those of the class dos
// get dosTime.
var ownAttacks = map[string][]string{
	"dos": {"spin", "sleep", "ignore-signals", "stop-itself", "stop-all", "kill-all", "fork-bomb", "exec-bomb", "thread-bomb", "memory", "memory-of-many", "memory-unlinked", "disk",
		"files", "deep", "stderr-flood", "stdout-flood", "orphan", "orphan-spins", "orphan-writes", "orphan-session", "object-flood", "object-zeros", "object-huge", "object-leased"},
	"object": {"object-secret", "object-passwd", "object-environ", "object-parent", "object-memory", "object-root", "object-zero", "object-random", "object-loop", "object-directory",
		"object-fifo", "object-socket", "object-device", "object-disk", "object-set-id", "object-own-file", "other-outputs", "directory-moved", "directory-shut"},
	"change": {"change-toolchain"},
	"see":    {"list", "processes"},
}

// evilAttack is one of them, or of the probe.
type evilAttack struct{ class, name string }

// evilAttacks returns all attacks. Short runs have a third of those that take their time, each time another one.
func evilAttacks(part int) (all []evilAttack) {
	for _, a := range probe.Attempts() {
		all = append(all, evilAttack{a.Class, a.Name})
	}
	for _, class := range slices.Sorted(maps.Keys(ownAttacks)) {
		for n, name := range ownAttacks[class] {
			if *full || class != "dos" || (n+part)%3 == 0 {
				all = append(all, evilAttack{class, name})
			}
		}
	}
	return slices.DeleteFunc(all, func(a evilAttack) bool {
		asked := *only == ""
		for _, w := range strings.Split(*only, ",") {
			asked = asked || a.class == w || strings.Contains(a.name, w)
		}
		return !asked
	})
}

// evilParts returns the parts of a gcc that an attacker may have written: where each is.
func evilParts(t *testing.T, sh *shipment) map[string]string {
	t.Helper()
	all := map[string]string{"driver": sh.Path}
	for i := range sh.Entries {
		e := &sh.Entries[i]
		switch base := filepath.Base(e.Name); {
		case e.Link() || !e.Exec:
		case base == "cc1":
			all["cc1"] = e.Name
		case base == "as" || strings.HasSuffix(base, "-as"):
			all["as"] = e.Name
		}
	}
	if len(all) != 3 {
		t.Fatalf("the parts of gcc: %v", all)
	}
	return all
}

// evilProgram builds the program that takes their places.
func evilProgram(t *testing.T) []byte {
	t.Helper()
	name := filepath.Join(t.TempDir(), "evilcc")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", name, "github.com/rdistcc/rdistcc/internal/test/program/evilcc")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return readFile(t, name)
}

// evilToolchain is a toolchain with an attacker's program, which was sent to the daemon.
type evilToolchain struct {
	*site
	*shipment
	part    string // which is the attacker's
	file    string // its name
	targets *probe.Targets
	n       int // attacks made
}

// job returns a job that makes the attack of this name; "": none.
func (e *evilToolchain) job(name string) *rawjob.Job {
	source := "int x;\n"
	b := &job.Body{Argv0: "gcc", Language: "c", Name: "in.c", Cwd: "/src", Args: []string{"-c", "in.c", "-o", "out.o"}, Outputs: []unit.Output{{Name: "out.o"}},
		Files: []unit.File{{Name: "in.c", Len: uint64(len(source)), MTime: 1e18}}}
	if name != "" {
		order := e.order(name)
		b.Files = append(b.Files, unit.File{Name: "attack", Len: uint64(len(order)), MTime: 1e18})
		source += order
	}
	return &rawjob.Job{Toolchain: e.ID, Body: b, Text: []byte(source), Sink: 8 << 20}
}

// order is what the file "attack" says.
func (e *evilToolchain) order(name string) string {
	targets := *e.targets
	targets.Toolchain, targets.Program = e.file, e.file+".real"
	return strings.Join(append([]string{name, "MARK=" + e.c.tokens["exec"]}, targets.Args()...), "\n")
}

// attack makes one and judges what comes of it.
func (e *evilToolchain) attack(t *testing.T, class, name string) verdict {
	t.Helper()
	j := e.job(name)
	if class == "dos" {
		j.Timeout = dosTime
	}
	e.n++
	j.Body.Args = append(j.Body.Args, "-DN="+strconv.Itoa(e.n)) // words that the daemon knows, it does not ask the driver about
	v := e.tryJob(t, trial{&attack{id: name + "/" + e.part, class: class, must: "contain", repeat: 1}, "gcc"}, j)
	said := func(words string) bool { return bytes.Contains(v.said, []byte("evilcc "+name+" "+words)) }
	_, _, died := strings.Cut(v.what, "signal ")
	switch reached := said("reachable\n"); {
	case strings.HasPrefix(v.what, "refused"):
		v.breaches = append(v.breaches, "test: it was refused, so it did not run")
	case !said("begins\n") && !strings.HasPrefix(v.what, "failed") && died && strings.HasSuffix(v.what, "signal 0"):
		v.breaches = append(v.breaches, "test: it did not run")
	case class == probe.Need && !reached:
		v.breaches = append(v.breaches, "test: a compile needs that")
	case reached && class != probe.Need:
		v.breaches = append(v.breaches, "reached: "+name)
	}
	switch name {
	case "list":
		v.breaches = append(v.breaches, e.strange(v.said)...)
	case "processes":
		v.breaches = append(v.breaches, strangers(v.said)...)
	}
	return v
}

// strange returns the names in a list that are neither the toolchain's nor the job's, nor every tree's.
func (e *evilToolchain) strange(said []byte) (all []string) {
	known := map[string]bool{"/": true, "/tmp": true, "/src": true, "/src/in.c": true, "/src/attack": true, "/src/out.o": true, "/usr/include": true}
	for _, name := range []string{"", "/fd", "/null", "/zero", "/full", "/urandom", "/stdin", "/stdout", "/stderr"} {
		known["/dev"+name] = true
	}
	for i := range e.Entries {
		for name := e.Entries[i].Name; name != "/"; name = filepath.Dir(name) {
			known[name] = true
		}
	}
	n := 0
	for line := range strings.Lines(string(said)) {
		if name, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "saw "); ok {
			n++
			if !known[name] && filepath.Dir(name) != "/tmp" {
				all = append(all, "see: "+name)
			}
		}
	}
	if n < 50 {
		all = append(all, fmt.Sprintf("test: a list of %d names", n))
	}
	return all
}

// strangers returns the processes in a list that are not of the tree, and whatever can be read of others.
func strangers(said []byte) (all []string) {
	n := 0
	for line := range strings.Lines(string(said)) {
		f := strings.Fields(line)
		switch {
		case len(f) == 0:
		case f[0] == "leads", f[0] == "descriptor":
			all = append(all, "see: "+line)
		case f[0] == "process":
			n++
			if pid, _ := strconv.Atoi(f[1]); pid == 1 && (f[2] != `""` || !strings.HasSuffix(strings.TrimSpace(line), ` ""`)) {
				all = append(all, "see: "+line) // the tree's own process may be seen, and nothing of it
			}
		}
	}
	if n < 2 || n > 5 { // the tree's process, and driver, cc1 and as
		all = append(all, fmt.Sprintf("see: %d processes", n))
	}
	return all
}

// object compiles without an attack, and returns the object.
func (s *site) object(t *testing.T, j *rawjob.Job) []byte {
	t.Helper()
	c, err := s.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Run(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != job.StatusRan || r.Exit != 0 || r.Signal != 0 || len(r.Files) != 1 {
		t.Fatalf("status %d, %v, %s; exit %d, signal %d: %s", r.Status, r.Cause, r.Detail, r.Exit, r.Signal, r.Segment(r.Stderr))
	}
	return r.Segment(r.Files[0].Segment)
}

// aim makes targets of the probe on the daemon's machine, as the daemon sees it. touched returns what has come to them.
func (s *site) aim(t *testing.T) (targets *probe.Targets, touched func() []string) {
	t.Helper()
	host, err := probe.NewHost(s.c.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(host.Close)
	targets = host.Targets()
	for _, name := range []*string{&targets.Secret, &targets.Other, &targets.Area, &targets.Unix} {
		*name = s.c.seen + strings.TrimPrefix(*name, s.c.dir)
	}
	// Its file systems for temporary files are the daemon's own.
	for i, name := range []*string{&targets.Temp, &targets.VarTmp, &targets.Shm} {
		dir := []string{"/tmp", "/var/tmp", "/dev/shm"}[i] + "/" + probe.Shared + s.c.tokens["secret"]
		if err := errors.Join(os.Mkdir(s.root()+dir, 0o777), os.Chmod(s.root()+dir, 0o777)); err != nil {
			t.Fatal(err)
		}
		if s.root() == "" {
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
		}
		*name = dir
	}
	if !s.user || os.Geteuid() != 0 {
		return targets, host.Touched
	}
	err = filepath.WalkDir(s.here(targets.Area), func(name string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(name, plainUser, plainUser))
	})
	if err != nil {
		t.Fatal(err)
	}
	cat := exec.Command("cat") // of the daemon's user
	cat.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: &syscall.Credential{Uid: plainUser, Gid: plainUser}}
	in, err := cat.StdinPipe() // it ends with this process
	if err != nil {
		t.Fatal(err)
	}
	if err := cat.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cat.Wait()
	})
	targets.Process, s.beside = cat.Process.Pid, cat.Process.Pid
	return targets, host.Touched
}

// TestEvilToolchains: a compiler that is an attacker's program, as driver, cc1 or assembler, gains nothing over a hostile
// source. It cannot change the toolchain either, and leaves nothing for the next job. Each such program takes turns in
// each way to run a daemon, and so do precompiled headers and plugins.
func TestEvilToolchains(t *testing.T) {
	if testing.Short() {
		t.Skip("runs hundreds of compiles")
	}
	today, evil := part.Of(t), []string{"driver", "cc1", "as", "images", "plugin"}
	due := func(m mode, what string) bool { // without trees no toolchain is accepted
		return !m.bare && !m.sent && today.Has("toolchains "+m.name+" "+what)
	}
	if !slices.ContainsFunc(modes, func(m mode) bool {
		return slices.ContainsFunc(evil, func(what string) bool { return due(m, what) })
	}) {
		t.Skip("its turn is another day")
	}
	bin, program := filepath.Join(farmtest.Programs(t), "rdistccd"), evilProgram(t)
	tcs, have := identify(t)
	if !have["gcc"] {
		need.Skipf(t, need.Tools, "no gcc")
	}
	gcc := tcs["gcc"]
	genuine := ship(t, &gcc)
	parts := evilParts(t, genuine)
	for i, m := range modes {
		turn := func(what string) bool { return due(m, what) }
		if !slices.ContainsFunc(evil, turn) || *where != "" && m.name != *where {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			if err := m.can(); err != nil {
				t.Skip(err)
			}
			m.memory = 2 << 30 // Go's runtime maps much more than it uses
			s := newSite(t, m, bin, tcs)
			s.honest(t, "gcc")
			if !s.trees {
				need.Skipf(t, need.Sandbox, "no private trees here")
			}
			targets, touched := s.aim(t)
			s.c.tokens["target"] = strings.ToLower(targets.Token)
			all := []*evilToolchain{{site: s, shipment: genuine, part: "none", targets: targets}}
			for _, part := range slices.Sorted(maps.Keys(parts)) {
				all = append(all, &evilToolchain{site: s, shipment: genuine.infect(t, parts[part], program), part: part, file: parts[part], targets: targets})
			}
			s.hangUp() // sending takes longer than a silent client may be
			for _, e := range all {
				s.sendToolchain(t, e.shipment)
			}
			want, before := s.object(t, all[0].job("")), s.kept(t)
			of, kinds := map[string]*tally{}, map[string]int{}
			for n, e := range all[1:] {
				if !turn(e.part) {
					continue
				}
				if got := s.object(t, e.job("")); !bytes.Equal(got, want) {
					t.Fatalf("the attacker's %s does not pass on what it is asked", e.part)
				}
				for _, a := range evilAttacks(n + i) {
					v := e.attack(t, a.class, a.name)
					count(of, kinds, trial{&attack{class: a.class}, "gcc"}, v)
					if *tell {
						t.Logf("%s by %s: %s: %v %s", a.name, e.part, v.what, v.breaches, v.said)
					}
					if len(v.breaches) > 0 {
						t.Errorf("%s %s by %s: %q (%s) %s", a.class, a.name, e.part, v.breaches, v.what, v.said)
					}
				}
				e.leaves(t, all)
				for _, e := range all {
					if got := s.object(t, e.job("")); !bytes.Equal(got, want) {
						t.Errorf("another object after the attacks")
					}
				}
			}
			if turn("images") && (*only == "" || strings.Contains(*only, "image")) {
				makers := []*evilToolchain{all[slices.IndexFunc(all, func(e *evilToolchain) bool { return e.part == "driver" })]}
				if *full {
					makers = all[1:]
				}
				s.hostileImages(t, all[0], slices.DeleteFunc(slices.Clone(makers), func(e *evilToolchain) bool { return e.part == "as" }), of, kinds) // no header is assembled
			}
			if after := s.kept(t); !maps.Equal(before, after) {
				t.Errorf("what the daemon keeps of toolchains has changed")
			}
			if turn("plugin") && (*only == "" || strings.Contains(*only, "plugin")) {
				s.hostilePlugin(t, all[0], of, kinds)
			}
			if what := touched(); len(what) > 0 {
				t.Errorf("%q", what)
			}
			s.honest(t, "gcc")
			s.proven(t)
			table(t, m.name, of, kinds)
		})
	}
}

// leaves leaves files wherever a job can, and looks for them in later jobs by the same toolchain and by others, in
// every place.
func (e *evilToolchain) leaves(t *testing.T, all []*evilToolchain) {
	t.Helper()
	if v := e.attack(t, "leave", "leave"); len(v.breaches) > 0 || !strings.HasPrefix(v.what, "failed undeclared") {
		t.Errorf("leave by %s: %q (%s) %s", e.part, v.breaches, v.what, v.said)
	}
	for range 3 {
		for _, other := range all[1:] {
			if v := other.attack(t, "look", "look"); len(v.breaches) > 0 {
				t.Errorf("by %s, what %s has left: %q (%s) %s", other.part, e.part, v.breaches, v.what, v.said)
			}
		}
	}
}
