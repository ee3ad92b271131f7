package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/sandboxtest"
)

// How this program is called for a part in a test.
const (
	confinedArg0 = "sandbox-test-confined"
	confineArg0  = "sandbox-test-confine"
)

func TestMain(m *testing.M) {
	switch os.Args[0] {
	case confinedArg0:
		must(sandboxtest.Without(os.Args[1:]...))
		set, err := confined()
		must(err)
		fmt.Println(set)
		os.Exit(0)
	case familyArg0:
		lookAtFamily(os.Args[1:])
		os.Exit(0)
	case confineArg0:
		confineHere()
		os.Exit(0)
	}
	// No test gets the main thread, which does not end with a goroutine that is locked to it: Go's runtime
	// keeps it, and it would stay confined.
	runtime.LockOSThread()
	os.Exit(m.Run())
}

// again prepares this program to be started in another part.
func again(arg0 string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = arg0
	return cmd
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// confined starts a thread that confines itself, and ends with that.
func confined() (Set, error) {
	var set Set
	tried := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		var err error
		_, set, err = Start(&Policy{})
		tried <- err
	}()
	err := <-tried
	return set, err
}

// TestStartTakesWhatThereIs takes one measure after the other away, and asks what is left.
func TestStartTakesWhatThereIs(t *testing.T) {
	const all = Landlock | Seccomp | NoNewPrivs
	if here, err := confined(); err != nil || here != all {
		need.Skipf(t, need.Sandbox, "this machine offers %v only (%v)", here, err)
	}
	for _, test := range []struct {
		without []string
		lost    Set
	}{
		{nil, 0},
		{[]string{"landlock"}, Landlock},
		{[]string{"landlock, switched off"}, Landlock},
		{[]string{"seccomp"}, Seccomp},
		{[]string{"listener"}, 0},
		{[]string{"landlock", "seccomp"}, Landlock | Seccomp},
	} {
		out, err := again(confinedArg0, test.without...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if want := all &^ test.lost; strings.TrimSpace(string(out)) != want.String() {
			t.Errorf("without %q: confined by %s, want %v", test.without, out, want)
		}
	}
}

// TestConfinesOneThread: the others of this process are as they were.
func TestConfinesOneThread(t *testing.T) {
	before := status(t)
	if _, err := confined(); err != nil {
		t.Fatal(err)
	}
	for range 10_000 { // the thread that tried may need a moment to end
		if status(t) == before {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("was %s, is %s", before, status(t))
}

func status(t *testing.T) (s string) {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		b, err := os.ReadFile("/proc/self/task/" + task.Name() + "/status")
		if err != nil {
			continue // it has ended
		}
		for line := range strings.Lines(string(b)) {
			if strings.HasPrefix(line, "NoNewPrivs:") || strings.HasPrefix(line, "Seccomp:") {
				if !strings.HasSuffix(line, "\t0\n") {
					s += line
				}
			}
		}
	}
	return s
}

// confineHere confines itself to what its arguments say, and tries files.
func confineHere() {
	runtime.LockOSThread()
	dir := os.Args[1]
	_, set, err := Start(&Policy{Read: []string{dir + "/read"}, Exec: []string{dir + "/exec"}, Write: []string{dir + "/write"}, List: []string{dir + "/list"}})
	must(err)
	if !set.Has(Landlock) {
		fmt.Println("no Landlock")
		return
	}
	for _, name := range []string{"read", "exec", "write", "list", "other"} {
		f := dir + "/" + name + "/file"
		_, rerr := os.ReadFile(f)
		_, lerr := os.ReadDir(dir + "/" + name)
		werr := os.WriteFile(f, []byte("new"), 0)
		xerr := syscall.Exec(f, []string{f}, nil)
		if errors.Is(xerr, unix.ENOEXEC) { // it got as far as to read it
			xerr = nil
		}
		merr := os.WriteFile(dir+"/"+name+"/made", nil, 0o600)
		fmt.Println(name, rerr == nil, lerr == nil, werr == nil, merr == nil, xerr == nil)
	}
}

func TestLandlockRights(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"read", "exec", "write", "list", "other"} {
		if err := errors.Join(os.Mkdir(dir+"/"+name, 0o700), os.WriteFile(dir+"/"+name+"/file", []byte{0}, 0o700)); err != nil { //nolint:gosec // programs
			t.Fatal(err)
		}
	}
	out, err := again(confineArg0, dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if bytes.HasPrefix(out, []byte("no")) {
		need.Skipf(t, need.Sandbox, "needs Landlock")
	}
	//                 file   names  change make   execute
	want := "read true true false false false\n" +
		"exec true true false false true\n" +
		"write true true true true false\n" +
		"list false true false false false\n" +
		"other false false false false false\n"
	if string(out) != want {
		t.Errorf("got\n%swant\n%s", out, want)
	}
}

// TestHandledRights: each ABI's rights are all handled; what is not handled is permitted everywhere.
func TestHandledRights(t *testing.T) {
	if landlockABI() == 0 {
		need.Skipf(t, need.Sandbox, "needs Landlock")
	}
	for abi := 1; abi <= landlockABI(); abi++ {
		a := handled(abi)
		n, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&a)), unsafe.Sizeof(a), 0)
		if e != 0 {
			t.Errorf("ABI %d: %v", abi, e)
			continue
		}
		unix.Close(int(n))
	}
	if landlockABI() > newestABI {
		t.Skipf("the kernel's ABI %d is newer than %d, what is known of here", landlockABI(), newestABI)
	}
	// One more than the newest that this kernel has is refused: it has no more.
	a := handled(landlockABI())
	for bit := range 64 {
		if b := a; b.Handled_access_fs&(1<<bit) == 0 {
			b.Handled_access_fs |= 1 << bit
			if n, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&b)), unsafe.Sizeof(b), 0); e == 0 {
				unix.Close(int(n))
				t.Errorf("the kernel knows right %d of files, which is not handled", bit)
			}
		}
		if b := a; b.Handled_access_net&(1<<bit) == 0 {
			b.Handled_access_net |= 1 << bit
			if n, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&b)), unsafe.Sizeof(b), 0); e == 0 {
				unix.Close(int(n))
				t.Errorf("the kernel knows right %d of the network, which is not handled", bit)
			}
		}
		if b := a; b.Scoped&(1<<bit) == 0 {
			b.Scoped |= 1 << bit
			if n, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&b)), unsafe.Sizeof(b), 0); e == 0 {
				unix.Close(int(n))
				t.Errorf("the kernel knows scope %d, which is not handled", bit)
			}
		}
	}
}
