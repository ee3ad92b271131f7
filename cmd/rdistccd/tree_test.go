package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// confined is command in a user namespace that may have no mount namespaces.
func confined(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("needs bash")
	}
	cmd := command(t, args...)
	self := cmd.Path
	cmd.Path = bash
	cmd.Args = append([]string{"bash", "-c", `{ echo 0 >/proc/sys/user/max_mnt_namespaces; } 2>/dev/null || exit 77; exec -a rdistccd ` + self + ` "$@"`, "rdistccd"}, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}
	probe := exec.Command(bash, "-c", "echo 0 >/proc/sys/user/max_mnt_namespaces")
	probe.SysProcAttr = cmd.SysProcAttr
	if out, err := probe.CombinedOutput(); err != nil {
		t.Skipf("needs a user namespace with limits of its own: %v %s", err, out)
	}
	return cmd
}

// TestNoRightToNamespaces: a daemon that can make none says why and what would help, in one line, and makes trees without.
func TestNoRightToNamespaces(t *testing.T) {
	for _, settings := range []string{"", "daemon: {tree: require}\n"} {
		r := start(t, confined(t, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--config", configFile(t, settings)))
		page := "http://" + r.find(`http.* addr=(\S+)`)
		line := r.find(`level=(?:INFO|WARN) (msg="(?:private trees are made without namespaces|compiles that depend on paths).*)`)
		if strings.Contains(line, "compiles that depend") {
			t.Skipf("needs a kernel that lets calls be answered: %s", line)
		}
		if !strings.Contains(line, "sysctl user.max_mnt_namespaces=") {
			t.Errorf("no remedy in %q", line)
		}
		r.find(`msg=listening`)
		if _, metrics := get(t, page+"/metrics"); !strings.Contains(metrics, "\nrdistccd_tree 1\n") {
			t.Error("the metrics do not tell")
		}
		r.signal(syscall.SIGTERM)
		r.stops(0)
	}
}

// TestNoRightToTrees: a daemon that can make no trees at all says so too, and still serves, unless trees are required. Without the sandbox
// nothing answers what compiles call.
func TestNoRightToTrees(t *testing.T) {
	r := start(t, confined(t, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--sandbox", "off"))
	page := "http://" + r.find(`http.* addr=(\S+)`)
	line := r.find(`level=WARN (msg="compiles that depend on paths.*)`)
	if !strings.Contains(line, "sysctl user.max_mnt_namespaces=") {
		t.Errorf("no remedy in %q", line)
	}
	r.find(`msg=listening`)
	if _, metrics := get(t, page+"/metrics"); !strings.Contains(metrics, "\nrdistccd_tree 0\n") {
		t.Error("the metrics do not tell")
	}
	if _, text := get(t, page+"/"); !strings.Contains(text, "Cannot show private trees") || !strings.Contains(text, "sysctl user.max_mnt_namespaces=") {
		t.Errorf("the status page does not tell: %s", text)
	}
	r.signal(syscall.SIGTERM)
	r.stops(0)

	cmd := confined(t, "--listen", "127.0.0.1:0", "--http", "", "--log-level", "error", "--sandbox", "off", "--config", configFile(t, "daemon: {tree: require}\n"))
	out, _ := cmd.CombinedOutput()
	text := string(out)
	if code := cmd.ProcessState.ExitCode(); code != exitGeneral || !strings.HasPrefix(text, "rdistccd: daemon.tree") ||
		!strings.Contains(text, "sysctl user.max_mnt_namespaces=") || strings.Count(text, "\n") != 1 {
		t.Errorf("status %d, output %q", code, text)
	}
}

// TestTreeSetting: off is not a fault, so only the metrics show it; a change takes a restart.
func TestTreeSetting(t *testing.T) {
	conf := configFile(t, "daemon: {tree: off}\n")
	r := start(t, command(t, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--config", conf))
	page := "http://" + r.find(`http.* addr=(\S+)`)
	r.find(`msg=listening`)
	if _, metrics := get(t, page+"/metrics"); !strings.Contains(metrics, "\nrdistccd_tree 0\n") {
		t.Error("the metrics do not tell")
	}
	r.mu.Lock()
	if log := strings.Join(r.log, "\n"); strings.Contains(log, "depend on paths") {
		t.Errorf("log %q", log)
	}
	r.mu.Unlock()
	if err := os.WriteFile(conf, []byte("toolchains: {dirs: [/does/not/exist]}\ndaemon: {tree: auto}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.signal(syscall.SIGHUP)
	r.find(`takes a restart" setting=(daemon.tree)`)
	r.signal(syscall.SIGTERM)
	r.stops(0)
}

// TestPodWithoutTrees: in a pod, a daemon that can make no trees names the chart's value too. Elsewhere, and where trees are not wanted, it
// does not.
func TestPodWithoutTrees(t *testing.T) {
	said := func(env, settings string) string {
		cmd := confined(t, "--listen", "127.0.0.1:0", "--http", "", "--config", configFile(t, settings))
		if cmd.Env == nil {
			cmd.Env = os.Environ()
		}
		cmd.Env = append(cmd.Env, env)
		r := start(t, cmd)
		r.find(`msg=listening`)
		r.signal(syscall.SIGTERM)
		r.stops(0)
		r.mu.Lock()
		defer r.mu.Unlock()
		return strings.Join(r.log, "\n")
	}
	const pod, none = "KUBERNETES_SERVICE_HOST=10.96.0.1", "sandbox: off\n"
	for _, c := range []struct {
		env, settings string
		want          int
	}{{pod, none, 1}, {"X=", none, 0}, {pod, none + "daemon: {tree: off}\n", 0}} {
		if log := said(c.env, c.settings); strings.Count(log, "set the chart's value confinement to userns or seccomp") != c.want {
			t.Errorf("%s, %q: the line about the chart is not there %d times in\n%s", c.env, c.settings, c.want, log)
		}
	}
}
