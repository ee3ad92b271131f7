package helper

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/secret"
	"github.com/rdistcc/rdistcc/internal/test/kit/storetest"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/resultcache/crsh"
)

// patience is for what is bound to come: a test fails after that.
const patience = 30 * time.Second

// The helpers of these tests are the test's own program, which this variable tells what to do.
const roleVariable = "TEST_HELPER_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	os.Exit(m.Run())
}

// play is a helper, good or bad. It returns its exit status.
func play(role string) int {
	told, err := crsh.ReadStarted(os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if log := os.Getenv("TEST_HELPER_LOG"); log != "" {
		f, _ := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		fmt.Fprintf(f, "%d %s %v\n", os.Getpid(), told.URL, told.Attributes)
		f.Close()
	}
	switch role {
	case "fails":
		fmt.Fprintln(os.Stderr, "first line\ncannot reach "+told.URL)
		return 3
	case "deaf":
		time.Sleep(time.Hour)
	}
	l, err := net.Listen("unix", told.Endpoint)
	if err != nil {
		return 1
	}
	good := []byte{crsh.Version, 1, 0}
	size := func(n uint64) []byte { return binary.NativeEndian.AppendUint64(append(good, 0), n) }
	said := map[string][]byte{
		"mute": nil, "newer": {2, 1, 0}, "greets": good, "nonsense": append(good, "nonsense"...),
		"giant": size(1 << 40), "promise": append(size(MaxEntry), "and no more"...),
		"refuses": append(append(good, 2, byte(len("no token "+told.URL))), "no token "+told.URL...),
	}
	values := &memory{all: make(map[string][]byte)}
	for n := 0; ; n++ {
		conn, err := l.Accept()
		if err != nil {
			return 1
		}
		switch b, ok := said[role]; {
		case role == "dies" && n > 0: // the first connection is that of the start
			return 4
		case ok:
			_, _ = conn.Write(b) // and it keeps the connection
		default:
			go (&crsh.Server{Values: values, Stop: func() { os.Exit(0) }}).Serve(context.Background(), conn)
		}
	}
}

// memory keeps values.
type memory struct {
	mu  sync.Mutex
	all map[string][]byte
}

func (m *memory) Get(_ context.Context, key []byte, take func(uint64, io.Reader) error) error {
	m.mu.Lock()
	v, ok := m.all[string(key)]
	m.mu.Unlock()
	if !ok {
		return crsh.ErrMissing
	}
	return take(uint64(len(v)), bytes.NewReader(v))
}

func (m *memory) Put(_ context.Context, key []byte, value io.Reader, _ uint64, _ bool) (bool, error) {
	b, err := io.ReadAll(value)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[string(key)] = b
	return err == nil, err
}

func (m *memory) Remove(_ context.Context, key []byte) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, is := m.all[string(key)]
	delete(m.all, string(key))
	return is, nil
}

func (m *memory) Exists(context.Context, []byte) (bool, error) { return false, nil }

