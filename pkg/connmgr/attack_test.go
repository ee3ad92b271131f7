package connmgr

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// TestAttackShmTruncate (shm-truncate): a wrapper can neither shrink nor grow the memory that it shares with
// the manager, nor change its seals. The manager serves the next wrapper.
func TestAttackShmTruncate(t *testing.T) {
	r := newRig(t, nil)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	w := r.dial()
	if !w.lease(leaseOf(d.Addr)) {
		t.FailNow()
	}
	for name, f := range map[string]*os.File{"source": w.source, "sink": w.sink} {
		// A process that has a descriptor can open the memory again, for writing too.
		fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			t.Fatal(err)
		}
		for _, n := range []int64{0, 1, st.Size - 1, st.Size + 1} {
			if err := unix.Ftruncate(fd, n); !errors.Is(err, unix.EPERM) {
				t.Errorf("%s: made %d bytes long: %v, want EPERM", name, n, err)
			}
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: sealed further: %v, want EPERM", name, err)
		}
		// A hole is read as zeros and causes no signal.
		if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, st.Size); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.send(&ipc.Submit{BodyLen: 100, TextOff: 128, TextLen: 1000})
	if no, ok := w.recv().(*ipc.GoLocal); !ok || no.Reason != "manager" {
		t.Errorf("a slot full of holes: %+v", no)
	}
	w.close()
	r.idle()
	r.remote(d.Addr, "int x;")
}

// TestAttackShmDoubleFetch (shm-double-fetch): a wrapper that changes its slot while the manager reads it
// changes at most what is compiled: the job is copied once, before it is checked.
func TestAttackShmDoubleFetch(t *testing.T) {
	body := (&job.Body{Argv0: "cc", Args: []string{"-O2", "-c", "x.c"}, Language: "c", Name: "x.c", Cwd: "/src",
		Outputs: []unit.Output{{Name: "x.o"}}, Files: []unit.File{{Name: "x.c", Len: 10}}}).Append(nil)
	size := (len(body) + 4095) &^ 4095
	fd, err := unix.MemfdCreate("slot", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		t.Fatal(err)
	}
	// Two mappings, as in two processes, so that the race detector does not report the intended race.
	theirs, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(theirs)
	ours, err := unix.Mmap(fd, 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(ours)
	copy(theirs, body)
	const changes = 1_000_000
	done := make(chan struct{})
	go func() {
		defer close(done)
		r := rand.New(rand.NewPCG(1, 2))
		for range changes {
			i := r.IntN(len(body))
			old := theirs[i]
			theirs[i] = byte(r.Uint32())
			theirs[i] = old
		}
	}()
	good, bad := 0, 0
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
		}
		b, err := job.ParseBody(ours[:len(body)])
		if err != nil {
			bad++
			continue
		}
		good++
		// Once read, it does not change: what was checked is what is used.
		before := string(b.Append(nil))
		for range 3 {
			if got := string(b.Append(nil)); got != before {
				t.Fatal("a job changed after it was read")
			}
		}
		if b.Outputs[0].Kind > unit.OutputDependency || len(b.Files) > len(body) {
			t.Fatalf("%+v", b)
		}
	}
	<-done
	if b, err := job.ParseBody(ours[:len(body)]); err != nil || b.Name != "x.c" {
		t.Errorf("left alone it is %+v, %v", b, err)
	}
	t.Logf("%d read, %d refused", good, bad)
	if good == 0 {
		t.Error("none was read")
	}
}

