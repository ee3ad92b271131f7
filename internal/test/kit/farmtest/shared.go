package farmtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
)

// sharedVar is the variable that names a directory which the test binaries of one run share, as `make test` sets it:
// the programs are built, and the compilers of this machine identified, once for all of them.
const sharedVar = "RDISTCC_TEST_SHARED"

// shared makes the directory that the variable names, or one of this process's.
//
// The environment is searched by hand: what os.Getenv returns is a part of what the go command caches a test's result
// by, and this directory has another name each time.
var shared = sync.OnceValues(func() (dir string, err error) {
	for _, v := range os.Environ() {
		if dir, ok := strings.CutPrefix(v, sharedVar+"="); ok && dir != "" {
			return dir, nil
		}
	}
	if dir, err = mkdir("shared-"); err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
})

// sharedPrograms builds the programs, unless another process has done so.
var sharedPrograms = sync.OnceValues(func() (bin string, err error) {
	dir, err := shared()
	if err != nil {
		return "", err
	}
	bin = filepath.Join(dir, "programs")
	return bin, onceFor(bin, func(part string) error {
		if err := os.Mkdir(part, 0o755); err != nil {
			return err
		}
		return errors.Join(os.Chmod(part, 0o755), farm.Build(context.Background(), part, nil)) // daemons may become another user
	})
})

// identifyTime bounds how long all compilers of a busy machine may take.
const identifyTime = 5 * time.Minute

// sharedCompilers has a daemon identify the compilers, unless another process has done so, and returns the directory
// with the file in which that daemon has kept what it found. The file holds for the shared programs.
//
// Each daemon of a test would otherwise start a few hundred compilers before it knows them all, and many tests have
// daemons of their own.
var sharedCompilers = sync.OnceValues(func() (dir string, err error) {
	bin, err := sharedPrograms()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(filepath.Dir(bin), "compilers")
	return dir, onceFor(dir, func(part string) (err error) {
		if err := os.Mkdir(part, 0o700); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), identifyTime)
		defer cancel()
		f := farm.New(bin, part)
		f.Vars = []string{"TMPDIR=" + part, "HOME=" + part, "LC_ALL=C"}
		defer func() { err = errors.Join(err, f.Stop()) }()
		d, err := f.StartDaemonUnready(ctx, "compilers", "--jobs", "1")
		if err != nil {
			return err
		}
		for {
			switch left, err := d.Metric(ctx, "rdistccd_identifying"); {
			case err != nil:
				return fmt.Errorf("identify the compilers for all tests: %w", err)
			case left == 0:
				return nil
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
})

// onceFor calls do to make the directory path under another name, unless path exists. Of several processes, one makes
// it while the others wait.
//
// It looks at path by system calls alone, for the reason that shared has.
func onceFor(path string, do func(part string) error) error {
	lock, err := unix.Open(path+".lock", unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("lock for %s: %w", path, err)
	}
	defer unix.Close(lock) //nolint:errcheck // nothing was written
	for {
		if err = unix.Flock(lock, unix.LOCK_EX); err == nil {
			break
		} else if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("lock for %s: %w", path, err)
		}
	}
	if unix.Access(path, unix.F_OK) == nil {
		return nil
	}
	part := path + ".part"
	if err := errors.Join(os.RemoveAll(part), do(part)); err != nil {
		return err
	}
	return os.Rename(part, path)
}
