package toolchains

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// linked writes what lld 22 leaves of a ThinLTO link to a distributor: modules by cc, their indexes, and a file that names the compiles.
// pid stands in the names of what is not kept. It returns the file's name, and the commands.
func (s *site) linked(cc string, n, pid int) (file string, commands [][]string) {
	type job struct {
		Args    []string `json:"args"`
		Inputs  []string `json:"inputs"`
		Outputs []string `json:"outputs"`
	}
	var link struct {
		Common struct {
			Output string   `json:"linker_output"`
			Args   []string `json:"args"`
			Inputs []string `json:"inputs"`
		} `json:"common"`
		Jobs []job `json:"jobs"`
	}
	path, err := exec.LookPath(cc)
	if err != nil {
		s.Fatal(err)
	}
	link.Common.Output, link.Common.Inputs = "x", []string{}
	link.Common.Args = []string{path, "-c", "--target=x86_64-pc-linux-gnu", "-O2", "-faddrsig", "-ffunction-sections", "-fdata-sections", "-fpic", "-Wno-unused-command-line-argument"}
	index := []string{cc, "-flto=thin", "-fuse-ld=gold", "-shared", "-Wl,-plugin-opt,thinlto-index-only", "-o", "x.so"}
	for i, source := range s.program(n) {
		module := fmt.Sprintf("lib a.a(unit %d.o at %d).%d.o", i, 60*i, pid)
		if compile := []string{cc, "-O2", "-g", "-flto=thin", "-fPIC", "-c", source, "-o", module}; s.farms {
			s.onHost(compile...)
		} else {
			s.plainly(compile...)
		}
		index = append(index, module)
		native := fmt.Sprintf("%s.%d.%d.native.o", module, i+1, pid)
		j := job{[]string{module, "-fthinlto-index=" + module + ".thinlto.bc", "-o", native}, []string{module, module + ".thinlto.bc"}, []string{native}}
		link.Jobs = append(link.Jobs, j)
		commands = append(commands, append(append([]string{}, link.Common.Args...), j.Args...))
	}
	s.plainly(index...)
	text, err := json.Marshal(link)
	if err != nil {
		s.Fatal(err)
	}
	file = fmt.Sprintf("x.%d.dist-file.json", pid)
	s.write(file, string(text))
	return file, commands
}

// TestDistributor: hosts run the compiles that lld leaves to a distributor, and each result is that of the same compile here.
func TestDistributor(t *testing.T) {
	s := prepare(t, "")
	cc := compilers(t, "clang-14")[0]
	if _, err := exec.LookPath("ld.gold"); err != nil {
		need.Skipf(t, need.Tools, "%v", err)
	}
	s.start()
	file, commands := s.linked(cc, 6, 4711)
	output := func(command []string) string { return filepath.Join(s.work, command[len(command)-1]) }
	var got ran
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) { // until the host has been found
		for _, c := range commands {
			os.Remove(output(c))
		}
		got = s.run("dtlto", file)
		if got.status != 0 || strings.Count(got.where, "remote:") == len(commands) || time.Now().After(end) {
			break
		}
	}
	if got.status != 0 || got.out != "" || strings.Count(got.where, "remote:") != len(commands) {
		t.Fatalf("exit %d, %s: %s%s", got.status, got.where, got.out, s.log())
	}
	if why := s.run("why", output(commands[0])).out; !strings.Contains(why, "the link of "+filepath.Join(s.work, "x")+"\n") {
		t.Errorf("why names no link: %s", why)
	}
	for _, c := range commands {
		ours, err := os.ReadFile(output(c))
		if err != nil {
			t.Fatal(err)
		}
		s.plainly(c...)
		if here, err := os.ReadFile(output(c)); err != nil || !bytes.Equal(ours, here) {
			t.Errorf("%s: %v, or it differs", output(c), err)
		}
	}

	// A module that vanishes: the compiler's words, and the link fails. clang 14 ends with status 0 where it imports from the module, and
	// leaves an empty object, with which lld would make a program.
	module := commands[0][len(commands[0])-4]
	if err := os.Remove(filepath.Join(s.work, module)); err != nil {
		t.Fatal(err)
	}
	for _, c := range commands {
		os.Remove(output(c))
	}
	got = s.run("dtlto", file)
	if got.status == 0 || !strings.Contains(got.out, module) {
		t.Errorf("without a module: exit %d, %s", got.status, got.out)
	}
	for _, c := range commands {
		if fi, err := os.Stat(output(c)); err == nil && fi.Size() == 0 {
			t.Errorf("%s is empty", output(c))
		}
	}
}

// onHost runs a command until a host does it.
func (s *site) onHost(args ...string) {
	s.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if got := s.run(args...); strings.HasPrefix(got.where, "remote:") {
			return
		} else if got.status != 0 || time.Now().After(end) {
			s.Fatalf("%s: exit %d, %s: %s%s", strings.Join(args, " "), got.status, got.where, got.out, s.log())
		}
	}
}

