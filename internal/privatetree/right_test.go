package privatetree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// coveredVar names the directory of TestLockedMounts.
const coveredVar = "RDISTCC_TREE_TEST_COVERED"

// limited sets the limit of namespaces that its arguments name to none, in a user
// namespace, and tries to make a tree.
func limited() {
	if err := os.WriteFile("/proc/sys/user/"+os.Args[1], []byte("0"), 0); err != nil {
		fmt.Println("limit:", err)
		os.Exit(0)
	}
	if os.Args[1] == "max_user_namespaces" { // needed only by users that may not mount
		runtime.LockOSThread()
		var none [2]unix.CapUserData
		if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
			panic(err)
		}
	}
	_, err := New(context.Background(), Spec{})
	fmt.Println(errors.Is(err, ErrNoRight), err)
	os.Exit(0)
}

func inUserNamespace(cmd *exec.Cmd, more uintptr) {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | more,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}
}

func TestNoRight(t *testing.T) {
	newTree(t, Spec{}) // or skip
	for _, name := range []string{"max_user_namespaces", "max_mnt_namespaces", "max_pid_namespaces", "max_net_namespaces"} {
		cmd := again(limitedArg0, name)
		inUserNamespace(cmd, 0)
		out, err := cmd.CombinedOutput()
		must(t, err)
		if bytes.HasPrefix(out, []byte("limit:")) {
			t.Skipf("needs to set a limit: %s", out)
		}
		text := string(out)
		if !strings.HasPrefix(text, "true ") || !strings.Contains(text, "start a process in new namespaces") ||
			!strings.Contains(text, "sysctl user."+name+"=") || strings.Count(text, "\n") != 1 {
			t.Errorf("%s: got %s", name, text)
		}
	}
	if os.Geteuid() != 0 {
		_, err := New(t.Context(), Spec{UID: 1})
		if !errors.Is(err, ErrNoRight) {
			t.Errorf("another user without root: got %v", err)
		}
	}
}

// covered covers a part of /proc, as containers do, takes a device away, mounts more on the directory of its
// argument, and runs tests that have no right to undo it.
func covered() {
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if err == nil {
		err = unix.Mount("none", "/proc/acpi", "tmpfs", 0, "")
	}
	if errors.Is(err, unix.ENOENT) {
		err = unix.Mount("none", "/proc/fs", "tmpfs", 0, "")
	}
	if err == nil {
		err = unix.Mount("none", os.Args[1], "tmpfs", unix.MS_NOEXEC|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, "")
	}
	dev := os.Args[1] + "/dev"
	if err == nil {
		err = os.Mkdir(dev, 0o755)
	}
	for _, name := range []string{"null", "zero", "urandom"} { // not full
		if err == nil {
			err = os.WriteFile(dev+"/"+name, nil, 0o600)
		}
		if err == nil {
			err = unix.Mount("/dev/"+name, dev+"/"+name, "", unix.MS_BIND, "")
		}
	}
	if err == nil {
		err = unix.Mount(dev, "/dev", "", unix.MS_BIND|unix.MS_REC, "")
	}
	sub := os.Args[1] + "/whole/sub"
	if err == nil {
		err = errors.Join(os.MkdirAll(sub, 0o755), os.WriteFile(os.Args[1]+"/file", []byte("file"), 0o600), os.WriteFile(sub+"/below", nil, 0o600))
	}
	if err == nil {
		err = unix.Mount("none", sub, "tmpfs", 0, "")
	}
	if err == nil {
		err = os.WriteFile(sub+"/on", []byte("on"), 0o600)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(0)
	}
	cmd := again("tree.test", "-test.v", "-test.short", "-test.run=TestCompilers|TestLacks|TestLockedMounts|TestKill$/^clang$|TestProbe|TestOrigin")
	cmd.Env = append(cmd.Environ(), coveredVar+"="+os.Args[1])
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	inUserNamespace(cmd, unix.CLONE_NEWNS) // locks the mounts
	if err := cmd.Run(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

func TestLacks(t *testing.T) {
	tr := newTree(t, Spec{})
	lacks := tr.Lacks()
	if os.Getenv(coveredVar) == "" {
		if len(lacks) != 0 {
			t.Logf("this host has not: %q", lacks)
		}
		return
	}
	if len(lacks) != 2 || lacks[0] != "/dev/full: no such file or directory" || !strings.HasPrefix(lacks[1], noProc) || tr.HasProc() {
		t.Errorf("got %q", lacks)
	}
}

// TestLockedMounts shows what is on mounts that belong to another user namespace: their flags must stay,
// and what they cover must stay covered.
func TestLockedMounts(t *testing.T) {
	dir := os.Getenv(coveredVar)
	if dir == "" {
		t.Skip("part of TestCoveredMounts")
	}
	tr := newTree(t, Spec{Files: append(programs(t, "/bin/sh", "cat"), dir+"/file"), Dirs: []string{dir + "/whole"}})
	o, out := runIn(t, tr, dir, "/bin/sh", "-c", "cat file whole/sub/*; echo >file || echo >whole/new || echo >whole/sub/new || echo >whole/sub/on || echo; ./file")
	if o.Exit != 126 || !strings.HasPrefix(out, "fileon") || strings.Count(out, "Read-only file system") != 4 {
		t.Errorf("got %+v, %q", o, out)
	}
}

func TestCoveredMounts(t *testing.T) {
	part.Skip(t)
	newTree(t, Spec{}) // or skip
	cmd := again(coveredArg0, t.TempDir())
	inUserNamespace(cmd, unix.CLONE_NEWNS)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !bytes.Contains(out, []byte("--- PASS: TestLockedMounts")) {
		t.Skipf("needs to cover a part of /proc: %s", out)
	}
}

// TestPermit: what gives a contained process the right to make namespaces is said in terms of what contains it.
func TestPermit(t *testing.T) {
	for _, test := range []struct{ env, file, want string }{
		{"KUBERNETES_SERVICE_HOST", "/.dockerenv", "the chart's value confinement"},
		{"", "/.dockerenv", "docker run --security-opt seccomp="},
		{"", "/run/.containerenv", "podman run --security-opt seccomp="},
		{"", "", "CAP_SYS_ADMIN"},
	} {
		env := func(name string) string {
			if name == test.env {
				return "x"
			}
			return ""
		}
		if got := permit(env, func(file string) bool { return file == test.file }, "mount"); !strings.Contains(got, test.want) {
			t.Errorf("%q, %q: %q, want %q", test.env, test.file, got, test.want)
		}
	}
}
