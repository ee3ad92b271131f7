package stamp

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func of(t *testing.T, name string) Stamp {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		t.Fatal(err)
	}
	return Of(&st)
}

// TestChangesShow: whatever happens to a file gives it another stamp, once the one before is settled.
func TestChangesShow(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "x")
	write := func(name string) error { return os.WriteFile(name, []byte("text"), 0o644) }
	if err := write(name); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func() error{
		"written with what it has": func() error { return write(name) },
		"another mode":             func() error { return os.Chmod(name, 0o640) },
		"time set back":            func() error { return os.Chtimes(name, time.Unix(1, 0), time.Unix(1, 0)) },
		"another file in its place": func() error {
			if err := write(name + ".new"); err != nil {
				return err
			}
			return os.Rename(name+".new", name)
		},
	} {
		before := of(t, name)
		for !before.Settled(time.Now().UnixNano()) {
			time.Sleep(time.Millisecond)
		}
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if of(t, name) == before {
			t.Errorf("%s: the stamp is the same", what)
		}
	}
}

// TestSettled: a stamp is not settled while a change could go unnoticed.
func TestSettled(t *testing.T) {
	s := Stamp{CTime: 1e18}
	for now, want := range map[int64]bool{1e18 - 1e12: false, 1e18: false, 1e18 + Tick: false, 1e18 + Tick + 1: true} {
		if s.Settled(now) != want {
			t.Errorf("at %d: %v", now-s.CTime, !want)
		}
	}
	var fs unix.Statfs_t
	if err := unix.Statfs("/proc", &fs); err != nil {
		t.Fatal(err)
	}
	if Faithful(&fs) {
		t.Error("procfs notes no changes")
	}
}