// sent returns how many bytes hosts have been sent with jobs.
func (s *site) sent() (n int) {
	s.Helper()
	var stats struct {
		BytesOut int `json:"bytes_out"`
	}
	if err := json.Unmarshal([]byte(s.run("stats", "--json").out), &stats); err != nil {
		s.Fatal(err)
	}
	return stats.BytesOut
}

// TestModulesTravelOnce: a module that a host has compiled is not sent to it for a link, neither as the source of a job nor for others to
// import from; one that it has not is sent once.
func TestModulesTravelOnce(t *testing.T) {
	s := prepare(t, "")
	cc := compilers(t, "clang-14")[0]
	if _, err := exec.LookPath("ld.gold"); err != nil {
		need.Skipf(t, need.Tools, "%v", err)
	}
	s.start()
	const n = 7       // with main.c
	const most = 4000 // bytes of a job's words, of its list, and of the index
	s.more = `const char text[] = "` + strings.Repeat("text", n*most) + "\";\n"
	s.onHost(cc, "-c", s.program(1)[0], "-o", "x.o") // it has been found
	for pid, farms := range []bool{false, true} {
		s.farms = farms
		file, commands := s.linked(cc, n-1, pid)
		modules := 0
		for _, c := range commands {
			fi, err := os.Stat(filepath.Join(s.work, c[len(c)-4]))
			if err != nil {
				t.Fatal(err)
			}
			modules += int(fi.Size())
		}
		if farms {
			modules = 0
		}
		before := s.sent()
		if got := s.run("dtlto", file); got.status != 0 || strings.Count(got.where, "remote:") != n {
			t.Fatalf("exit %d, %s: %s%s", got.status, got.where, got.out, s.log())
		}
		if sent := s.sent() - before; sent < modules || sent > modules+n*most {
			t.Errorf("modules made by hosts: %v: %d bytes sent with %d jobs, want %d and less than %d a job", farms, sent, n, modules, most)
		}
		s.more += "int changed;\n"
	}
}

// TestRelink: a link that other processes have made of the same modules takes its compiles from the cache, with other names throughout;
// after a change, all but those that it reaches. So it is while what the cache has is audited.
func TestRelink(t *testing.T) {
	s := prepare(t, "")
	cc := compilers(t, "clang-14")[0]
	if _, err := exec.LookPath("ld.gold"); err != nil {
		need.Skipf(t, need.Tools, "%v", err)
	}
	s.Vars = append(s.Vars, "RDISTCC_CACHE=on")
	settings := filepath.Join(s.Dir, "farm.yaml")
	text, err := os.ReadFile(settings)
	if err == nil { // each hit is compiled again, and compared
		err = os.WriteFile(settings, bytes.Replace(text, []byte("audit: 0"), []byte("audit: 1"), 1), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.start()
	const n = 7 // with main.c
	link := func(pid int) (where string) {
		t.Helper()
		file, commands := s.linked(cc, n-1, pid)
		got := s.run("dtlto", file)
		if got.status != 0 || got.out != "" {
			t.Fatalf("exit %d: %s%s", got.status, got.out, s.log())
		}
		for _, c := range commands {
			output := filepath.Join(s.work, c[len(c)-1])
			ours, err := os.ReadFile(output)
			if err != nil {
				t.Fatal(err)
			}
			s.plainly(c...)
			if here, err := os.ReadFile(output); err != nil || !bytes.Equal(ours, here) {
				t.Errorf("%s (%s): %v, or it differs", output, got.where, err)
			}
		}
		return got.where
	}
	pid := 98765
	for end := time.Now().Add(5 * time.Minute); ; pid++ { // until the host has been found, and has compiled each
		if where := link(pid); strings.Count(where, "cached:") == n {
			break
		} else if time.Now().After(end) {
			t.Fatalf("not kept: %s%s", where, s.log())
		}
	}
	if where := link(123456789); strings.Count(where, "cached:") != n {
		t.Errorf("again, with other names: %s", where)
	}
	s.more = "int more;\n"
	if where := link(4711); strings.Count(where, "cached:") != n-1 {
		t.Errorf("after a change that nothing else imports: %s", where)
	}

	s.plainly(cc, "-O1", "-emit-llvm", "-c", "unit0.c", "-o", "x.bc")
	s.onHost(cc, "-O2", "-c", "x.bc", "-o", "x.o")
	if got := s.run(cc, "-O2", "-c", "x.bc", "-o", "x.o"); !strings.HasPrefix(got.where, "cached:") {
		t.Errorf("without an index, again: %s", got.where)
	}
	s.equal(cc, "-O2", "-c", "x.bc", "-o", "x.o")
}
