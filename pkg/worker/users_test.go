package worker

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestUsersAreClaimed: servers of one machine never have a user in common while they run.
func TestUsersAreClaimed(t *testing.T) {
	const first, tried = 3_000_000_000, 20 // of no real daemon
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	a := claimUsers(first, 3, tried, log)
	b := claimUsers(first, 2, tried, log)
	c := claimUsers(first+1, 2, tried, log)
	if a.first != first || b.first != first+3 || c.first != first+5 {
		t.Errorf("ranges begin at %d, %d, %d", a.first-first, b.first-first, c.first-first)
	}
	b.release()
	d := claimUsers(first, 3, tried, log) // two are free, three are not
	e := claimUsers(first, 2, tried, log)
	if d.first != first+7 || e.first != first+3 {
		t.Errorf("behind a release at %d, %d", d.first-first, e.first-first)
	}
	all := claimUsers(first+10, tried, tried, log)
	if said.Len() > 0 {
		t.Errorf("said without need: %s", &said)
	}
	none := claimUsers(first+10, 1, tried, log)
	if none.first != first+10 || len(none.sockets) != 0 || !strings.Contains(said.String(), "daemon.compile-users") {
		t.Errorf("with all taken: %+v, said %q", none, &said)
	}
	for _, u := range []*users{&a, &c, &d, &e, &all} {
		u.release()
	}
	if again := claimUsers(first, 20, tried, log); again.first != first {
		t.Errorf("behind all releases at %d", again.first-first)
	} else {
		again.release()
	}
}
