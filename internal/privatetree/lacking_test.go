package privatetree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/test/kit/sandboxtest"
)

const lackingArg0 = "tree-test-lacking"

// masked, as an argument of lacking, covers a part of /proc and makes control groups read-only, as containers do; the second has it
// done by somebody else, and no capabilities left.
const masked, maskedUser = "an uncovered /proc", "an uncovered /proc, capabilities"

// mask does what masked or maskedUser says, in a user and a mount namespace of this process's own.
func mask() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	err := unix.Mount("none", "/proc/acpi", "tmpfs", 0, "")
	if errors.Is(err, unix.ENOENT) {
		err = unix.Mount("none", "/proc/fs", "tmpfs", 0, "")
	}
	if err == nil && unix.Mount("/sys/fs/cgroup", "/sys/fs/cgroup", "", unix.MS_BIND|unix.MS_REC, "") == nil {
		err = setReadOnly("/sys/fs/cgroup", 0)
	}
	return err
}

// lacking makes both kinds of trees, where what its further arguments name is missing, and
// says what came of it. The first argument is a directory.
func lacking() {
	if len(os.Args) == 3 && (os.Args[2] == masked || os.Args[2] == maskedUser) {
		if err := mask(); err != nil {
			fmt.Println("mask:", err)
			os.Exit(0)
		}
		if os.Args[2] == maskedUser {
			cmd := again(lackingArg0, os.Args[1])
			inUserNamespace(cmd, unix.CLONE_NEWNS) // locks the mounts
			cmd.SysProcAttr.UidMappings[0].ContainerID, cmd.SysProcAttr.GidMappings[0].ContainerID = 65534, 65534
			out, err := cmd.CombinedOutput()
			fmt.Printf("%s", out)
			if err != nil {
				panic(err)
			}
			os.Exit(0)
		}
		os.Args = os.Args[:2]
	}
	if err := sandboxtest.Without(os.Args[2:]...); err != nil {
		panic(err)
	}
	sh := []string{"/bin/sh"}
	for kind, s := range map[string]Spec{"tree": {Files: sh, Dirs: []string{"/lib/x86_64-linux-gnu", "/lib64"}, Confine: true}, "bare": {Files: sh, Dirs: []string{"/lib/x86_64-linux-gnu", "/lib64"}, Confine: true, Bare: os.Args[1]},
		"answered": {Files: sh, Dirs: []string{"/lib/x86_64-linux-gnu", "/lib64"}, Confine: true, Answered: true}} {
		if s.Answered {
			var err error
			if s.Bare, err = os.MkdirTemp("/tmp", "bare-"); err != nil {
				panic(err)
			}
		}
		tr, err := New(context.Background(), s)
		if err != nil {
			fmt.Printf("%s: right=%v unanswered=%v %v\n", kind, errors.Is(err, ErrNoRight), errors.Is(err, ErrUnanswered), err)
			before := openFiles()
			if s.Answered {
				os.RemoveAll(s.Bare)
				continue
			}
			_, _ = New(context.Background(), s)
			if after := openFiles(); after != before {
				fmt.Printf("leak: %d descriptors\n", after-before)
			}
			continue
		}
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			panic(err)
		}
		fd := int(null.Fd())
		run := func(script string) Outcome {
			r, err := tr.Start(&Command{Argv: []string{"/bin/sh", "-c", script}, Env: []string{"TMPDIR=" + tr.Path("/tmp")}, Dir: "/", Stdin: fd, Stdout: fd, Stderr: fd})
			if err == nil {
				var o Outcome
				if o, err = r.Wait(); err == nil {
					return o
				}
			}
			panic(err)
		}
		works, reads := run(">$TMPDIR/x && exit 5"), run("read x </etc/passwd || read x </proc/version") // the machine's, if nothing else
		fmt.Printf("%s: %v works=%v reads=%v\n", kind, tr.Measures(), works.Exit == 5, reads.Exit == 0)
		if err := tr.Close(); err != nil {
			fmt.Println(err)
		}
		if s.Answered {
			os.RemoveAll(s.Bare)
		}
	}
	os.Exit(0)
}

// openFiles returns how many descriptors this process has.
func openFiles() int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err)
	}
	return len(list)
}

