package workdir

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDirGivesOwnFilesOnly: what a compiler has left under an output's name is read only if it is a regular
// file of its own.
func TestDirGivesOwnFilesOnly(t *testing.T) {
	base := t.TempDir()
	other := filepath.Join(base, "other")
	if err := os.WriteFile(other, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := NewDir(filepath.Join(base, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Write("own", []byte("object")); err != nil {
		t.Fatal(err)
	}
	if err := d.Write("own", nil); !errors.Is(err, os.ErrExist) {
		t.Errorf("written over: %v", err)
	}
	if err := errors.Join(os.Symlink(other, filepath.Join(d.Path, "link")), os.Link(other, filepath.Join(d.Path, "second")),
		unix.Mkfifo(filepath.Join(d.Path, "pipe"), 0o600), os.MkdirAll(filepath.Join(d.Path, "dir", "below"), 0o700)); err != nil {
		t.Fatal(err)
	}
	fd, st, err := d.Open("own")
	if err != nil || st.Size != 6 {
		t.Errorf("the own file: %v", err)
	}
	unix.Close(fd)
	for _, name := range []string{"link", "second", "pipe", "dir", "none"} {
		if fd, _, err := d.Open(name); err == nil {
			unix.Close(fd)
			t.Errorf("%s is read", name)
		}
	}
	if err := d.Empty(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(d.Path); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if b, err := os.ReadFile(other); err != nil || string(b) != "secret" {
		t.Errorf("what a link led to: %q, %v", b, err)
	}
}

// TestEmptyUnderSignals: the kernel ends a read of a directory early when a signal waits for the thread, even with "." alone,
// which does not mean that there is nothing else. A profile of the daemon's brings 100 signals a second.
func TestEmptyUnderSignals(t *testing.T) {
	d, err := NewDir(filepath.Join(t.TempDir(), "d"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	tid, done := make(chan int), make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		tid <- unix.Gettid()
		for i := range 20000 {
			if err := errors.Join(d.Write("a", nil), d.Empty()); err != nil {
				t.Errorf("round %d: %v", i, err)
				return
			}
		}
	}()
	for to := <-tid; ; {
		select {
		case <-done:
			return
		default:
			_ = unix.Tgkill(os.Getpid(), to, unix.SIGURG) // it may just have ended
		}
	}
}
