package caches

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDamagedResults: a result that was damaged is removed, and compiled anew.
func TestDamagedResults(t *testing.T) {
	s := start(t, "")
	s.write("a.c", "int x[1000] = {1};\nint f(int i) { return x[i]; }\n")
	cmd := []string{"gcc", "-O2", "-g", "-c", "a.c"}
	s.compiles("remote", cmd...)
	s.settle(1)
	name := s.kept()[0]
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	errors := 0.0
	for what, b := range map[string][]byte{
		"a flipped bit": func() []byte { b := append([]byte{}, whole...); b[len(b)/2] ^= 1; return b }(),
		"cut short":     whole[:len(whole)/2],
		"empty":         {},
		"something":     []byte("something else that is long enough to be taken for the head of a result, and then some more"),
	} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s.compiles("remote", cmd...)
		errors++
		s.wait("the result to be kept anew", func() bool {
			now, err := os.ReadFile(name)
			return err == nil && len(now) > len(whole)/2 && now[0] == 'r'
		})
		s.compiles("cached:manager", cmd...)
		if n := s.metric(s.Manager, `rdistcc_cm_cache_total{result="error",tier="manager"}`); n != errors {
			t.Errorf("%s: %v errors counted, want %v", what, n, errors)
		}
	}
	// One of another version is a miss like any other.
	later := append([]byte{}, whole...)
	later[7] = 0xff
	if err := os.WriteFile(name, later, 0o600); err != nil {
		t.Fatal(err)
	}
	s.compiles("remote", cmd...)
	if n := s.metric(s.Manager, `rdistcc_cm_cache_total{result="error",tier="manager"}`); n != errors {
		t.Errorf("another version counts as an error")
	}
}

// TestNoRoom: where results cannot be kept, builds do not notice, and the log has a line, not one for each job.
func TestNoRoom(t *testing.T) {
	s := start(t, "")
	if err := os.MkdirAll(filepath.Dir(s.results), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.results, []byte("a file in its place"), 0o666); err != nil {
		t.Fatal(err)
	}
	s.write("a.c", "int x;\n")
	for range 10 {
		s.compiles("remote", "gcc", "-c", "a.c")
	}
	if n := strings.Count(s.log(), "level=WARN"); n == 0 || n > 3 || !strings.Contains(s.log(), "left alone for a while") {
		t.Errorf("%d warnings:\n%s", n, s.log())
	}
}

// TestWithoutHosts: what is kept needs no host.
func TestWithoutHosts(t *testing.T) {
	s := start(t, "")
	s.write("a.c", "int x;\n")
	s.compiles("remote", "gcc", "-c", "a.c")
	s.settle(1)
	s.Daemons[0].Kill()
	s.compiles("cached:manager", "gcc", "-c", "a.c")
	s.again()
	s.compiles("cached:manager", "gcc", "-c", "a.c")
	s.write("a.c", "int y;\n")
	if got := s.run([]string{"RDISTCC_MODE=auto"}, "gcc", "-c", "a.c"); got.status != 0 || !strings.HasPrefix(got.where, "local:") {
		t.Errorf("%+v", got)
	}
}

// TestSeveralManagers: two managers may share the directory.
func TestSeveralManagers(t *testing.T) {
	s := start(t, "")
	s.write("a.c", "int x;\n")
	s.compiles("remote", "gcc", "-c", "a.c")
	s.settle(1)
	other := []string{"RDISTCC_DIR=" + filepath.Join(s.Dir, "other"), "RDISTCC_HOSTS=" + s.Daemons[0].Addr}
	s.compilesWith("cached:manager", other, "gcc", "-c", "a.c")
	s.write("a.c", "int y;\n")
	s.compilesWith("remote", other, "gcc", "-c", "a.c")
	s.settle(2)
	s.compiles("cached:manager", "gcc", "-c", "a.c")
	stop, _ := s.command(true, other, "stop")
	if out, err := stop.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestOff: cache.use switches the cache off, whatever the environment says.
func TestOff(t *testing.T) {
	s := start(t, "cache: {use: false}\n")
	s.write("a.c", "int x;\n")
	for range 2 {
		s.compiles("remote", "gcc", "-c", "a.c")
	}
	if len(s.kept()) != 0 {
		t.Error("a result is kept")
	}
}
