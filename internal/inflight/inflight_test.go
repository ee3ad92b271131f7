package inflight

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSend: too many descriptors of others' are waited out; what else goes wrong is not.
func TestSend(t *testing.T) {
	for _, c := range []struct {
		err   error
		times int // that it happens
		tries int
		want  error
	}{
		{nil, 0, 1, nil},
		{syscall.ETOOMANYREFS, 3, 4, nil},
		{syscall.EPIPE, 1, 1, syscall.EPIPE},
	} {
		tries := 0
		err := Send(func() error {
			if tries++; tries <= c.times {
				return os.NewSyscallError("sendmsg", c.err)
			}
			return nil
		})
		if tries != c.tries || !errors.Is(err, c.want) {
			t.Errorf("%v, %d times: %d tries, %v; want %d, %v", c.err, c.times, tries, err, c.tries, c.want)
		}
	}
}

// TestSendInFlight has the user's own descriptors be in the way until they are received.
func TestSendInFlight(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		t.Skip("the kernel counts the descriptors of ordinary users alone")
	}
	low := unix.Rlimit{Cur: 64, Max: old.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Error(err)
		}
	}()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fds := make([]int, 32)
	for i := range fds {
		fds[i] = int(null.Fd())
	}
	send := func() error {
		return unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(fds...), nil, unix.MSG_DONTWAIT)
	}
	for err = nil; err == nil; {
		err = send()
	}
	if !errors.Is(err, unix.ETOOMANYREFS) {
		unix.Close(pair[0])
		t.Skipf("the kernel has another limit: %v", err)
	}
	timer := time.AfterFunc(20*time.Millisecond, func() { // without room for what they bring they are dropped
		for range 3 {
			_, _, _, _, _ = unix.Recvmsg(pair[1], make([]byte, 1), nil, 0)
		}
	})
	defer timer.Stop()
	if err := Send(send); err != nil {
		t.Error(err)
	}
	unix.Close(pair[0])
}
