package connmgr

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// ask sends a question as a subcommand does, and decodes the answer into v.
func (r *rig) ask(v any, hosts string, words ...string) (code uint8, data string) {
	r.t.Helper()
	w := r.dial()
	defer w.close()
	w.send(&ipc.Control{Version: ipc.Version, Args: words, Hosts: hosts})
	m, ok := w.recv().(*ipc.Reply)
	if !ok {
		r.t.Fatalf("%v: no Reply", words)
	}
	if m.Code == 0 && v != nil {
		if err := json.Unmarshal(m.Data, v); err != nil {
			r.t.Errorf("%v: %v: %s", words, err, m.Data)
		}
	}
	return m.Code, string(m.Data)
}

// TestDrainByHand: a drained host finishes its jobs and gets no new ones. It stays drained under the next
// manager, until it is undrained.
func TestDrainByHand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "drained")
	r := newRig(t, func(o *Options) { o.Drains = file })
	started, goOn := make(chan struct{}, 1), make(chan struct{})
	a := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
			started <- struct{}{}
			<-goOn
			c.Finish(j, daemontest.Compiled(j))
		}
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.remote(a.Addr, "int first;")
	}()
	<-started
	var d report.Drained
	if code, data := r.ask(&d, a.Addr, "drain", a.Addr); code != 0 || !d.Drained || d.Was || d.Running != 1 || d.Host != a.Addr {
		t.Fatalf("drain: %d %s", code, data)
	}
	if no := r.goLocal(a.Addr, "int second;"); no.Reason != "refused:draining" {
		t.Errorf("on a drained host: %+v", no)
	}
	close(goOn)
	<-done // with its result
	b := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	for range 3 {
		if res := r.remote(a.Addr+" "+b.Addr, "int x;"); res.Host != b.Addr {
			t.Errorf("a job went to %s, which is drained", res.Host)
		}
	}
	s := r.m.Status()
	for _, h := range s.Hosts {
		if h.Drained != (h.Addr == a.Addr) || h.Drained && !strings.Contains(h.Note(), "drained by hand") {
			t.Errorf("%+v", h)
		}
	}
	if len(s.Drained) != 1 || s.Drained[0] != a.Addr {
		t.Errorf("drained are %q", s.Drained)
	}
	if code, _ := r.ask(&d, a.Addr, "drain", a.Addr); code != 0 || !d.Was {
		t.Errorf("again: %+v", d)
	}
	r.close()

	r = newRig(t, func(o *Options) { o.Drains = file })
	a = daemontest.Start(t, r.far, a.Addr, nil)
	if no := r.goLocal(a.Addr, "int x;"); no.Reason != "refused:draining" && no.Reason != "host-lost" {
		t.Errorf("after a restart: %+v", no)
	}
	if code, data := r.ask(&d, a.Addr, "undrain", a.Addr); code != 0 || d.Drained || d.Was {
		t.Errorf("undrain: %d %s", code, data)
	}
	eventually(t, "jobs there again", func() bool {
		w := r.dial()
		defer w.close()
		got, _ := w.run(leaseOf(a.Addr), "int x;")
		res, ok := got.(*ipc.Result)
		return ok && res.Host == a.Addr
	})
	if text, err := os.ReadFile(file); err != nil || len(text) != 0 {
		t.Errorf("%q is remembered, %v", text, err)
	}
}

// TestDrainOfWhatIsNone: a drain of something that is not a host is answered with the hosts that can be named.
func TestDrainOfWhatIsNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gone", "drained")
	r := newRig(t, func(o *Options) { o.Drains = file })
	for _, c := range []struct{ hosts, name, want string }{
		{"", "x", "no host x: no hosts are configured here"},
		{"a b/3", "x", "no host x: the hosts are a:7632, b:7632"},
		{"a:1 a:2", "a", "a is a:1 or a:2: name the port"},
		{"a", "a b", `"a b" is not a host`},
		{"a", "a/x", `"a/x" is not a host`},
		{"a", "a", "remember that a:7632 is drained"}, // the directory of the file does not exist
	} {
		if code, data := r.ask(nil, c.hosts, "drain", c.name); code == 0 || !strings.Contains(data, c.want) {
			t.Errorf("drain %q of %q: %d %q, want %q", c.name, c.hosts, code, data, c.want)
		}
	}
	if code, _ := r.ask(nil, "a", "drain"); code != reason.ExitArguments {
		t.Errorf("drain of nothing: %d", code)
	}
	if s := r.m.Status(); len(s.Drained) != 0 {
		t.Errorf("drained are %q", s.Drained)
	}
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	var d report.Drained
	if code, data := r.ask(&d, "[2001:db8::7]:80 b:9", "drain", "b"); code != 0 || d.Host != "b:9" {
		t.Errorf("a name without its port: %d %s", code, data)
	}
}

