package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// TestKeysOfReload: the lists name keys that there are, and none twice.
func TestKeysOfReload(t *testing.T) {
	var keys []string
	for _, s := range config.Default().Settings() {
		keys = append(keys, s.Key)
	}
	for _, k := range taken {
		if !slices.Contains(keys, k) || ofDaemons(k) {
			t.Errorf("%s is no setting that a manager takes", k)
		}
	}
	for _, k := range []string{"http.daemon", "http.readers"} { // nothing under this name is the manager's
		if !ofDaemons(k) {
			t.Errorf("%s is taken for a setting of managers", k)
		}
	}
	for _, k := range []string{"toolchains.send", "cache.replicas"} {
		if !slices.Contains(keys, k) || ofDaemons(k) || slices.Contains(taken, k) {
			t.Errorf("a change of %s is not said to take a restart", k)
		}
	}
	for _, d := range daemons {
		if !slices.ContainsFunc(keys, func(k string) bool { return strings.HasPrefix(k, d) }) {
			t.Errorf("no setting begins with %s", d)
		}
	}
}

// ask sends a question and decodes the answer.
func (p *program) ask(v any, words ...string) {
	p.t.Helper()
	c := p.dial()
	defer c.Close()
	if err := c.Send((&ipc.Control{Version: ipc.Version, Args: words}).Append(nil)); err != nil {
		p.t.Fatal(err)
	}
	kind, fields, err := c.Recv()
	var reply ipc.Reply
	if err != nil || kind != ipc.KindReply || reply.Parse(fields) != nil || reply.Code != 0 {
		p.t.Fatalf("%q: frame %d, %v, %s", words, kind, err, reply.Data)
	}
	if err := json.Unmarshal(reply.Data, v); err != nil {
		p.t.Fatal(err)
	}
}

// inForce is a setting's value.
func (p *program) inForce(key string) string {
	p.t.Helper()
	var all []config.Setting
	p.ask(&all, "config")
	i := slices.IndexFunc(all, func(s config.Setting) bool { return s.Key == key })
	if i < 0 {
		p.t.Fatalf("no setting %s", key)
	}
	return all[i].Value
}

// edit writes the configuration as an editor does that renames a new file over it.
func (p *program) edit(text string) (path string) {
	p.t.Helper()
	path = filepath.Join(p.dir, ".config/rdistcc/config.yaml")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// TestReload: a configuration is applied completely, except for what takes a restart, or not at all; the answer says
// which.
func TestReload(t *testing.T) {
	p := start(t, t.TempDir())
	var r report.Reloaded
	if p.ask(&r, "reload"); r.File != "" || r.Error != "" || len(r.Changed)+len(r.Restart) != 0 {
		t.Errorf("without a file: %+v", r)
	}
	path := p.edit("fallback:\n  allow: false\nbuffers: {slots: 8}\nhosts: [127.0.0.1:1]\ndaemon: {jobs: 3}\n")
	// By itself it may be faster than we are: what it says of what changed is in its log then.
	p.ask(&r, "reload")
	if r.File != path || r.Error != "" || !slices.Equal(r.Restart, []string{"buffers.slots"}) || r.ListFrom != path+":4" {
		t.Errorf("after an edit: %+v", r)
	}
	for key, want := range map[string]string{"fallback.allow": "false", "hosts": `["127.0.0.1:1"]`, "buffers.slots": "0"} {
		if got := p.inForce(key); got != want {
			t.Errorf("%s is %s, want %s in force", key, got, want)
		}
	}
	s := p.status()
	if s.Config == nil || s.Config.File != path || s.Config.Error != "" || !slices.Equal(s.Config.Restart, []string{"buffers.slots"}) || s.ListFrom != path+":4" {
		t.Errorf("status has %+v, list from %s", s.Config, s.ListFrom)
	}
	// Half of what was to be: nothing of it counts.
	p.edit("hosts: [127.0.0.1:2]\nfallbak:\n  allow: true\n")
	want := path + `:2: unknown key "fallbak" (did you mean "fallback"?)`
	r = report.Reloaded{}
	if p.ask(&r, "reload"); r.Error != want || len(r.Changed) != 0 {
		t.Errorf("after a bad edit: %+v, want %s", r, want)
	}
	if s := p.status(); s.Config.Error != want || p.inForce("hosts") != `["127.0.0.1:1"]` {
		t.Errorf("status has %+v, hosts %s", s.Config, p.inForce("hosts"))
	}
	// Nothing is there any more: the defaults.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	r = report.Reloaded{}
	if p.ask(&r, "reload"); r.Error != "" || r.File != "" || len(r.Restart) != 0 || p.inForce("fallback.allow") != "true" {
		t.Errorf("after the file has gone: %+v", r)
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("ended with %d\n%s", code, &p.log)
	}
	for _, line := range []string{`msg=reloaded`, `fallback.allow`, `setting=buffers.slots`, `unknown key`} {
		if !strings.Contains(p.log.String(), line) {
			t.Errorf("log lacks %s:\n%s", line, &p.log)
		}
	}
}

// TestEditsAreTaken: edits take effect without a command, whether the file is created, renamed over, written in
// place, or removed.
func TestEditsAreTaken(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for seconds")
	}
	p := start(t, t.TempDir())
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	path := p.edit("diagnostics: fast\n")
	until("a file that was made is not taken", func() bool { return p.inForce("diagnostics") == "fast" })
	p.edit("diagnostics: fast\nfallback: {attempts: 3}\n")
	until("a file that was renamed over it is not taken", func() bool { return p.inForce("fallback.attempts") == "3" })
	if err := os.WriteFile(path, []byte("fallback: {attempts: x}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	until("a bad edit is not told", func() bool { return strings.HasPrefix(p.status().Config.Error, path+":1: fallback.attempts: ") })
	if got := p.inForce("fallback.attempts"); got != "3" {
		t.Errorf("a bad edit set it to %s", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	until("the file's end is not noticed", func() bool { return p.inForce("fallback.attempts") == "2" })
}

// TestBadHostFileKeepsTheList: until it can be used again.
func TestBadHostFileKeepsTheList(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "state", "hosts")
	write := func(text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("127.0.0.1:1\n")
	p := start(t, dir)
	hosts := func() (addrs []string) {
		var list []report.HostStatus
		p.ask(&list, "hosts")
		for _, h := range list {
			addrs = append(addrs, h.Addr)
		}
		return addrs
	}
	if got := hosts(); !slices.Equal(got, []string{"127.0.0.1:1"}) {
		t.Fatalf("hosts are %q", got)
	}
	write("127.0.0.1:2\nb:x\n")
	var r report.Reloaded
	if p.ask(&r, "reload"); !strings.Contains(r.ListError, file+":2: ") || !r.ListKept {
		t.Errorf("reload of a bad list: %+v", r)
	}
	if got := hosts(); !slices.Equal(got, []string{"127.0.0.1:1"}) {
		t.Errorf("hosts are %q, want those before", got)
	}
	if s := p.status(); !s.ListKept || s.ListFrom != file || !strings.Contains(s.ListError, "b:x") {
		t.Errorf("status: from %s, kept %t, %s", s.ListFrom, s.ListKept, s.ListError)
	}
	write("127.0.0.1:3\n")
	r = report.Reloaded{}
	if p.ask(&r, "reload"); r.ListError != "" || r.ListKept || !slices.Equal(hosts(), []string{"127.0.0.1:3"}) {
		t.Errorf("reload of a good list: %+v, hosts %q", r, hosts())
	}
}
