// The tests of package display run rdistcc top in a terminal, with a real manager and real daemons.
package display_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// site is a farm whose only compiler takes as long as its source says.
type site struct {
	*farm.Farm
	t   *testing.T
	cc  string
	src string
}

func newSite(t *testing.T) *site {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the programs and starts a farm")
	}
	root := farmtest.Dir(t)
	s := &site{Farm: farmtest.New(t, root), t: t, cc: farmtest.StandIn(t), src: filepath.Join(root, "src")}
	if err := os.Mkdir(s.src, 0o755); err != nil {
		t.Fatal(err)
	}
	return s
}

// daemons starts daemons that only have that compiler.
func (s *site) daemons(n int) {
	s.t.Helper()
	settings := filepath.Join(s.src, "daemon.yaml")
	s.write(settings, "toolchains: {dirs: ["+filepath.Dir(s.cc)+"]}\n")
	for i := range n {
		if _, err := s.StartDaemon(s.t.Context(), fmt.Sprintf("d%d", i+1), "--config", settings, "--jobs", "2"); err != nil {
			s.t.Fatal(err)
		}
	}
}

// manager starts a manager that has the daemons as its hosts.
func (s *site) manager() {
	s.t.Helper()
	var hosts []string
	for _, d := range s.Daemons {
		hosts = append(hosts, d.Addr)
	}
	if err := s.StartManager(s.t.Context(), "--hosts", strings.Join(hosts, " ")); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) write(file, text string) {
	s.t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// command returns a run of rdistcc.
func (s *site) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(s.t.Context(), s.Wrapper, args...)
	cmd.Env, cmd.Dir = s.Env(), s.src
	return cmd
}

// compiles starts a compile that takes some milliseconds, on a host if there is one, and returns how to end it.
func (s *site) compiles(name string, ms int) (end func()) {
	s.t.Helper()
	s.write(filepath.Join(s.src, name), fmt.Sprintf("/* stand-in: sleep %d */\n", ms))
	cmd := s.command(s.cc, "-c", name)
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended := false
	end = func() {
		if !ended {
			ended = true
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()
		}
	}
	s.t.Cleanup(end)
	return end
}