func TestPlaces(t *testing.T) {
	r := newRig(t, nil)
	a := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) { d.Jobs = 6 })
	r.remote(a.Addr, "int x;")
	for _, c := range []struct {
		list string
		want int
	}{
		{a.Addr, 6}, {a.Addr + "/2", 2}, {a.Addr + " nobody:1/3 other:1 localhost/5", 6 + 3 + report.GuessedPlaces + 5}, {"localhost/2", 2},
	} {
		var p report.Places
		if code, data := r.ask(&p, c.list, "places"); code != 0 || p.Hosts+p.Guess+p.Local != c.want {
			t.Errorf("%s: %d %s, want %d", c.list, code, data, c.want)
		}
	}
	var p report.Places
	r.ask(nil, a.Addr, "drain", a.Addr)
	if r.ask(&p, a.Addr, "places"); p.Hosts != 0 {
		t.Errorf("a drained host has %d places", p.Hosts)
	}
	if code, _ := r.ask(nil, "a@b", "places"); code != reason.ExitHostList {
		t.Errorf("of a bad list: %d", code)
	}
	r = newRig(t, func(o *Options) { o.LocalShare = true })
	if r.ask(&p, "nobody:1/3 localhost/3", "places"); p.Local != 8 || p.Guess != 3 {
		t.Errorf("with the cores here: %+v", p)
	}
}

func TestStatsAndWhy(t *testing.T) {
	r := newRig(t, nil)
	a := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	for range 3 {
		r.remote(a.Addr, "int x;")
	}
	eventually(t, "three to be counted", func() bool { return len(r.m.Status().Recent) == 3 })
	r.goLocal("", "int x;")
	r.idle()
	eventually(t, "all four to be counted", func() bool { return len(r.m.Status().Recent) == 4 })
	var s report.Stats
	if code, data := r.ask(&s, "", "stats"); code != 0 || len(s.Jobs) != 2 || s.Jobs[0].OK != 3 || len(s.Hosts) != 1 || s.Hosts[0].OK != 3 ||
		s.Phases[len(s.Phases)-1].Count != 3 || s.Prediction.Count+s.Prediction.Unknown != 3 || s.BytesOut == 0 {
		t.Errorf("%d %s", code, data)
	}
	for name, n := range map[string]int{"/src/x.c": 4, "/src/x.o": 4, "/elsewhere/src/x.c": 0, "/other/x.c": 4, "/src/y.c": 0} {
		var w report.Why
		if code, data := r.ask(&w, "", "why", name, filepath.Base(name)); code != 0 || len(w.Jobs) != n || w.Remembered != 4 {
			if name != "/elsewhere/src/x.c" || len(w.Jobs) != 4 { // its base name matches
				t.Errorf("%s: %d %s, want %d jobs", name, code, data, n)
			}
		}
	}
	var w report.Why
	r.ask(&w, "", "why", "/src/x.c", "x.c")
	if w.Jobs[1].Cwd != "/src" || !w.Jobs[0].Local || w.Jobs[0].Reason != "no-hosts" || w.Jobs[1].Host != a.Addr || w.Jobs[1].TotalUS != 5000 {
		t.Errorf("the newest first: %+v", w.Jobs)
	}
	if code, _ := r.ask(nil, "", "why"); code != reason.ExitArguments {
		t.Errorf("why nothing: %d", code)
	}
}