// TestLackingSystems: if something is missing, a tree's measures show it, or the tree is refused; it never
// claims a measure that it lacks.
func TestLackingSystems(t *testing.T) {
	long(t)
	newTree(t, Spec{}) // or skip
	const base = sandbox.NoNewPrivs | sandbox.Bounds
	const all = base | sandbox.Landlock | sandbox.Seccomp
	const spaces = sandbox.Tree | sandbox.Processes | sandbox.Network | sandbox.IPC
	if !offered().Has(all) {
		t.Skip("this machine itself lacks something")
	}
	if fi, err := os.Stat("/lib/x86_64-linux-gnu"); err != nil || !fi.IsDir() {
		t.Skip("needs Debian's directories of amd64")
	}
	has := func(s sandbox.Set, reads bool) string { return fmt.Sprintf("%v works=true reads=%v", s, reads) }
	const noRight, broken, none = "right=true", "right=false unanswered=false", "right=false unanswered=true"
	for _, test := range []struct {
		without              []string
		tree, bare, answered string
	}{
		{nil, has(all|spaces, false), has(all, false), has(all|sandbox.Names, false)},
		{[]string{"landlock"}, has(all&^sandbox.Landlock|spaces, false), has(all&^sandbox.Landlock, true), has(all&^sandbox.Landlock|sandbox.Names, false)},
		{[]string{"landlock, switched off"}, has(all&^sandbox.Landlock|spaces, false), has(all&^sandbox.Landlock, true), has(all&^sandbox.Landlock|sandbox.Names, false)},
		{[]string{"landlock, broken"}, broken, broken, broken},
		{[]string{"seccomp"}, has(all&^sandbox.Seccomp|spaces, false), has(all&^sandbox.Seccomp, false), none},
		{[]string{"listener"}, has(all|spaces, false), has(all, false), none},
		{[]string{"others' memory"}, has(all|spaces, false), has(all, false), none},
		{[]string{"namespaces"}, noRight, has(all, false), has(all|sandbox.Names, false)},
		{[]string{"mounts"}, noRight, has(all, false), has(all|sandbox.Names, false)},
		{[]string{"namespaces", "landlock"}, noRight, has(all&^sandbox.Landlock, true), has(all&^sandbox.Landlock|sandbox.Names, false)},
		{[]string{"namespaces", "seccomp"}, noRight, has(all&^sandbox.Seccomp, false), none},
		{[]string{"namespaces", "landlock", "seccomp"}, noRight, has(base, true), none},
		{[]string{"landlock", "seccomp"}, has(base|spaces, false), has(base, true), none},
		{[]string{"what docker denies"}, noRight, has(all, false), has(all|sandbox.Names, false)},
		{[]string{masked}, has(all|spaces, false), has(all, false), has(all|sandbox.Names, false)},
		{[]string{maskedUser}, has(all|spaces, false), has(all, false), has(all|sandbox.Names, false)},
	} {
		cmd := again(lackingArg0, append([]string{bareDir(t)}, test.without...)...)
		if slices.Contains(test.without, masked) || slices.Contains(test.without, maskedUser) {
			inUserNamespace(cmd, unix.CLONE_NEWNS)
		}
		out, err := cmd.CombinedOutput()
		if strings.HasPrefix(string(out), "mask:") {
			t.Logf("needs to cover a part of /proc: %s", out)
			continue
		}
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		got := map[string]string{}
		for line := range strings.Lines(string(out)) {
			kind, what, _ := strings.Cut(line, ": ")
			got[kind] = strings.TrimSpace(what)
		}
		if got["leak"] != "" || !strings.HasPrefix(got["tree"], test.tree) || !strings.HasPrefix(got["bare"], test.bare) || !strings.HasPrefix(got["answered"], test.answered) {
			t.Errorf("without %q:\n%swant\ntree: %s\nbare: %s\nanswered: %s", test.without, out, test.tree, test.bare, test.answered)
		}
	}
}

// TestWithoutPrivileges is a container that gives none: a user without namespaces.
func TestWithoutPrivileges(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become a user")
	}
	if st, err := os.Stat("/proc/self/exe"); err != nil || st.Mode()&1 == 0 {
		t.Skip("other users may not run this program, made with a closed umask: ", err)
	}
	dir := bareDir(t)
	must(t, os.Chown(dir, 65534, 65534))
	cmd := again(lackingArg0, dir, "namespaces")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	grantsNothing(t, cmd)
	// And one in which root has no capabilities.
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip("needs setpriv")
	}
	self, err := os.Executable()
	must(t, err)
	cmd = exec.Command(setpriv, "--bounding-set=-all", "--inh-caps=-all", "/bin/bash", "-c", `exec -a "$0" "$@"`, lackingArg0, self, bareDir(t), "namespaces")
	grantsNothing(t, cmd)
}

func grantsNothing(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if strings.Contains(string(out), "leak:") {
		t.Errorf("a refused tree leaves something open: %s", out)
	}
	if want := "bare: landlock,seccomp,no-new-privs,limits works=true reads=false\n"; !strings.Contains(string(out), want) || !strings.Contains(string(out), "tree: right=true") {
		t.Errorf("got %s, want %s", out, want)
	}
}
