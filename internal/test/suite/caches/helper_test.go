package caches

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/pkg/resultcache/crsh"
)

// The storage helpers of these tests are the test's own program, to which these variables say what to do.
const (
	helperDir  = "TEST_HELPER_DIR"  // where it keeps values
	helperRole = "TEST_HELPER_ROLE" // how it misbehaves
)

func TestMain(m *testing.M) {
	dir, role := os.Getenv(helperDir), os.Getenv(helperRole)
	if dir == "" && role == "" {
		os.Exit(m.Run())
	}
	os.Exit(beHelper(dir, role))
}

// beHelper is a storage helper. It returns its exit status.
func beHelper(dir, role string) int {
	told, err := crsh.ReadStarted(os.Getenv)
	if err != nil {
		return 1
	}
	switch role {
	case "crash":
		fmt.Fprintln(os.Stderr, "no such bucket for "+told.URL)
		return 7
	case "deaf":
		time.Sleep(time.Hour)
	}
	l, err := net.Listen("unix", told.Endpoint)
	if err != nil {
		return 1
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return 1
		}
		switch role {
		case "newer":
			_, _ = conn.Write([]byte{2, 1, 0})
		case "hang":
			_, _ = conn.Write([]byte{crsh.Version, 1, 0})
		case "giant":
			_, _ = conn.Write([]byte{crsh.Version, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0})
		case "nonsense":
			_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
		default:
			go (&crsh.Server{Values: files(dir), Stop: func() { os.Exit(0) }}).Serve(context.Background(), conn)
		}
	}
}

// files is a directory of values. Without it, the store is down.
type files string

func (f files) name(key []byte) string { return filepath.Join(string(f), hex.EncodeToString(key)) }

