package storetest

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/identity/authority"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// Program returns the path of a server that make deps installs, on PATH or where the go command installs
// programs. Without it, the test is skipped.
func Program(t testing.TB, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	if out, err := exec.Command("go", "env", "GOPATH").Output(); err == nil {
		path := filepath.Join(string(bytes.TrimSpace(out)), "bin", name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	need.Skipf(t, need.Stores, "%s is not installed (on Debian: make deps)", name)
	return ""
}

// FreeAddr returns an address on loopback that nothing listens on.
func FreeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Start starts a server, and waits until it accepts connections at addr. It ends with the test, or when stop
// is called.
func Start(t testing.TB, addr string, env []string, program string, args ...string) (stop func()) {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), &log, &log
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir, "TMPDIR=" + cmd.Dir}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	ended := make(chan error, 1)
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the signal at the end is for the end of this thread
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var last error
	go func() { last = <-ended; close(done) }()
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-done
	})
	t.Cleanup(stop)
	for limit := time.Now().Add(patience); ; {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
			return stop
		}
		select {
		case <-done:
			t.Fatalf("%s has ended: %v\n%s", program, last, &log)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(limit) {
			stop()
			t.Fatalf("%s does not listen on %s: %v\n%s", program, addr, err, &log)
		}
	}
}

// Files of a CA, and of certificates for a server on loopback and for a client, in PEM.
type Files struct {
	CA, Cert, Key         string
	ClientCert, ClientKey string
}

// Certificates makes a CA and its certificates.
func Certificates(t testing.TB) Files {
	t.Helper()
	ca, own, err := authority.New("stores", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	from, to := ca.Valid(time.Now(), time.Hour)
	server, err1 := ca.Issue(authority.Request{Role: identity.Daemon, Names: []string{"127.0.0.1", "localhost"}, From: from, To: to})
	client, err2 := ca.Issue(authority.Request{Role: identity.Client, Names: []string{"builder"}, From: from, To: to})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return Files{
		CA: write("ca.crt", own.Cert), Cert: write("server.crt", server.Cert), Key: write("server.key", server.Key),
		ClientCert: write("client.crt", client.Cert), ClientKey: write("client.key", client.Key),
	}
}
