package users

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUsersAreClaimed: servers of one machine never have a user in common while they run.
func TestUsersAreClaimed(t *testing.T) {
	const first, tried = 3_000_000_000, 20 // of no real daemon
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	a := claimAmong(first, 3, tried, log)
	b := claimAmong(first, 2, tried, log)
	c := claimAmong(first+1, 2, tried, log)
	if a.First != first || b.First != first+3 || c.First != first+5 {
		t.Errorf("ranges begin at %d, %d, %d", a.First-first, b.First-first, c.First-first)
	}
	b.Release()
	d := claimAmong(first, 3, tried, log) // two are free, three are not
	e := claimAmong(first, 2, tried, log)
	if d.First != first+7 || e.First != first+3 {
		t.Errorf("behind a release at %d, %d", d.First-first, e.First-first)
	}
	all := claimAmong(first+10, tried, tried, log)
	if said.Len() > 0 {
		t.Errorf("said without need: %s", &said)
	}
	none := claimAmong(first+10, 1, tried, log)
	if none.First != first+10 || len(none.sockets) != 0 || !strings.Contains(said.String(), "daemon.compile-users") {
		t.Errorf("with all taken: %+v, said %q", none, &said)
	}
	for _, u := range []*Range{&a, &c, &d, &e, &all} {
		u.Release()
	}
	if again := claimAmong(first, 20, tried, log); again.First != first {
		t.Errorf("behind all releases at %d", again.First-first)
	} else {
		again.Release()
	}
}

// TestUserNumbers: only numbers that a user namespace has can be taken.
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

// TestClosedTo: a directory that compiles of another user could not get to is found
// before they fail there.
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
