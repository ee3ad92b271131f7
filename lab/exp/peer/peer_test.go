package peer

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var handlers = map[string]Handler{
	"twice": func(_ context.Context, arg json.RawMessage) (any, error) {
		var n int
		err := json.Unmarshal(arg, &n)
		return 2 * n, err
	},
	"fail": func(context.Context, json.RawMessage) (any, error) { return nil, errors.New("as asked") },
	"work": func(context.Context, json.RawMessage) (any, error) { // in a child: it counts too
		return nil, exec.Command("sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done").Run()
	},
}

func TestMain(m *testing.M) {
	Called(handlers)
	os.Exit(m.Run())
}

func TestCalls(t *testing.T) {
	p, err := Start(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var n int
	if err := p.Call("twice", 21, &n); err != nil || n != 42 {
		t.Errorf("%d, %v", n, err)
	}
	for _, name := range []string{"fail", "unknown"} {
		if err := p.Call(name, nil, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := p.Call("twice", 1, &n); err != nil || n != 2 { // errors do not end it
		t.Errorf("%d, %v", n, err)
	}
}

// TestCPUCountsChildren: with whatever this machine has for that, and by rusage.
func TestCPUCountsChildren(t *testing.T) {
	p, err := Start(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(p.Source())
	for range 2 {
		before, err := p.CPU()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Call("work", nil, nil); err != nil {
			t.Fatal(err)
		}
		if after, err := p.CPU(); err != nil || after <= before {
			t.Errorf("CPU time %v, then %v, %v", before, after, err)
		}
		if g := p.group; g != nil {
			p.group = nil
			defer g.remove()
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// TestGroupIsChosen: version 2 where it can be written, else cpuacct, else none.
func TestGroupIsChosen(t *testing.T) {
	v1, v2 := t.TempDir(), t.TempDir()
	mounts := "cgroup " + v1 + " cgroup rw,cpuacct 0 0\ncgroup2 " + v2 + " cgroup2 rw 0 0\n"
	for _, c := range []struct {
		name, mounts, file, text string
		want                     time.Duration
	}{
		{"v1", strings.SplitAfter(mounts, "\n")[0], "cpuacct.usage", "1500\n", 1500},
		{"v2", strings.SplitAfter(mounts, "\n")[1], "cpu.stat", "usage_usec 7\nuser_usec 3\n", 7 * time.Microsecond},
	} {
		dir := map[string]string{"v1": v1, "v2": v2}[c.name]
		if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		read := map[string]func(string) (time.Duration, error){"v1": usageV1, "v2": usageV2}[c.name]
		if got, err := read(dir); err != nil || got != c.want {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
	// An ordinary directory has no cpu.stat: the group is given up.
	if g := makeGroup(1, mounts, "0::/\n"); g != nil {
		t.Errorf("%+v", g)
	}
	if got := ownGroup("4:memory:/x\n0::/user.slice\n"); got != "/user.slice" {
		t.Error(got)
	}
}
