package sandbox

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// familyArg0 is how this program is called to look at what it starts: in the second word's number of rounds, and
// in a namespace of its own if the third says so.
const familyArg0 = "sandbox-test-family"

// lookAtFamily starts two shells, one of them with a child that has a child, and a process that has ended
// and is not waited for; and looks.
func lookAtFamily(args []string) {
	if args[1] == "alone" {
		must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		must(unix.Mount("proc", "/proc", "proc", 0, ""))
	}
	f, err := OpenFamily("/proc")
	must(err)
	start := func(script string) *os.Process {
		cmd := exec.Command("sh", "-c", script)
		out, err := cmd.StdoutPipe()
		must(err)
		must(cmd.Start())
		_, err = bufio.NewReader(out).ReadString('\n')
		must(err)
		return cmd.Process
	}
	start("sh -c 'echo; sleep 1000; :'; :")
	// The kernel tells CPU time in ticks of 10 ms: however fast the machine is, this one works until a tick is seen.
	busy := start("trap 'exec sleep 1000' USR1; echo; while :; do :; done")
	start("echo; exit")
	rounds, err := strconv.Atoi(args[0])
	must(err)
	var u Usage
	var pids []int
	for end := time.Now().Add(time.Minute); (u.Processes != 4 || u.CPU == 0) && time.Now().Before(end); time.Sleep(time.Millisecond) {
		pids = nil
		u, err = f.Usage(0, func(pid int) { pids = append(pids, pid) })
		must(err)
	}
	must(busy.Signal(unix.SIGUSR1))
	few, err := f.Usage(2, nil)
	must(err)
	began, cpu := time.Now(), cpuTime()
	for range rounds {
		_, err := f.Usage(0, nil)
		must(err)
	}
	took, used := time.Since(began), cpuTime()-cpu
	fmt.Println(u.Processes, few.Processes, len(pids), u.Memory, u.CPU.Milliseconds(), took.Nanoseconds(), used.Nanoseconds())
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

func cpuTime() time.Duration {
	var t unix.Timespec
	must(unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t))
	return time.Duration(t.Nano())
}

// family has this program look at its family; ok is false where there is no right to a namespace.
func family(t testing.TB, rounds int, alone bool) (numbers []int64) {
	t.Helper()
	cmd := again(familyArg0, strconv.Itoa(rounds), map[bool]string{true: "alone", false: "beside others"}[alone])
	cmd.Stderr = os.Stderr
	if alone {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	}
	out, err := cmd.Output()
	if alone && errors.Is(err, unix.EPERM) {
		if os.Geteuid() != 0 {
			t.Skip("needs root: a pid namespace without a user namespace")
		}
		need.Skipf(t, need.Sandbox, "no right to a pid namespace: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for word := range strings.FieldsSeq(string(out)) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// TestFamily: children and their children are seen, with what they take, from beside other
// processes and from a namespace of one's own. What has ended is not counted.
func TestFamily(t *testing.T) {
	for _, alone := range []bool{false, true} {
		t.Run(map[bool]string{true: "alone", false: "beside others"}[alone], func(t *testing.T) {
			n := family(t, 0, alone)
			if n[0] != 4 || n[2] < 4 || n[2] > 5 {
				t.Errorf("%d processes, %d shown, want 4, and perhaps one that has ended", n[0], n[2])
			}
			if n[1] != 3 {
				t.Errorf("at most 2, and one more: %d", n[1])
			}
			if n[3] < 4*100<<10 || n[3] > 4*100<<20 {
				t.Errorf("they have %d bytes", n[3])
			}
			if n[4] < 1 {
				t.Error("they have taken no time")
			}
		})
	}
}

// BenchmarkFamily measures a look at four processes, in CPU time, as on a busy machine.
func BenchmarkFamily(b *testing.B) {
	for _, alone := range []bool{false, true} {
		b.Run(map[bool]string{true: "alone", false: "beside"}[alone], func(b *testing.B) {
			n := family(b, b.N, alone)
			b.ReportMetric(float64(n[6])/float64(b.N), "cpu-ns/op")
		})
	}
}

// TestChildrenInManyReads: one thread may have so many children that their numbers take several reads.
func TestChildrenInManyReads(t *testing.T) {
	dir := t.TempDir()
	var want []string
	var text bytes.Buffer
	for i := range 3000 {
		want = append(want, strconv.Itoa(100000+i))
		fmt.Fprintf(&text, "%d ", 100000+i)
	}
	write(t, dir+"/7/task/7/children", text.String())
	write(t, dir+"/7/task/8/children", "5 ")
	write(t, dir+"/7/task/9/children", "")
	proc, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer proc.Close()
	f := &Family{proc: int(proc.Fd()), self: "7"}
	got, err := f.children("7", nil)
	slices.Sort(got)
	if want = append(want, "5"); err != nil || !slices.Equal(got, want) {
		t.Errorf("%d children, %v, want %d", len(got), err, len(want))
	}
	if _, err := f.children("8", nil); !errors.Is(err, unix.ENOENT) {
		t.Errorf("of none: %v", err)
	}
}
