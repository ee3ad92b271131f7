package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestOrdinaryUser: wrapper and manager work for a user without any capability, as which
// the manager runs too.
func TestOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: every other test here shows it")
	}
	t.Parallel()
	s := newSite(t)
	d := s.daemon("d1", "", "--jobs", "2")
	const nobody = 65534
	dir, err := os.MkdirTemp("", "rdistcc-user-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	home := filepath.Join(dir, "home")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"rdistcc", "rdistcc-cm"} {
		b, err := os.ReadFile(filepath.Join(filepath.Dir(s.Wrapper), name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "hello.c"), []byte("int hello;\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(home, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		cmd := exec.Command(filepath.Join(dir, "rdistcc"), args...)
		cmd.Dir = home
		cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "RDISTCC_DIR=" + home + "/state", "TMPDIR=" + home, "RDISTCC_CACHE=off",
			"RDISTCC_HOSTS=" + d.Addr, "RDISTCC_REPORT=" + home + "/report"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	defer run("stop")
	if out := run("gcc", "-c", "hello.c"); out != "" {
		t.Errorf("it said %q", out)
	}
	if b, err := os.ReadFile(filepath.Join(home, "report")); err != nil || string(b) != "remote:"+d.Addr+"\n" {
		t.Errorf("%q, %v, want it done by the host", b, err)
	}
	if st, err := os.Stat(filepath.Join(home, "state")); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the socket's directory: %v, %v", st, err)
	}
	found := false
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range procs {
		line, _ := os.ReadFile(name)
		if !strings.Contains(string(line), "rdistcc-cm") || !strings.Contains(string(line), home) {
			continue
		}
		found = true
		status, err := os.ReadFile(filepath.Join(filepath.Dir(name), "status"))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"Uid:\t65534\t65534\t65534\t65534\n", "CapEff:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", "CapAmb:\t0000000000000000\n"} {
			if !strings.Contains(string(status), want) {
				t.Errorf("the manager's status lacks %q", want)
			}
		}
	}
	if !found {
		t.Error("no manager runs")
	}
}
