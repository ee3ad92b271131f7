// Package farmtest gives tests farms of real processes. It builds the programs, once
// for a test binary, and stops and removes with a test what was started and made for it.
//
// What it makes lies below one directory of the process's, which is removed when the
// process has ended, however it ended. So no TestMain is needed for that.
package farmtest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/standin"
)

// Programs returns the directory of the programs of cmd. The first test that asks for
// them waits until they are built.
func Programs(t testing.TB) string {
	t.Helper()
	dir, err := sharedPrograms()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// StandIn returns the path of a gcc that only takes its time, in a directory of its own.
func StandIn(t testing.TB) string {
	t.Helper()
	file, err := standIn()
	if err != nil {
		need.Skipf(t, need.Tools, "%v", err)
	}
	return file
}

var standIn = sync.OnceValues(func() (file string, err error) {
	dir, err := mkdir("standin-")
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "gcc")
	return file, errors.Join(os.Chmod(dir, 0o755), standin.Build(context.Background(), "gcc", file))
})

// Build builds programs as farm.Build does, in a directory of their own.
func Build(ctx context.Context, flags []string, names ...string) (dir string, err error) {
	if dir, err = mkdir("programs-"); err != nil {
		return "", err
	}
	return dir, errors.Join(os.Chmod(dir, 0o755), farm.Build(ctx, dir, flags, names...)) // daemons may become another user
}

// Dir returns a directory that is removed when the test ends. Its name is short: that of
// t.TempDir has the test's in it, and the path of a Unix socket has no more than 108 bytes.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := mkdir("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// New returns a farm without processes. Its files are below root: state has the socket and
// the logs, and tmp is for what is temporary, also the daemons' work.
//
// When the test ends the farm is stopped. A daemon or manager that ends badly fails the
// test, and a test that has failed shows the ends of their logs.
func New(t testing.TB, root string) *farm.Farm {
	t.Helper()
	f, err := Lay(Programs(t), root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			showLogs(t, f.Dir)
		}
	})
	return f
}

// Lay returns a farm like New's that the caller stops: one that does not end with a Go
// test, but with a script, or with the last test.
func Lay(bin, root string) (*farm.Farm, error) {
	state, tmp := filepath.Join(root, "state"), filepath.Join(root, "tmp")
	for _, dir := range []string{state, tmp} { // a manager whose directory others see is one of several users
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	f := farm.New(bin, state)
	f.Vars = []string{"TMPDIR=" + tmp, "HOME=" + root, "LC_ALL=C"}
	return f, know(bin, state)
}

// What is shown of logs. More would bury what the test itself says.
const (
	someLogs  = 4     // of more processes than that only what is not well
	mostOfOne = 4000  // bytes, from the log's end
	mostOfAll = 16000 // bytes
)

func showLogs(t testing.TB, dir string) {
	t.Helper()
	logs, _ := filepath.Glob(filepath.Join(dir, "*.log")) // the pattern is right
	room := mostOfAll
	for _, name := range logs {
		text, err := os.ReadFile(name)
		if err != nil {
			text = []byte(err.Error())
		}
		if len(logs) > someLogs {
			text = troubles(text)
		}
		text = text[max(0, len(text)-min(mostOfOne, room)):]
		if len(text) > 0 {
			t.Logf("%s ends with:\n%s", filepath.Base(name), text)
			room -= len(text)
		}
	}
}

// troubles returns what a log says beside what goes well.
func troubles(log []byte) []byte {
	var b bytes.Buffer
	for line := range bytes.Lines(log) {
		if !bytes.Contains(line, []byte(" level=INFO ")) {
			b.Write(line)
		}
	}
	return b.Bytes()
}

// mkdir makes a directory below that of this process.
func mkdir(pattern string) (string, error) {
	base, err := processDir()
	if err != nil {
		return "", err
	}
	return os.MkdirTemp(base, pattern)
}

// processDir makes the directory that everything lies below.
var processDir = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "rdistcc-"); err != nil {
		return "", err
	}
	if _, err := removeAfter(dir); err != nil {
		return "", errors.Join(err, os.Remove(dir))
	}
	return dir, os.Chmod(dir, 0o755)
})

// removeAfter has another process remove dir once the descriptor is closed, which the end
// of this process does as well. The other one is no child of this one's: a test may look
// at all it has.
func removeAfter(dir string) (descriptor int, err error) {
	// No *os.File for the end that stays open: the garbage collector would close it.
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return -1, err
	}
	r := os.NewFile(uintptr(p[0]), "pipe")
	defer r.Close()
	cmd := exec.Command("sh", "-c", `{ read -r nothing; rm -rf "$0"; } <&3 &`, dir)
	cmd.Dir, cmd.ExtraFiles = "/", []*os.File{r}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // an interrupt at the terminal is not for it
	if err := cmd.Run(); err != nil {
		return -1, errors.Join(err, unix.Close(p[1]))
	}
	return p[1], nil
}