// host returns what the manager says of a host.
func (s *site) host(addr string) report.HostStatus {
	s.t.Helper()
	out, err := s.command("hosts", "--json").Output()
	var hosts []report.HostStatus
	if err == nil {
		err = json.Unmarshal(out, &hosts)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	for _, h := range hosts {
		if h.Addr == addr {
			return h
		}
	}
	s.t.Fatalf("no host %s: %s", addr, out)
	return report.HostStatus{}
}

// top opens rdistcc top in a terminal.
func (s *site) top(width, height int, vars ...string) *terminal {
	s.t.Helper()
	env := append(s.Env(), "TERM=xterm-256color", "NO_COLOR=", "COLORTERM=")
	return open(s.t, width, height, append(env, vars...), s.Wrapper, "top", "--every", "100ms")
}

const minutes = 300000 // milliseconds: until the test is over

// TestTop looks at a farm at work, drains a host and undrains it, has the manager go away and come back, and the size of
// the terminal change.
func TestTop(t *testing.T) {
	s := newSite(t)
	s.daemons(2)
	s.manager()
	a, b := s.Daemons[0].Addr, s.Daemons[1].Addr
	warm := s.compiles("first.c", 0)
	x := s.top(100, 24)
	x.shows("rdistcc top", "[hosts 2]", a, b, "? help q quit")
	var ends []func()
	for _, name := range []string{"one.c", "two.c", "three.c"} {
		ends = append(ends, s.compiles(name, minutes))
	}
	x.shows("3 running", a+" up", b+" up", "1 remote 100%", "FILE HOST PHASE AGE", "one.c 127.0.0.1:", "two.c 127.0.0.1:", "three.c 127.0.0.1:")
	warm()

	x.press("\t")
	x.shows("[files 3]", "one.c 127.0.0.1:", "two.c 127.0.0.1:", "three.c 127.0.0.1:", "compiles")
	x.press("/TWO\r")
	x.shows("/TWO", "> two.c")
	if strings.Contains(x.screen(), "three.c") {
		t.Errorf("the filter lets through\n%s", x.screen())
	}
	x.press("\x1b[Z") // back
	x.shows("[hosts 2]")

	// The second host in order is drained; a question comes first.
	first, second := a, b
	if lines := x.screen(); strings.Index(lines, b) < strings.Index(lines, a) {
		first, second = b, a
	}
	x.press("\x1b[B") // down
	x.shows("> " + second)
	x.press("d")
	x.shows("drain " + second + ": nothing new from this machine goes there (y/n)?")
	if s.host(second).Drained {
		t.Error("drained without an answer")
	}
	x.press("n")
	x.shows("? help q quit")
	x.press("d")
	x.shows("(y/n)?")
	x.press("y")
	x.shows(second+" gets nothing new; ", "> "+second+" drained")
	if !s.host(second).Drained || s.host(first).Drained {
		t.Error("another host was drained, or none")
	}
	x.press("dy")
	x.shows(second+" gets jobs again", "> "+second+" up")
	if s.host(second).Drained {
		t.Error("still drained")
	}

	// Narrow, wide and back.
	x.size(20, 10)
	x.shows("[hosts 2] 1/3", "3 run", "HOST")
	x.size(140, 40)
	x.shows("[hosts 2]", "SPEED", "VERSION", "process "+fmt.Sprint(s.Manager.PID()))

	// The manager goes. No command is under way, which would start another one.
	for _, end := range ends {
		end()
	}
	x.shows("0 running")
	s.Manager.Kill()
	x.shows("no connection manager runs at ", "[hosts 2]")
	s.manager()
	x.shows("process "+fmt.Sprint(s.Manager.PID()), a+" u")
	x.press("q")
	x.ends()
}

// TestTopLines: the last minute is drawn with blocks, and with ASCII where the terminal has nothing else.
func TestTopLines(t *testing.T) {
	s := newSite(t)
	s.daemons(1)
	s.manager()
	s.compiles("first.c", 0)
	for _, c := range []struct {
		vars  []string
		shows string
	}{{[]string{"LC_ALL=C.UTF-8"}, "▁"}, {[]string{"LC_ALL=C"}, "_"}, {[]string{"LC_ALL=", "LC_CTYPE=en_US.utf8", "LANG=C"}, "▁"}, {[]string{"LC_ALL=C.UTF-8", "TERM=linux"}, "_"}} {
		x := s.top(80, 24, c.vars...)
		x.shows("last minute", c.shows+" up to")
		if c.shows == "_" {
			if i := strings.IndexFunc(x.screen(), func(r rune) bool { return r > '~' }); i >= 0 {
				t.Errorf("%q: not ASCII:\n%s", c.vars, x.screen())
			}
		}
		x.press("q")
		x.ends()
	}
}

// TestTopWithoutManager says so in a line, until one comes.
func TestTopWithoutManager(t *testing.T) {
	s := newSite(t)
	x := s.top(80, 24)
	x.shows("no connection manager runs at " + s.Dir)
	s.daemons(1)
	s.manager()
	x.shows("[hosts 1]", s.Daemons[0].Addr)
	x.press("\x03") // ctrl+c
	x.ends()
}

// colours sets one.
var colours = regexp.MustCompile(`\x1b\[([0-9;]*;)?(3[0-7]|9[0-7]|38|48)[;m]`)

// TestTopWithoutColours: NO_COLOR is honoured, and a terminal that obeys nothing gets plain text.
func TestTopWithoutColours(t *testing.T) {
	s := newSite(t)
	s.daemons(2) // the row that is not selected has colours
	s.manager()
	s.compiles("first.c", 0)
	for _, c := range []struct {
		vars    string
		colours bool
	}{{"X=", true}, {"NO_COLOR=1", false}} {
		x := s.top(80, 24, c.vars)
		x.shows(s.Daemons[0].Addr+" up", s.Daemons[1].Addr+" up")
		x.press("/up")
		x.shows("/up_")
		x.press("\x1b")
		x.shows("? help q quit")
		x.press("q")
		x.ends()
		x.mu.Lock()
		if got := colours.MatchString(x.raw.String()); got != c.colours {
			t.Errorf("%s: colours %v: %q", c.vars, got, x.raw.String())
		}
		x.mu.Unlock()
	}
	x := s.top(80, 24, "TERM=dumb")
	x.shows("connection manager ", s.Daemons[0].Addr)
	x.press("\x03")
	<-x.end
	x.mu.Lock()
	defer x.mu.Unlock()
	if strings.Contains(x.raw.String(), "\x1b") {
		t.Errorf("a dumb terminal got %q", x.raw.String())
	}
}
