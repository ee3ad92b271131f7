package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// TestIbverbsIsConfined: a daemon with the provider ibverbs, which is not static, proves that compiles
// are confined as another one does: its probe finds the daemon's libraries.
func TestIbverbsIsConfined(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the daemon with cgo")
	}
	part.Skip(t)
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc")
	}
	headers := exec.Command(gcc, "-E", "-x", "c", "-")
	headers.Stdin = strings.NewReader("#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n")
	if headers.Run() != nil {
		t.Skip("needs the headers of libibverbs and librdmacm (on Debian: make deps)")
	}
	daemon := filepath.Join(t.TempDir(), "rdistccd")
	build := exec.Command("go", "build", "-tags", "ibverbs", "-o", daemon, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dir, err := os.MkdirTemp("/tmp", "rdistccd-test-") // where compiles' own users can get to
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(gcc, filepath.Join(dir, "gcc")); err != nil {
		t.Fatal(err)
	}
	for _, tree := range []string{"auto", "off"} {
		conf := filepath.Join(dir, tree+".yaml")
		if err := os.WriteFile(conf, []byte("toolchains: {dirs: ["+dir+"]}\nsandbox: strict\ndaemon: {tree: "+tree+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(daemon, "--config", conf, "--listen", "127.0.0.1:0", "--http", "", "--jobs", "1")
		work := filepath.Join(dir, tree)
		if err := os.Mkdir(work, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + work}
		r := start(t, cmd)
		r.find(`msg="compiles are confined" level=(full|confined) `)
		r.find(`msg=listening`)
		r.signal(syscall.SIGTERM)
		r.stops(0)
	}
}
