package main

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/config"
)

// TestKeysAreKept: with a key a manager's process is closed to others of its user and
// leaves no core; without one it is an ordinary process, and what it starts always is.
func TestKeysAreKept(t *testing.T) {
	dumpable := func() int {
		n, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := dumpable()
	defer func() {
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, uintptr(before), 0, 0, 0); err != nil {
			t.Error(err)
		}
	}()
	c := new(config.Config)
	if err := closeUp(c); err != nil || dumpable() != before {
		t.Errorf("without a key: %v, %d", err, dumpable())
	}
	for _, set := range []func(){func() { c.Auth.PSKFile = "key" }, func() { c.Auth.PSKFile = ""; c.Auth.TLS.Key = "key.pem" }} {
		set()
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
			t.Fatal(err)
		}
		if err := closeUp(c); err != nil || dumpable() != 0 {
			t.Errorf("with a key: %v, %d", err, dumpable())
		}
		// It can still reopen its own descriptors, as it does for slots.
		f, err := os.Open("/proc/self/fd/0")
		if err != nil {
			t.Error(err)
		} else {
			f.Close()
		}
		if err := exec.Command("sh", "-c", "cat /proc/$$/environ >/dev/null").Run(); err != nil {
			t.Errorf("what it starts cannot read itself: %v", err)
		}
	}
}
