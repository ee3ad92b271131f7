package users

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// TestUsersAreClaimed: servers on one machine have no user in common while they run.
func TestUsersAreClaimed(t *testing.T) {
	const first, tried = 3_000_000_000, 20 // of no real daemon
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	a := claimAmong(first, first, 3, tried, log)
	b := claimAmong(first, first, 2, tried, log)
	c := claimAmong(first+1, first+1, 2, tried, log)
	if a.First != first || b.First != first+3 || c.First != first+5 {
		t.Errorf("ranges begin at %d, %d, %d", a.First-first, b.First-first, c.First-first)
	}
	b.Release()
	d := claimAmong(first, first, 3, tried, log) // two are free, three are not
	e := claimAmong(first, first, 2, tried, log)
	if d.First != first+7 || e.First != first+3 {
		t.Errorf("behind a release at %d, %d", d.First-first, e.First-first)
	}
	all := claimAmong(first+10, first+10, tried, tried, log)
	if said.Len() > 0 {
		t.Errorf("said without need: %s", &said)
	}
	none := claimAmong(first+10, first+10, 1, tried, log)
	if none.First != first+10 || len(none.sockets) != 0 || !strings.Contains(said.String(), "daemon.compile-users") {
		t.Errorf("with all taken: %+v, said %q", none, &said)
	}
	for _, u := range []*Range{&a, &c, &d, &e, &all} {
		u.Release()
	}
	if again := claimAmong(first, first, 20, tried, log); again.First != first {
		t.Errorf("behind all releases at %d", again.First-first)
	} else {
		again.Release()
	}
}

// TestUsersOfAnotherNamespace: daemons in two network namespaces do not begin at the same number, but each
// can still use all numbers.
func TestUsersOfAnotherNamespace(t *testing.T) {
	const tried = 100
	seen := make(map[int]uint64)
	for ns := uint64(firstNamespace); ns < firstNamespace+tried/4; ns++ {
		d := spread(ns, 4, tried)
		if other, ok := seen[d]; ok || d < 0 || d%4 != 0 || d+4 > tried {
			t.Errorf("namespace %d begins %d behind the first, and %d there too: %v", ns, d, other, ok)
		}
		seen[d] = ns
	}
	for _, q := range [][3]int{{firstNamespace - 7, 4, tried}, {0, 4, tried}, {firstNamespace, 4, tried}, {firstNamespace + 5, 101, tried}, {firstNamespace + 5, 0, tried}} {
		if d := spread(uint64(q[0]), q[1], q[2]); d != 0 {
			t.Errorf("spread%v = %d", q, d)
		}
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	const first = 3_100_000_000
	var ranges []Range
	for _, want := range []int{8, 11, 0, 3} {
		r := claimAmong(first, first+8, 3, 15, log)
		ranges = append(ranges, r)
		if r.First != first+want {
			t.Errorf("a range begins at %d, want %d", r.First-first, want)
		}
	}
	ranges[0].Release()
	ranges = append(ranges, claimAmong(first, first+8, 1, 15, log), claimAmong(first, first+9, 4, 15, log)) // 8; then 6, 7, 9, 10, 14 are left
	if a, b := ranges[4], ranges[5]; a.First != first+8 || len(b.sockets) != 0 {
		t.Errorf("ranges begin at %d and %d (%d claimed), want 8 and none", a.First-first, b.First-first, len(b.sockets))
	}
	ranges[4].Release()
	if r := claimAmong(first, first+9, 4, 15, log); r.First != first+6 { // across where others begin
		t.Errorf("a range begins at %d, want 6", r.First-first)
	} else {
		r.Release()
	}
	for i := range ranges {
		ranges[i].Release()
	}
}

// TestDaemonsInContainers: a daemon in a network namespace of its own, like those in containers, takes other
// users than a daemon outside, whose claims it cannot see.
func TestDaemonsInContainers(t *testing.T) {
	if os.Geteuid() != 0 {
		need.Skipf(t, need.Network, "needs root: a network namespace")
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	claim := func() (r Range) {
		r, err := Claim(Default, 4, log)
		if err != nil {
			need.Skipf(t, need.Network, "%v", err)
		}
		return r
	}
	seen := make(map[int]bool)
	for range 4 {
		done := make(chan Range)
		go func() {
			runtime.LockOSThread() // for good: the thread ends, and its namespace when the claims do
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				t.Error(err)
			}
			done <- claim()
		}()
		r := <-done
		defer r.Release()
		for n := r.First; n < r.First+4; n++ {
			if seen[n] {
				t.Errorf("number %d is in two namespaces", n)
			}
			seen[n] = true
		}
	}
}

// inDenied is set in the process of TestGroupsDenied that claims.
const inDenied = "RDISTCC_TEST_GROUPS_DENIED"

// TestGroupsDenied: root of a user namespace in which groups cannot be given up gets no users, because no compile could start as
// one.
func TestGroupsDenied(t *testing.T) {
	if os.Getenv(inDenied) != "" {
		_, err := Claim(Default, 4, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), "setgroups") {
			t.Errorf("claimed: %v", err)
		}
		cmd := exec.CommandContext(t.Context(), "/bin/true")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: Default, Gid: Default}}
		if cmd.Run() == nil {
			t.Error("users could have been used")
		}
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: a user namespace with many users")
	}
	all := []syscall.SysProcIDMap{{Size: 1 << 16}}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestGroupsDenied$", "-test.v")
	cmd.Env = append(os.Environ(), inDenied+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: all, GidMappings: all}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		need.Skipf(t, need.Sandbox, "user namespace: %v", err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "--- PASS") {
		t.Errorf("%v: %s", err, out.String())
	}
}

// TestUserNumbers: only numbers that the user namespace maps can be taken.
func TestUserNumbers(t *testing.T) {
	for _, q := range []struct {
		text        string
		first, want int
	}{
		{"         0          0 4294967295\n", 61184, 4294906111}, {"0 1000 1\n", 61184, 0}, {"0 100000 65536\n", 61184, 4352},
		{"0 100000 65536\n", 65535, 1}, {"0 100000 65536\n", 65536, 0}, {"0 0 10\n61184 5 4\n", 61184, 4}, {"", 1, 0},
	} {
		if got := mapped(q.text, q.first); got != q.want {
			t.Errorf("%d numbers from %d on in %q, want %d", got, q.first, q.text, q.want)
		}
	}
}

// TestClosedTo: a directory that compiles could not enter as another user is found before they fail there.
func TestClosedTo(t *testing.T) {
	dir := t.TempDir()
	inner := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{filepath.Dir(dir), dir, filepath.Join(dir, "a"), inner} {
		if err := os.Chmod(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	if got := ClosedTo(inner); got != "" {
		t.Errorf("%s is closed by %s", inner, got)
	}
	if err := os.Chmod(filepath.Join(dir, "a"), 0o750); err != nil {
		t.Fatal(err)
	}
	if got := ClosedTo(inner); got != filepath.Join(dir, "a") {
		t.Errorf("closed by %q", got)
	}
}