func (f files) Get(_ context.Context, key []byte, take func(uint64, io.Reader) error) error {
	if _, err := os.Stat(string(f)); err != nil {
		return fmt.Errorf("the store is down, with %s", password)
	}
	file, err := os.Open(f.name(key))
	if errors.Is(err, fs.ErrNotExist) {
		return crsh.ErrMissing
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return take(uint64(info.Size()), file)
}

func (f files) Put(_ context.Context, key []byte, value io.Reader, _ uint64, _ bool) (bool, error) {
	b, err := io.ReadAll(value)
	if err == nil {
		err = os.WriteFile(f.name(key)+".new", b, 0o600)
	}
	if err == nil {
		err = os.Rename(f.name(key)+".new", f.name(key))
	}
	return err == nil, err
}

func (f files) Remove(_ context.Context, key []byte) (bool, error) {
	err := os.Remove(f.name(key))
	return err == nil, nil
}

func (f files) Exists(_ context.Context, key []byte) (bool, error) {
	_, err := os.Stat(f.name(key))
	return err == nil, nil
}

// helperLine returns a manager's settings for the test's helper as the tier "team", with variables for it.
func helperLine(t *testing.T, timeout string, vars ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secrets")
	if err := os.WriteFile(file, []byte(strings.Join(vars, "\n")+"\nurl=dir://me:"+password+"@host/\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("cache: {helpers: [\"team = dir: helper=%s timeout=%s secrets=%s\"]}\n", os.Args[0], timeout, file)
}

func serveHelper(t *testing.T) sharedStore {
	dir := t.TempDir()
	entries := func() []string {
		names, err := filepath.Glob(filepath.Join(dir, strings.Repeat("?", 64)))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	count := func() int { return len(entries()) }
	spoil := func() {
		for _, name := range entries() {
			if err := os.Truncate(name, 100); err != nil {
				t.Fatal(err)
			}
		}
	}
	stop := func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	}
	return sharedStore{helperLine(t, "5s", helperDir+"="+dir), count, spoil, stop, entries}
}

// TestBadHelpers: a helper that crashes, hangs, answers nonsense or too much, is of a newer version or missing costs a build
// nothing but hits: all compiles have the right results, the log has a line, and no password.
func TestBadHelpers(t *testing.T) {
	part.Skip(t)
	s := start(t, "cache: {farm: false}\n")
	n := 0
	for role, want := range map[string]string{
		"crash":    "has ended (exit status 7): no such bucket for dir://me:[hidden]@host/",
		"deaf":     "does not serve yet",
		"hang":     "deadline exceeded",
		"giant":    "", // it says that it keeps everything, so it is asked again and again
		"nonsense": "it says version 72",
		"newer":    "it says version 2",
		"missing":  "cache.helpers: team: no program ccache-storage-none in PATH",
	} {
		timeout := "10s" // they fail sooner, once they have started
		if role == "deaf" || role == "hang" {
			timeout = "100ms"
		}
		settings := helperLine(t, timeout, helperRole+"="+role)
		if role == "missing" {
			settings = "cache: {helpers: [\"team = none://h\"]}\n"
		}
		s.set("farm.yaml", strings.Replace(settings, "{", "{farm: false, ", 1))
		before := len(s.log())
		s.again()
		for range 4 {
			n++
			s.write("a.c", fmt.Sprintf("int f(void) { return %d; }\n", n))
			s.compiles("remote", "gcc", "-O2", "-c", "a.c")
		}
		s.settle(n)
		s.compiles("cached:manager", "gcc", "-O2", "-c", "a.c")
		log := s.log()[before:]
		if role == "giant" && s.metric(s.Manager, `rdistcc_cm_cache_total{result="error",tier="team"}`) != 4 {
			t.Error("answers that are too long are no errors")
		} else if !strings.Contains(log, want) || role != "giant" && strings.Count(log, "left alone for a while") != 1 || strings.Contains(log, password) {
			t.Errorf("%s: want %q in one line of\n%s", role, want, log)
		}
	}
}

// TestOwnHelper: the cache of another manager is a tier by our own helper, in any place of the chain, and what is found there is
// kept in front of it unless that is switched off.
func TestOwnHelper(t *testing.T) {
	part.Skip(t)
	lender := start(t, "cache: {farm: false}\n")
	link := filepath.Join(lender.Dir, "ccache-storage-rdistcc")
	if err := os.Symlink(filepath.Join(lender.Bin, "rdistcc-cm"), link); err != nil {
		t.Fatal(err)
	}
	helper := fmt.Sprintf("helpers: [\"lent = rdistcc:%s/cm.sock helper=%s timeout=5s\"]", lender.Dir, link)
	one := start(t, "cache:\n  "+helper+"\n  tiers: [lent]\n")
	two := start(t, "cache:\n  "+helper+"\n  tiers: [manager, \"lent:read\"]\n  back-fill: false\n")
	three := start(t, "cache:\n  "+helper+"\n")
	two.work, three.work = one.work, one.work
	one.write("a.c", "int f(void) { return 1; }\n")
	cmd := []string{"gcc", "-O2", "-c", "a.c"}
	one.compiles("remote", cmd...)
	lender.settle(1) // it is there, as a value
	if len(one.kept()) != 0 {
		t.Error("a tier is used that the chain does not have")
	}
	one.compiles("cached:lent", cmd...)
	two.compiles("cached:lent", cmd...)
	two.compiles("cached:lent", cmd...)
	if len(two.kept()) != 0 {
		t.Error("it is kept in front though back-fill is off")
	}
	three.compiles("cached:lent", cmd...)
	three.settle(1)
	three.compiles("cached:manager", cmd...)
	one.write("a.c", "int f(void) { return 2; }\n")
	two.compiles("remote", cmd...)
	two.settle(1)
	three.compiles("remote", cmd...) // two has not given it away
	show, _ := three.command(false, nil, three.Wrapper, "cache", "stats")
	out, err := show.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\nmanager  3      1  ") || !strings.Contains(string(out), "\nlent     2      1  ") {
		t.Errorf("the statistics, %v:\n%s", err, out)
	}
	if log := three.log(); strings.Contains(log, "level=WARN") {
		t.Errorf("the log has warnings:\n%s", log)
	}
	pid := pidOfHelper(t, three)
	if err := three.Manager.Stop(); err != nil {
		t.Error(err)
	}
	three.wait("the helper to end with its manager", func() bool {
		_, err := os.Stat("/proc/" + pid)
		return err != nil
	})
}

// pidOfHelper returns the process of a manager's helper.
func pidOfHelper(t *testing.T, s *site) string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		b, _ := os.ReadFile(name) // it may have ended
		fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if len(fields) > 1 && fields[1] == fmt.Sprint(s.Manager.PID()) && strings.Contains(string(b), "(ccache-storage") {
			return strings.Split(name, "/")[2]
		}
	}
	t.Fatal("the manager has no helper")
	return ""
}