// TestAttackShmForgedIndex (shm-forged-index): offsets and lengths from a wrapper are checked against its
// slot. If they are outside, the wrapper is refused or loses its connection, and others are not affected.
func TestAttackShmForgedIndex(t *testing.T) {
	r := newRig(t, nil)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	rnd := rand.New(rand.NewPCG(3, 4))
	edges := []uint64{0, 1, 63, 64, 4096, 4 << 20, 4<<20 + 1, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1<<63 - 1, 1 << 63, 1<<64 - 1}
	pick := func() uint64 {
		if rnd.IntN(3) == 0 {
			return rnd.Uint64()
		}
		return edges[rnd.IntN(len(edges))] - uint64(rnd.IntN(3))
	}
	for i := range 300 {
		w := r.dial()
		if !w.lease(leaseOf(d.Addr)) {
			t.FailNow()
		}
		w.send(&ipc.Submit{BodyOff: uint32(pick()), BodyLen: uint32(pick()), TextOff: uint32(pick()), TextLen: pick(), Tree: rnd.IntN(2) == 0})
		kind, fields, err := w.conn.Recv()
		if err == nil {
			var no ipc.GoLocal
			if kind != ipc.KindGoLocal || no.Parse(fields) != nil {
				t.Fatalf("a forged place: frame %d", kind)
			}
		}
		w.close()
		if i%50 == 0 {
			r.remote(d.Addr, "int x;")
		}
	}
	// A submit without a slot, a slot twice, and the answer before the question.
	for name, say := range map[string]func(w *wrapper){
		"a submit without a lease": func(w *wrapper) { w.send(&ipc.Submit{BodyLen: 64, TextOff: 64}) },
		"an end that was not asked": func(w *wrapper) {
			w.send(&ipc.Local{Version: ipc.Version, Reason: "link", Turn: ipc.TurnNone})
			w.send(&ipc.Ran{})
		},
		"two leases":               func(w *wrapper) { w.lease(leaseOf(d.Addr)); w.send(leaseOf(d.Addr)) },
		"a kind that there is not": func(w *wrapper) { _ = w.conn.Send([]byte{1, 0, 0, 0, 200}) },
		"a frame too long":         func(w *wrapper) { _ = w.conn.Send([]byte{255, 255, 255, 255, 1}) },
		"a count too large":        func(w *wrapper) { _ = w.conn.Send([]byte{6, 0, 0, 0, 1, ipc.Version, 255, 255, 255, 127}) },
	} {
		w := r.dial()
		say(w)
		if kind, _, err := w.conn.Recv(); err == nil {
			t.Errorf("%s: an answer of kind %d", name, kind)
		}
		w.close()
	}
	r.idle()
	r.remote(d.Addr, "int x;")
}

// TestAttackFdBomb (fd-bomb): descriptors that a wrapper sends are not received; none stays open in the
// manager.
func TestAttackFdBomb(t *testing.T) {
	r := newRig(t, nil)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	r.remote(d.Addr, "int x;")
	r.idle()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fds := make([]int, 253)
	for i := range fds {
		fds[i] = int(null.Fd())
	}
	rights := unix.UnixRights(fds...)
	opened := func() int {
		dir, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, e := range dir {
			if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && to == os.DevNull {
				n++
			}
		}
		return n
	}
	before := opened()
	frame := leaseOf(d.Addr).Append(nil)
	sent := 0 // in total: at most RLIMIT_NOFILE may be in flight, and the kernel collects them late
	for range 20 {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: r.socket, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		// Each byte of a frame brings 253 descriptors, up to what the kernel allows in flight.
		for i := range frame[:20] {
			if _, _, err := c.WriteMsgUnix(frame[i:i+1], rights, nil); err != nil {
				if !errors.Is(err, syscall.ETOOMANYREFS) {
					break // the manager has closed the connection
				}
				if _, err := c.Write(frame[i : i+1]); err != nil {
					break
				}
				continue
			}
			sent++
		}
		if n := opened(); n > before {
			t.Errorf("%d of a wrapper's descriptors are open in the manager", n-before)
		}
		c.Close()
	}
	if sent == 0 {
		t.Fatal("no message with descriptors was sent")
	}
	r.idle()
	if n := opened(); n != before {
		t.Errorf("%d descriptors are left", n-before)
	}
	forgotten(t, int(null.Fd()))
	r.remote(d.Addr, "int x;")
}

