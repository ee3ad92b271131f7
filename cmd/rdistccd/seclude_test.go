package main

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// TestMemoryIsPrivate: what a daemon has in memory, environment and descriptors is in no file that its own
// user may open: the kernel gives those in /proc to root.
func TestMemoryIsPrivate(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	cmd := command(t)
	exe := filepath.Join(t.TempDir(), "rdistccd")
	text, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(exe, text, 0o755); err != nil {
		t.Fatal(err)
	}
	base := t.TempDir()
	config := configFile(t, "")
	for _, err := range []error{os.Chmod(config, 0o644), os.Chmod(exe, 0o755), os.Chmod(filepath.Dir(config), 0o755), os.Chmod(filepath.Dir(exe), 0o755), os.Chmod(filepath.Dir(filepath.Dir(exe)), 0o755), os.Chown(base, 65534, 65534)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd.Path = exe
	cmd.Args = append(cmd.Args, "--http", "", "--listen", "127.0.0.1:0")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + base, "RDISTCC_CONFIG=" + config}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	d := start(t, cmd)
	d.find("msg=listening")
	for _, name := range []string{"mem", "environ", "maps", "fd"} {
		// While it starts the process of a tree it can be looked into.
		for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
			st, err := os.Stat("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/" + name)
			if err != nil {
				t.Fatal(err)
			}
			uid := st.Sys().(*syscall.Stat_t).Uid
			if uid == 0 {
				break
			}
			if time.Since(began) > patience {
				t.Errorf("%s belongs to user %d", name, uid)
				break
			}
		}
	}
}
