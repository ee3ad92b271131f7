package main

import (
	"crypto/tls"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/identity/authority"
)

// pair writes a pair of ca's, and gives the flags that name it.
func pair(t *testing.T, dir string, ca *authority.CA, role identity.Role, name string) []string {
	t.Helper()
	p, err := ca.Issue(authority.Request{Role: role, Names: []string{name}, From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "a.crt"), p.Cert)
	write(t, filepath.Join(dir, "a.key"), p.Key)
	return []string{"--tls-cert", filepath.Join(dir, "a.crt"), "--tls-key", filepath.Join(dir, "a.key"), "--tls-ca", filepath.Join(dir, "ca.crt")}
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestServesByCertificates: a daemon with certificates demands one on loopback too, loads new ones at
// SIGHUP, keeps the old ones if the new ones are invalid, counts failures, and serves beyond loopback.
func TestServesByCertificates(t *testing.T) {
	dir := t.TempDir()
	ca, p, err := authority.New("test", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "ca.crt"), p.Cert)
	r := start(t, command(t, append(pair(t, dir, ca, identity.Daemon, "first"), "--listen", "0.0.0.0:0", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")...))
	page := "http://" + r.find(`http.* addr=(\S+)`)
	addr := r.find(`msg=listening addr=(127\.0\.0\.1:\d+) .*identity=tls`)
	r.find(`msg=listening addr=(0\.0\.0\.0:\d+) .*identity=tls`)
	shows := func(want string) {
		t.Helper()
		c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "certificate required") {
			t.Errorf("a client without a certificate got %v", err)
		}
		if got := c.ConnectionState().PeerCertificates[0].DNSNames[0]; got != want {
			t.Errorf("the daemon shows the certificate of %s, want %s", got, want)
		}
	}
	shows("first")
	pair(t, dir, ca, identity.Client, "of-a-client")
	r.signal(syscall.SIGHUP)
	r.find(`certificates and keys stay as they are.*is not for a daemon`)
	shows("first")
	pair(t, dir, ca, identity.Daemon, "second")
	r.signal(syscall.SIGHUP)
	r.find(`settings are in force`)
	r.find(`cause=tls-no-certificate`)
	// The log may have the line of the first SIGHUP: what is shown tells.
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true}); err == nil {
			name := c.ConnectionState().PeerCertificates[0].DNSNames[0]
			c.Close()
			if name == "second" {
				break
			}
		}
	}
	shows("second")
	_, metrics := get(t, page+"/metrics")
	if m := regexp.MustCompile(`(?m)^rdistccd_certificate_expiry_timestamp_seconds (\S+)$`).FindStringSubmatch(metrics); m == nil {
		t.Error("the metrics do not say when the certificate expires")
	} else if at, err := strconv.ParseFloat(m[1], 64); err != nil || time.Until(time.Unix(int64(at), 0)) > time.Hour || at < float64(time.Now().Unix()) {
		t.Errorf("the certificate expires at %s, %v: want within the hour", m[1], err)
	}
	if strings.Contains(metrics, `rdistccd_auth_failures_total{cause="tls-no-certificate"} 0`) || !strings.Contains(metrics, `rdistccd_auth_failures_total{cause="tls-expired"} 0`) {
		t.Errorf("failures are not counted:\n%s", metrics)
	}
	r.signal(syscall.SIGTERM)
	r.stops(0)
}

// TLS is spoken by the software stack alone.
func TestAdapterTakesNoTLS(t *testing.T) {
	dir := t.TempDir()
	ca, p, err := authority.New("test", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "ca.crt"), p.Cert)
	cmd := command(t, append(pair(t, dir, ca, identity.Daemon, "x"), "--provider", "ibverbs")...)
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 101 || !strings.Contains(string(out), "does no TLS") || strings.Count(string(out), "\n") != 1 {
		t.Errorf("exit status %d, %s", cmd.ProcessState.ExitCode(), out)
	}
}

// What the daemon advises for connections that only a shared key protects is possible with its provider.
func TestWireRemedy(t *testing.T) {
	for provider, want := range map[string]string{"soft": "use TLS", "ibverbs": "has no TLS", "ibverbs:siw0": "IPsec"} {
		if got := wireRemedy(provider); !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("provider %s: %s", provider, got)
		}
	}
}

// A socket that systemd has opened beyond loopback is refused as well.
func TestExposedSocketIsRefused(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("needs bash")
	}
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := command(t)
	cmd.Path, cmd.Args = bash, []string{"bash", "-c", "LISTEN_FDS=1 LISTEN_PID=$$ exec -a rdistccd " + self + " --http '' --allow 10.0.0.0/8"}
	cmd.ExtraFiles = []*os.File{f}
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 101 || !strings.Contains(string(out), "rdistccd: listen on "+l.Addr().String()+": anyone who can reach it") {
		t.Errorf("exit status %d\n%s", cmd.ProcessState.ExitCode(), out)
	}
}