// forgotten waits until the kernel lets this user send a descriptor again. The kernel collects descriptors
// that were in flight on a closed socket with a delay.
func forgotten(t *testing.T, fd int) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	eventually(t, "the kernel to forget descriptors in flight", func() bool {
		err := unix.Sendmsg(pair[0], []byte{0}, unix.UnixRights(fd), nil, 0)
		if err != nil && !errors.Is(err, unix.ETOOMANYREFS) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// TestAttackUnixForeignUID (unix-foreign-uid): a manager of the machine runs no program of another user. It
// accepts from that user's wrapper only compilers, assemblers and libraries that belong to root or to its own
// user.
//
// TestOtherUsers shows that a user's manager refuses other users. TestTrusted and stranger.txtar show which
// managers a wrapper trusts, also in directories of other users.
func TestAttackUnixForeignUID(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc")
	}
	evil := t.TempDir()
	for _, name := range []string{"gcc", "as"} {
		if err := os.WriteFile(filepath.Join(evil, name), []byte("#!/bin/sh\ntouch "+evil+"/ran\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(evil, "cc")
	if err := os.Symlink(gcc, link); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var asked []string
	r := newRig(t, func(o *Options) {
		o.AnyUser = true
		o.Identify = func(ctx context.Context, path string, env toolchain.Env) (toolchain.Toolchain, error) {
			mu.Lock()
			asked = append(asked, path+" "+env.Path+" "+env.Libraries)
			mu.Unlock()
			return identifyTest(ctx, path, env)
		}
	})
	c := func(l ipc.Lease, uid uint32) error { return (&client{m: r.m, uid: uid, lease: &l}).mayAsk() }
	for name, q := range map[string]struct {
		lease ipc.Lease
		good  bool
	}{
		"the system's":               {ipc.Lease{Compiler: gcc, Path: "/usr/bin:/bin"}, true},
		"and its words":              {ipc.Lease{Compiler: gcc, Machine: []string{"-march=native", "-mtune=native"}}, true},
		"his own":                    {ipc.Lease{Compiler: filepath.Join(evil, "gcc")}, false},
		"his link to the system's":   {ipc.Lease{Compiler: link}, false},
		"a name without a directory": {ipc.Lease{Compiler: "gcc"}, false},
		"by way of his directory":    {ipc.Lease{Compiler: evil + "/../../.." + gcc}, false},
		"none":                       {ipc.Lease{Compiler: "/usr/bin/no-such-gcc"}, false},
		"his libraries":              {ipc.Lease{Compiler: gcc, Libraries: evil}, false},
		"his assembler":              {ipc.Lease{Compiler: gcc, Path: evil + ":/usr/bin"}, false},
		"words that load a plugin":   {ipc.Lease{Compiler: gcc, Machine: []string{"-march=native", "-fplugin=" + evil + "/x.so"}}, false},
	} {
		if err := c(q.lease, stranger); (err == nil) != q.good {
			t.Errorf("%s: %v", name, err)
		}
		if err := c(q.lease, 0); err != nil {
			t.Errorf("%s, but of the manager's own user: %v", name, err)
		}
	}
	// The same with a process of the other user.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "test")
	if err := exec.Command("cp", self, copied).Run(); err != nil {
		t.Fatal(err)
	}
	expose(t, copied)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	expose(t, r.socket)
	cmd := exec.Command(copied)
	cmd.Env = []string{leaseAs + "=" + r.socket + " " + d.Addr, leaseCompiler + "=" + filepath.Join(evil, "gcc")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	out, err := cmd.Output()
	if got := strings.TrimSpace(string(out)); err != nil || got != "refused:toolchain" {
		t.Errorf("a compiler of the stranger's: %q, %v", got, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(asked) > 0 {
		t.Errorf("it was asked what it is: %q", asked)
	}
	if _, err := os.Stat(filepath.Join(evil, "ran")); err == nil {
		t.Error("a program of the stranger's was run")
	}
}
