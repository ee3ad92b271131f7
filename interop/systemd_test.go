package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// machine boots another guest, whose first process is systemd. It ends with the test.
func machine(t *testing.T) *Guest {
	t.Helper()
	Boot(t) // or there is none here
	out, err := exec.Command(script(), "systemd").Output()
	if err != nil {
		t.Skipf("no root directory with systemd: %v", lastLine(stderrOf(err), err))
	}
	g, err := start(fmt.Sprintf("%s%d-systemd", guestPrefix, os.Getpid()), "--mem", "768", "--root", strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.stop)
	return g
}

func stderrOf(err error) []byte {
	if e, ok := err.(*exec.ExitError); ok { //nolint:errorlint // as Output gives it
		return e.Stderr
	}
	return nil
}

// farmSide is what a build host has: programs and their settings.
type farmSide struct {
	dir, host, report string
	env               []string
	jobs              int
}

// compile compiles a file in the guest, and compares.
func (f *farmSide) compile(t *testing.T) {
	t.Helper()
	f.jobs++
	src := fmt.Sprintf("int f(int x) { return x * %d; }\n", f.jobs)
	if err := os.WriteFile(filepath.Join(f.dir, "x.c"), []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"rdistcc", "/usr/bin/gcc", "-O2", "-c", "x.c", "-o", "there.o"}, {"/usr/bin/gcc", "-O2", "-c", "x.c", "-o", "here.o"}} {
		name := args[0]
		if name == "rdistcc" {
			name = filepath.Join(f.dir, name)
		}
		cmd := exec.Command(name, args[1:]...)
		cmd.Env, cmd.Dir = f.env, f.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	if !sameFiles(t, filepath.Join(f.dir, "here.o"), filepath.Join(f.dir, "there.o")) {
		t.Error("the object differs from what the compiler here makes")
	}
	if b, _ := os.ReadFile(f.report); strings.Count(string(b), "remote:"+f.host) != f.jobs {
		t.Errorf("not compiled in the guest; report:\n%s", b)
	}
}

// unitDropIn is what the unit's comments tell an administrator to write, and patience with the guest.
const unitDropIn = `[Service]
LoadCredential=cert:/etc/rdistcc/certs/rdistccd.crt
LoadCredential=key:/etc/rdistcc/certs/rdistccd.key
LoadCredential=ca:/etc/rdistcc/certs/ca.crt
Environment="RDISTCCD_OPTIONS=--listen 0.0.0.0:%d --tls-cert %%%%d/cert --tls-key %%%%d/key --tls-ca %%%%d/ca --jobs 2"
TimeoutStartSec=8min
%s
`