// helper is a store whose helper plays a role, and the file in which each of its starts writes a line.
func helper(t *testing.T, role string) (s *Store, log string) {
	t.Helper()
	log = filepath.Join(t.TempDir(), "log")
	url := secret.New("test://me:s3cret@example.org/")
	s, err := Open(Options{Program: os.Args[0], URL: url, Secrets: []secret.Secret{secret.New("s3cret")}, Attributes: []crsh.Attribute{{Name: "colour", Value: "blue"}},
		Environ: []string{roleVariable + "=" + role, "TEST_HELPER_LOG=" + log, "TMPDIR=" + t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.mu.Lock()
		p := s.process
		s.mu.Unlock()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if p == nil {
			return
		}
		if _, err := os.Stat(p.dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Close leaves %s: %v", p.dir, err)
		}
		if err := syscall.Kill(p.running.Pid, 0); err == nil {
			t.Error("the helper has outlived Close")
		}
	})
	return s, log
}

// starts returns what a helper's starts have written.
func starts(t *testing.T, log string) []string {
	t.Helper()
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

// TestSuite: a helper is a store like the others. It is started once, with what the settings say.
func TestSuite(t *testing.T) {
	s, log := helper(t, "good")
	storetest.Suite(t, s)
	all := starts(t, log)
	if len(all) != 1 || !strings.HasSuffix(all[0], "test://me:s3cret@example.org/ [{colour blue}]") {
		t.Errorf("its starts: %q", all)
	}
}

// TestBad: whatever a helper does, a look ends with an error in one line that names it, in the time that the caller
// gives, and without the secret.
func TestBad(t *testing.T) {
	for role, want := range map[string]string{
		"fails":    "has ended (exit status 3): cannot reach test://me:[hidden]@example.org/",
		"deaf":     "does not serve yet: context deadline exceeded",
		"mute":     "does not serve yet: context deadline exceeded",
		"newer":    "it says version 2",
		"greets":   "context deadline exceeded",
		"nonsense": "begins with 110",
		"giant":    "a result of 1099511627776 bytes: more than 67108864 are not taken",
		"promise":  "context deadline exceeded",
		"refuses":  "no token test://me:[hidden]@example.org/",
		"dies":     "has ended (exit status 4)",
	} {
		t.Run(role, func(t *testing.T) {
			s, _ := helper(t, role)
			key, entry := storetest.Entry(t, 1, 100)
			within := patience
			switch role {
			case "deaf", "mute", "greets", "promise":
				within = 300 * time.Millisecond
			}
			for n := range 2 {
				if role == "refuses" && n > 0 {
					break // it answers once
				}
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				var err error
				if role == "dies" { // it serves the connection that it was started with
					for err == nil {
						c, old, e := s.mustClient(t, ctx)
						if err = e; c != nil && old {
							_ = c.Close()
						}
					}
				} else {
					err = storetest.Fails(t, ctx, s, key)
				}
				if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "\n") {
					t.Errorf("Get: %v, want %q", err, want)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if err := s.Put(ctx, key, entry); err == nil && role != "nonsense" && role != "giant" && role != "promise" {
				t.Errorf("Put gives no error")
			}
		})
	}
}

// mustClient returns a connection to the helper.
func (s *Store) mustClient(t *testing.T, ctx context.Context) (*crsh.Client, bool, error) {
	t.Helper()
	s.mu.Lock()
	p, err := s.runningLocked(time.Now())
	s.mu.Unlock()
	if err != nil {
		return nil, false, s.hide(err)
	}
	c, old, err := p.client(ctx)
	return c, old, s.hide(err)
}

// TestKilled: a helper that was killed is started again, a second later.
func TestKilled(t *testing.T) {
	s, log := helper(t, "good")
	key, entry := storetest.Entry(t, 1, 100)
	if err := s.Put(t.Context(), key, entry); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	p := s.process
	s.mu.Unlock()
	if err := p.running.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.gone
	err := storetest.Fails(t, t.Context(), s, key)
	if err == nil || !strings.Contains(err.Error(), "has ended (signal: killed)") {
		t.Errorf("after its end: %v", err)
	}
	s.mu.Lock()
	s.again = time.Now() // the second is over
	s.mu.Unlock()
	storetest.Misses(t, s, key) // it has forgotten, and serves
	if n := len(starts(t, log)); n != 2 {
		t.Errorf("it was started %d times, want twice", n)
	}
}

// TestStubborn: a helper that neither listens to its end nor serves is ended by Close.
func TestStubborn(t *testing.T) {
	script := filepath.Join(t.TempDir(), "stubborn")
	if err := os.WriteFile(script, []byte("#!/bin/sh\ntrap '' TERM\nsleep 3600 &\necho $! > \"$CRSH_URL\"\nwait\nwait\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pid:")
	s, err := Open(Options{Program: script, URL: secret.New(file)})
	if err != nil {
		t.Fatal(err)
	}
	var child string
	eventually(t, func() bool {
		b, _ := os.ReadFile(file)
		child = strings.TrimSpace(string(b))
		return strings.HasSuffix(string(b), "\n")
	})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, func() bool { // where the first process does not collect what it is left, that stays as a zombie
		b, err := os.ReadFile("/proc/" + child + "/stat")
		return err != nil || strings.Contains(string(b), ") Z ")
	})
}

// eventually waits until is returns true.
func eventually(t *testing.T, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("this has not happened")
		}
	}
}

// TestFind: a helper is found by the scheme of its URL, and one that is missing is named.
func TestFind(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(os.Args[0], filepath.Join(dir, "ccache-storage-test")); err != nil {
		t.Fatal(err)
	}
	s, err := Open(Options{URL: secret.New("test:"), Path: "relative:" + dir, Environ: []string{roleVariable + "=good"}})
	if err != nil {
		t.Fatal(err)
	}
	storetest.Misses(t, s, resultcache.Key{})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for want, o := range map[string]Options{
		"no program ccache-storage-none in PATH": {URL: secret.New("none:"), Path: dir},
		"/none/helper: no such file":             {URL: secret.New("test:"), Program: "/none/helper"},
		"no URL":                                 {URL: secret.New("test")},
	} {
		if _, err := Open(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestRequestsQueue: more requests than connections wait for their turn.
func TestRequestsQueue(t *testing.T) {
	s, _ := helper(t, "good")
	var wg sync.WaitGroup
	for i := range 4 * maxConns {
		wg.Go(func() {
			key, entry := storetest.Entry(t, byte(i), 1000)
			if err := s.Put(t.Context(), key, entry); err != nil {
				t.Error(err)
			}
			storetest.Has(t, s, key, entry)
		})
	}
	wg.Wait()
}
