package ctl

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// text writes what it says.
func text(s string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
}

func quiet() {}

// TestWriteNamed: a file that the user names is what it was before: a link leads where it led, and only regular files are replaced.
func TestWriteNamed(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.Mkdir(in("sub"), 0o755))
	check(os.WriteFile(in("sub/private"), []byte("a longer old text"), 0o600))
	check(os.Symlink("sub/private", in("link")))
	check(os.Symlink("link", in("second")))
	check(os.Symlink("sub/new", in("dangling")))
	check(os.Symlink("dir/deeper", in("via")))
	check(os.Symlink("sub", in("dir")))
	for name, at := range map[string]string{"plain": "plain", "link": "sub/private", "second": "sub/private", "dangling": "sub/new", "via": "sub/deeper", "dir/x": "sub/x"} {
		n, err := writeNamed(t.Context(), in(name), func() { t.Error("it is written in place") }, text("of "+name))
		got, rerr := os.ReadFile(in(at))
		if err = errors.Join(err, rerr); err != nil || string(got) != "of "+name || n != int64(len(got)) {
			t.Errorf("%s: %d bytes, %q, %v", name, n, got, err)
		}
	}
	for name, mode := range map[string]fs.FileMode{"link": fs.ModeSymlink, "dangling": fs.ModeSymlink, "sub/private": 0o600, "plain": 0o644} {
		if st, err := os.Lstat(in(name)); err != nil || mode == fs.ModeSymlink && st.Mode().Type() != mode || mode != fs.ModeSymlink && st.Mode() != mode {
			t.Errorf("%s is %v, %v", name, st.Mode(), err)
		}
	}

	check(syscall.Mkfifo(in("fifo"), 0o600))
	check(os.Symlink("fifo", in("tofifo")))
	for _, name := range []string{"fifo", "tofifo"} {
		got := make(chan string, 1)
		go func() {
			b, err := os.ReadFile(in("fifo"))
			if err != nil {
				t.Error(err)
			}
			got <- string(b)
		}()
		direct := false
		n, err := writeNamed(t.Context(), in(name), func() { direct = true }, text("through a pipe"))
		if err != nil || n != 14 || !direct {
			t.Fatalf("%s: %d bytes, %v, in place: %v", name, n, err, direct) // the reader ends with the test
		}
		if s := <-got; s != "through a pipe" {
			t.Errorf("%s: %q", name, s)
		}
		if st, err := os.Lstat(in("fifo")); err != nil || st.Mode().Type() != fs.ModeNamedPipe {
			t.Errorf("the pipe is %v now, %v", st.Mode(), err)
		}
	}
	f, err := os.Create(in("open"))
	check(err)
	defer f.Close()
	descriptor := "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))
	if _, err := writeNamed(t.Context(), descriptor, quiet, text("in place")); err != nil {
		t.Error(err)
	}
	if b := make([]byte, 20); true {
		if n, _ := f.ReadAt(b, 0); string(b[:n]) != "in place" {
			t.Errorf("the open file has %q", b[:n])
		}
	}

	check(os.Symlink("round", in("round")))
	for _, name := range []string{"none/x", "sub", "round", "plain/x"} {
		if _, err := writeNamed(t.Context(), in(name), quiet, text("x")); err == nil || !strings.Contains(err.Error(), in(name)+":") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := writeNamed(t.Context(), in("plain"), quiet, func(io.Writer) error { return io.ErrUnexpectedEOF }); err != io.ErrUnexpectedEOF {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = writeNamed(ctx, in("plain"), quiet, func(w io.Writer) error {
		err := text("half")(w)
		cancel()
		return errors.Join(err, text("more")(w))
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got, err := os.ReadFile(in("plain")); err != nil || string(got) != "of plain" {
		t.Errorf("%q, %v", got, err)
	}
	left, err := filepath.Glob(in("*/.*"))
	more, merr := filepath.Glob(in(".*"))
	if err = errors.Join(err, merr); err != nil || len(left)+len(more) > 0 {
		t.Errorf("left: %q %q, %v", left, more, err)
	}
}

// TestPackIsInterrupted: Ctrl-C ends pack while it writes an archive, and leaves nothing.
func TestPackIsInterrupted(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("gcc is not installed")
	}
	guard := make(chan os.Signal, 1) // a signal that comes too late does not end the test
	signal.Notify(guard, syscall.SIGINT)
	defer signal.Stop(guard)
	s := newShell(t)
	s.env["PATH"] = filepath.Dir(gcc)
	file := filepath.Join(s.dir, "gcc.tar.zst")
	for range 5 {
		type end struct {
			code   int
			errOut string
		}
		ended := make(chan end, 1)
		go func() {
			code, _, errOut := s.run("toolchain", "pack", "gcc", "-o", file)
			ended <- end{code, errOut}
		}()
		var e *end
		for e == nil {
			list, err := filepath.Glob(filepath.Join(s.dir, ".gcc*"))
			if err != nil {
				t.Fatal(err)
			}
			if len(list) > 0 {
				if err := syscall.Kill(syscall.Getpid(), syscall.SIGINT); err != nil {
					t.Fatal(err)
				}
				x := <-ended
				e = &x
				break
			}
			select {
			case x := <-ended:
				e = &x
			case <-time.After(time.Millisecond):
			}
		}
		left, err := filepath.Glob(filepath.Join(s.dir, ".gcc*"))
		if err != nil || len(left) > 0 {
			t.Errorf("left: %q, %v", left, err)
		}
		if e.code == 0 { // it was faster
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if e.code != 100 || e.errOut != "rdistcc: interrupted\n" {
			t.Errorf("exit %d, %q", e.code, e.errOut)
		}
		if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("there is an archive, %v", err)
		}
		return
	}
	t.Fatal("it was never interrupted")
}
