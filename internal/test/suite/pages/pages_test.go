// Package pages tests what the programs show of the farm, from one to the other.
package pages

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// shell is a farm and what a person does with it.
type shell struct {
	*testing.T
	*farm.Farm
	ctx context.Context
}

// start starts a daemon and a manager. daemon is added to the daemon's settings, manager to the manager's.
func start(t *testing.T, auth, daemon, manager string) *shell {
	t.Helper()
	part.Skip(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	f := farmtest.New(t, farmtest.Dir(t))
	s := &shell{t, f, ctx}
	if err := f.Secure(ctx, farm.Security{Auth: auth}); err != nil {
		t.Fatal(err)
	}
	for name, more := range map[string]string{"daemon.yaml": daemon, "farm.yaml": manager} {
		if err := f.AddSettings(name, more); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.StartDaemon(ctx, "host", "--jobs", "1"); err != nil {
		t.Fatal(err)
	}
	if err := f.StartManager(ctx, "--hosts", f.Daemons[0].Addr); err != nil {
		t.Fatal(err)
	}
	return s
}

// host returns a page of the daemon's as the manager shows it.
func (s *shell) host(page string) (string, error) {
	b, err := s.Manager.Get(s.ctx, "/hosts/"+s.Daemons[0].Addr+"/"+page)
	return string(b), err
}

// logs runs rdistcc logs.
func (s *shell) logs(args ...string) (out string, status int) {
	s.Helper()
	cmd := exec.CommandContext(s.ctx, s.Wrapper, append([]string{"logs", s.Daemons[0].Addr}, args...)...)
	cmd.Env = s.Env()
	b, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		s.Fatal(err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

// TestHostsMetrics: the manager shows the metrics of a host, which it fetches by the port of the jobs, however the two prove who they
// are, and lists it for Prometheus.
func TestHostsMetrics(t *testing.T) {
	part.Skip(t)
	for _, auth := range []string{"", "psk", "tls"} {
		t.Run("auth="+auth, func(t *testing.T) {
			s := start(t, auth, "", "")
			text, err := s.host("metrics")
			if err != nil || !strings.Contains(text, "\nrdistccd_streams 1\n") {
				t.Errorf("%v, %d bytes of metrics", err, len(text))
			}
			if text, err := s.host("readyz"); err != nil || !strings.HasPrefix(text, "ready") {
				t.Errorf("%q, %v", text, err)
			}
			var targets []struct {
				Targets []string
				Labels  map[string]string
			}
			b, err := s.Manager.Get(s.ctx, "/targets")
			if err == nil {
				err = json.Unmarshal(b, &targets)
			}
			want := "/hosts/" + s.Daemons[0].Addr + "/metrics"
			if err != nil || len(targets) != 1 || targets[0].Targets[0] != s.Manager.HTTP || targets[0].Labels["__metrics_path__"] != want ||
				targets[0].Labels["instance"] != s.Daemons[0].Addr {
				t.Errorf("%s, %v", b, err)
			}
			for _, page := range []string{"", "status.json", "log", "debug/pprof/cmdline"} {
				if _, err := s.host(page); err == nil {
					t.Errorf("the manager shows %q to everybody on its machine", page)
				}
			}
			if _, err := s.Manager.Get(s.ctx, "/hosts/127.0.0.1:1/metrics"); err == nil {
				t.Error("the manager connects to what is no host of its")
			}
			s.Daemons[0].Kill()
			if _, err := s.host("metrics"); err == nil {
				t.Error("the metrics of a daemon that was killed are there")
			}
		})
	}
}

// TestHostsProfiles: where both want that, profiles of a host are shown, for as long as they take.
func TestHostsProfiles(t *testing.T) {
	s := start(t, "psk", "http: {pprof: true, readers: ['*']}\n", "http: {pprof: true}\n")
	profile, err := s.host("debug/pprof/profile?seconds=1")
	if err != nil || !strings.HasPrefix(profile, "\x1f\x8b") {
		t.Errorf("%d bytes, %v", len(profile), err)
	}
}

// TestLogs: who may read a daemon's log reads it, as it is and as it grows, and everybody else is told why not.
func TestLogs(t *testing.T) {
	part.Skip(t)
	for _, c := range []struct {
		auth, readers string
		ok            bool
	}{
		{"", "[]", false}, {"", "['*']", true}, {"psk", "['*']", true}, {"tls", "[someone]", false}, {"tls", "[client]", true},
	} {
		t.Run(fmt.Sprintf("auth=%s,readers=%s", c.auth, c.readers), func(t *testing.T) {
			s := start(t, c.auth, "http: {readers: "+c.readers+"}\n", "")
			out, status := s.logs()
			if !c.ok {
				if status != 113 || !strings.Contains(out, "http.readers") || strings.Count(out, "\n") != 1 {
					t.Errorf("status %d, %q", status, out)
				}
				return
			}
			if status != 0 || !strings.Contains(out, "msg=listening") {
				t.Errorf("status %d, %q", status, out)
			}
			if out, status := s.logs("-n", "1"); status != 0 || strings.Count(out, "\n") != 1 {
				t.Errorf("status %d, %q", status, out)
			}
		})
	}
	t.Run("follow", func(t *testing.T) {
		s := start(t, "", "http: {readers: ['*']}\n", "")
		cmd := exec.CommandContext(s.ctx, s.Wrapper, "logs", "-n", "0", "-f", s.Daemons[0].Addr)
		cmd.Env = s.Env()
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// It may have asked before or after this line; the ones after that it sees.
		got := make(chan string, 1)
		go func() {
			b := make([]byte, 4096)
			n, _ := out.Read(b)
			got <- string(b[:n])
		}()
		for {
			if err := s.Daemons[0].Signal(1); err != nil { // SIGHUP: it says that settings are in force
				t.Fatal(err)
			}
			select {
			case text := <-got:
				if !strings.Contains(text, "settings are in force") {
					t.Errorf("followed: %q", text)
				}
				_ = cmd.Process.Signal(os.Interrupt)
				if err := cmd.Wait(); err != nil {
					t.Errorf("interrupted, it ends with %v", err)
				}
				return
			case <-time.After(50 * time.Millisecond):
			case <-s.ctx.Done():
				t.Fatal("nothing was followed")
			}
		}
	})
	t.Run("no daemon", func(t *testing.T) {
		s := start(t, "", "", "")
		s.Daemons[0].Kill()
		if out, status := s.logs(); status != 103 || out != "rdistcc: "+s.Daemons[0].Addr+": connection refused; rdistcc doctor "+s.Daemons[0].Addr+" tells more\n" {
			t.Errorf("status %d, %q", status, out)
		}
	})
}
