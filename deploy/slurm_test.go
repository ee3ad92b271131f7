package deploy

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// Stand-ins for Slurm: two nodes, which are two addresses of this machine. srun starts a daemon on each and passes signals on. A node
// that fails has no daemon.
const (
	srun = `#!/bin/bash
sed -i "s,accept: all,&\\, dirs: [$(dirname "$CC")]," "$RDISTCC_CONFIG" # where the nodes have the stand-in for gcc
while [[ $1 == --* ]]; do [[ $1 != --output=* ]] || output=${1#--output=}; shift; done
for node in 127.0.0.2 127.0.0.3; do
	[ ! -e "$SLURM_TEST/fails-$node" ] || { echo "out of order" >"${output//%N/$node}"; continue; }
	"${@//0.0.0.0/$node}" >"${output//%N/$node}" 2>&1 &
	pids+=" $!"
done
trap 'kill -TERM $pids; wait; echo drained >"$SLURM_TEST/drained"; exit 0' TERM
wait
`
	scontrol = `#!/bin/sh
[ "$1 $2 $3" = "show hostnames n[2-3]" ] && printf '127.0.0.2\n127.0.0.3\n'
`
)

// TestSlurm: the batch script lends the nodes of a job to a build, whose status it has, and leaves nothing behind. Without a node the
// build goes on, and the script says what is missing.
func TestSlurm(t *testing.T) {
	part.Skip(t)
	bin := farmtest.Programs(t)
	cc := farmtest.StandIn(t)
	script, err := filepath.Abs("slurm/rdistcc.sbatch")
	if err != nil {
		t.Fatal(err)
	}
	tools := t.TempDir()
	for name, text := range map[string]string{"srun": srun, "scontrol": scontrol} {
		if err := os.WriteFile(filepath.Join(tools, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run := func(t *testing.T, fails string, words ...string) (dir, out string, status int) {
		t.Helper()
		dir = farmtest.Dir(t)
		addrs, err := farm.FreePorts(1)
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := strings.Cut(addrs[0], ":")
		for i := range 20 {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("x%d.c", i)), fmt.Appendf(nil, "/* stand-in: sleep 300 */\nint unit_%d;\n", i), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if fails != "" {
			if err := os.WriteFile(filepath.Join(dir, "fails-"+fails), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for _, d := range []string{"shared", "local"} {
			if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), script, words...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+tools+":"+bin+":"+os.Getenv("PATH"), "SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n[2-3]", "SLURM_TEST="+dir,
			"RDISTCC_PORT="+port, "RDISTCC_SHARED="+filepath.Join(dir, "shared"), "TMPDIR="+filepath.Join(dir, "local"), "RDISTCC_MODE=remote",
			"RDISTCC_REPORT="+filepath.Join(dir, "report"), "XDG_STATE_HOME="+filepath.Join(dir, "state"), "XDG_CACHE_HOME="+filepath.Join(dir, "cache"), "CC="+cc)
		b, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return dir, string(b), cmd.ProcessState.ExitCode()
	}
	left := func(t *testing.T, dir string) {
		t.Helper()
		for _, d := range []string{"shared", "local"} {
			list, err := os.ReadDir(filepath.Join(dir, d))
			if err != nil || len(list) > 0 {
				t.Errorf("%s has %v, %v", d, list, err)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, "drained")); err != nil {
			t.Error("the daemons were not told to end")
		}
	}
	// The first compile starts the manager, and the others wait until it has all hosts: who is connected first is not what is tested. They
	// are more than one host would be lent credits for, so the other one gets some too.
	build := func(nodes int) string {
		return fmt.Sprintf(`rdistcc "$CC" -c x0.c -o x0.o
until [ "$(rdistcc hosts | awk '$2 == "up"' | wc -l)" = %d ]; do sleep 0.1; done
for i in $(seq 1 19); do rdistcc "$CC" -c x$i.c -o x$i.o & done; wait; ls x*.o | wc -l; exit 3`, nodes)
	}

	t.Run("two nodes", func(t *testing.T) {
		dir, out, status := run(t, "", "sh", "-c", build(2))
		report, _ := os.ReadFile(filepath.Join(dir, "report")) // what is not there fails below
		if status != 3 || !strings.Contains(out, "20\n") || strings.Count(string(report), "remote:127.0.0.") != 20 ||
			!strings.Contains(string(report), "remote:127.0.0.2:") || !strings.Contains(string(report), "remote:127.0.0.3:") {
			t.Errorf("status %d, want 3; %s%s", status, out, report)
		}
		left(t, dir)
	})
	t.Run("a node fails", func(t *testing.T) {
		dir, out, status := run(t, "127.0.0.3", "sh", "-c", build(1))
		report, _ := os.ReadFile(filepath.Join(dir, "report")) // what is not there fails below
		if status != 3 || strings.Count(string(report), "remote:127.0.0.2:") != 20 || !strings.Contains(out, "rdistcc.sbatch: no daemon on 127.0.0.3: out of order\n") {
			t.Errorf("status %d, want 3; %s%s", status, out, report)
		}
		left(t, dir)
	})
	t.Run("nothing to build", func(t *testing.T) {
		_, out, status := run(t, "")
		if status != 101 || out != "rdistcc.sbatch: name the command of the build: sbatch --nodes=4 rdistcc.sbatch make -j200\n" {
			t.Errorf("status %d, %q", status, out)
		}
	})
	t.Run("shellcheck", func(t *testing.T) {
		if _, err := exec.LookPath("shellcheck"); err != nil {
			need.Skipf(t, need.Tools, "shellcheck is not installed (Debian package shellcheck)")
		}
		if out, err := exec.CommandContext(t.Context(), "shellcheck", script).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