// TestSystemd: the daemon as a service of a real systemd, with the unit as make install writes it and its
// keys as credentials: it compiles, fully confined and in control groups, is reloaded and stopped; if the
// administrator takes the namespaces away it is confined nevertheless.
func TestSystemd(t *testing.T) {
	g := machine(t)
	note := row(t, "systemd 252, cgroup v2", "rdistccd.service with TLS: compiles, reload, stop")
	dir := t.TempDir()
	if out, err := exec.Command("make", "-s", "-C", "..", "install", "DESTDIR="+dir, "PREFIX=/usr/local").CombinedOutput(); err != nil {
		t.Fatalf("make install: %v\n%s", err, tail(string(out), 20))
	}
	for _, name := range []string{"rdistcc", "rdistcc-cm"} {
		if err := os.Rename(filepath.Join(dir, "usr/local/bin", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(filepath.Join(dir, "rdistcc"), "certs", filepath.Join(dir, "certs")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	tools := filepath.Join(dir, "tools.tar")
	archive(t, tools, toolchainFiles(t))
	// A tree has the client's names: the compiler's own, and the link to it.
	gcc, err := filepath.EvalSymlinks("/usr/bin/gcc")
	if err != nil {
		t.Fatal(err)
	}
	g.Run(t, "cd / && tar -xf "+g.Put(t, tools)+" && rm /share/tools.tar && { [ "+gcc+" = /usr/bin/gcc ] || { mv /usr/bin/gcc "+gcc+" && ln -s "+gcc+" /usr/bin/gcc; }; } && mkdir -p /usr/local/bin /usr/local/lib/systemd/system /etc/rdistcc/certs")
	for from, to := range map[string]string{
		"usr/local/bin/rdistccd": "/usr/local/bin/", "usr/local/lib/systemd/system/rdistccd.service": "/usr/local/lib/systemd/system/",
		"certs/ca.crt": "/etc/rdistcc/certs/", "certs/rdistccd.crt": "/etc/rdistcc/certs/", "certs/rdistccd.key": "/etc/rdistcc/certs/",
	} {
		g.Run(t, "mv "+g.Put(t, filepath.Join(dir, from))+" "+to)
	}
	g.Run(t, "chmod 755 /usr/local/bin/rdistccd && chmod 600 /etc/rdistcc/certs/* && chown -R root /etc/rdistcc")

	port, host := g.Port()
	f := &farmSide{dir: dir, host: host, report: filepath.Join(dir, "report")}
	settings := fmt.Sprintf("limits: {connect-timeout: 30s, silence: 30s}\nscheduler: {connect-grace: 30s}\nlocal: {share: false}\nhttp: {manager: \"\"}\nauth: {tls: {cert: %[1]s/client.crt, key: %[1]s/client.key, ca: %[1]s/ca.crt}}\n", dir+"/certs")
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	f.env = append(os.Environ(), "RDISTCC_HOSTS="+host+"/2", "RDISTCC_FALLBACK=0", "RDISTCC_CACHE=off", "RDISTCC_DIR="+dir+"/state", "RDISTCC_REPORT="+f.report,
		"RDISTCC_CONFIG="+dir+"/config.yaml", "RDISTCC_IO_TIMEOUT=120", "PATH="+dir+":"+os.Getenv("PATH"), "XDG_STATE_HOME="+dir)
	stop := func() {
		cmd := exec.Command(filepath.Join(dir, "rdistcc"), "stop")
		cmd.Env = f.env
		_ = cmd.Run() // may not have been started
	}
	t.Cleanup(stop)

	// serve starts the service, and looks at how it confines compiles.
	serve := func(more, level string, lacks string) {
		t.Helper()
		g.Run(t, "mkdir -p /etc/systemd/system/rdistccd.service.d && cat >/etc/systemd/system/rdistccd.service.d/override.conf <<'END'\n"+
			strings.ReplaceAll(fmt.Sprintf(unitDropIn, port, more), "%%", "%")+"END\nsystemctl daemon-reload")
		const journal = "journalctl --no-pager -o cat _SYSTEMD_INVOCATION_ID=$(systemctl show -P InvocationID rdistccd)"
		out, status := g.Exec(t, "systemctl start rdistccd; s=$?; "+journal+"; exit $s", 9*time.Minute)
		if status != 0 {
			t.Fatalf("it does not start:\n%s", tail(out, 20))
		}
		// It serves before it has proven how it confines, and says so when it has.
		var says string
		for end := time.Now().Add(2 * time.Minute); ; {
			out = g.Run(t, journal)
			_, says, _ = strings.Cut(out, `msg="compiles are confined" `)
			says, _, _ = strings.Cut(says, "\n")
			passed := strings.Contains(g.Run(t, "wget -qO- http://127.0.0.1:7633/metrics | grep canaries_total || true"), `{result="passed"} 2`)
			if says != "" && passed || time.Now().After(end) {
				break
			}
			time.Sleep(time.Second)
		}
		if !strings.HasPrefix(says, "level="+level+" ") || !strings.Contains(says, "cgroup") || lacks != "" && strings.Contains(says, lacks) {
			t.Errorf("confined: %q, want level %s and cgroup:\n%s", says, level, tail(out, 20))
		}
		f.compile(t)
		metrics := g.Run(t, "wget -qO- http://127.0.0.1:7633/metrics")
		if !strings.Contains(metrics, `rdistccd_sandbox_canaries_total{result="failed"} 0`+"\n") || strings.Contains(metrics, `{result="passed"} 0`+"\n") {
			t.Error("no canary has passed, or one has failed")
		}
		if procs := g.Run(t, "cat /sys/fs/cgroup/system.slice/rdistccd.service/runner-*/cgroup.procs"); len(strings.Fields(procs)) != 2 {
			t.Errorf("in the runners' groups: %q", procs)
		}
	}
	// end stops it, in order.
	end := func() {
		t.Helper()
		stop()
		out := g.Run(t, "systemctl stop rdistccd; systemctl show -p Result,ExecMainStatus,ActiveState rdistccd; ls -d /sys/fs/cgroup/system.slice/rdistccd.service 2>/dev/null || true")
		for _, want := range []string{"Result=success", "ExecMainStatus=0", "ActiveState=inactive"} {
			if !strings.Contains(out, want+"\n") {
				t.Errorf("stopped, it says\n%s", out)
			}
		}
		if strings.Contains(out, "/sys/fs") {
			t.Error("its control group stays")
		}
	}
	serve("", "full", "")
	exposure := regexp.MustCompile(`Overall exposure level for rdistccd.service: (\S+) (\S+)`).FindString(g.Run(t, "systemd-analyze security --no-pager rdistccd.service"))
	if !strings.Contains(exposure, " OK") {
		t.Errorf("systemd finds: %q", exposure)
	}
	g.Run(t, "systemctl reload rdistccd && systemctl is-active rdistccd")
	f.compile(t)
	end()
	if full() {
		serve("RestrictNamespaces=yes", "confined", "tree")
		end()
	}
	*note = strings.TrimPrefix(exposure, "Overall ")
}
