package worker

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// testSign signs as the tests' host.
func testSign(sum [32]byte) ([]byte, error) {
	s := sha256.Sum256(append([]byte("host "), sum[:]...))
	return s[:], nil
}

func testVerify(sum [32]byte, signature []byte) (string, error) {
	if s, _ := testSign(sum); !bytes.Equal(s, signature) {
		return "", errors.New("forged")
	}
	return "host", nil
}

// startGroup starts a server for the group team of alice and bob, to which carol does not belong.
func startGroup(t *testing.T, change func(*Options)) (ts *testServer, alice, bob, carol *testClient) {
	t.Helper()
	ts, addr := startNamed(t, func(o *Options) {
		o.Results, o.Sandbox, o.Sign = 16<<20, SandboxAuto, testSign
		o.Groups = map[string]string{"tls:127.0.0.2": "team", "tls:127.0.0.3": "team"}
		if change != nil {
			change(o)
		}
	})
	if !ts.places.Trees {
		need.Skipf(t, need.Sandbox, "needs the right to make namespaces")
	}
	dial := func(ip string, boot byte) *testClient { return dialFrom(t, ip, addr, boot, &job.Hello{Name: "desk"}) }
	return ts, dial("127.0.0.2", 2), dial("127.0.0.3", 3), dial("127.0.0.4", 4)
}

// unshared returns how many results were not kept for a group for that reason.
func (ts *testServer) unshared(t *testing.T, why string) float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	if err := ts.o.Metrics.Register(r, ts.Server); err != nil {
		t.Fatal(err)
	}
	return counted(t, r, "rdistccd_results_unshared_total")[why]
}

// shownFile is a file as a manager finds it.
type shownFile struct {
	name, text string
	sec        int64 // when it was modified
	exec       bool
	same       string // another name of it
}

// shows is what a job shows to gcc, with the source first.
type shows struct {
	files []shownFile
	dirs  []string
	links []unit.Link
}

// request returns a job that shows this, with a list or without one.
func (x *shows) request(list bool) request {
	q := request{body: treeBody("gcc")}
	q.body.Files, q.body.Dirs, q.body.Links = nil, x.dirs, x.links
	for _, f := range x.files {
		u := unit.File{Name: f.name, Len: uint64(len(f.text)), MTime: f.sec * 1e9, Exec: f.exec}
		if f.same != "" {
			u.Same, u.Len = uint32(1+slices.IndexFunc(x.files, func(o shownFile) bool { return o.name == f.same })), 0
		} else {
			q.text += f.text
		}
		q.body.Files = append(q.body.Files, u)
	}
	if list {
		return inParts(q).named(true)
	}
	return q
}

// key returns the name that an honest manager gives to the result of such a job.
func (x *shows) key(ts *testServer) resultcache.Key {
	v := &resultcache.Inputs{Dirs: slices.Clone(x.dirs), Links: slices.Clone(x.links)}
	for i, f := range x.files {
		n := uint64(i)
		if f.same != "" {
			n = uint64(slices.IndexFunc(x.files, func(o shownFile) bool { return o.name == f.same }))
			f.text, f.sec, f.exec = x.files[n].text, x.files[n].sec, x.files[n].exec
		}
		v.Files = append(v.Files, resultcache.Input{Name: f.name, ID: idOf(f.text), MTime: f.sec * int64(time.Second), Exec: f.exec, Inode: resultcache.Inode{Dev: 9, Ino: 100 + n}})
	}
	body := treeBody("gcc")
	return resultcache.KeyOf(ts.tool("gcc"), &body, v.Sum())
}

// project is a job with everything that a sum covers.
func everything() *shows {
	return &shows{
		files: []shownFile{
			{name: "/src/a.c", text: "#include \"one.h\"\n#include \"far/two.h\"\n#include \"link.h\"\nint x = ONE + TWO + LINK;\n", sec: 100},
			{name: "/src/one.h", text: "#define ONE 1\n", sec: 200},
			{name: "/src/far/two.h", text: "#define TWO 2\n", sec: 300, exec: true},
			{name: "/src/twin/one.h", text: "#define ONE 1\n", sec: 200},
			{name: "/src/other/one.h", text: "#define ONE 1\n", sec: 201},
			{name: "/src/same.h", same: "/src/far/two.h"},
			{name: "/src/zero.h", sec: 5}, {name: "/src/nil.h", sec: 5},
			{name: "/elsewhere/link.h", text: "#define LINK 4\n", sec: 400},
		},
		dirs: []string{"/src/empty", "/src"}, links: []unit.Link{{Name: "/src/link.h", Target: "/elsewhere/link.h"}},
	}
}

// TestGroup: what a member of a group has had compiled, the others read, and know who has made it; nobody else does. It does not
// matter whether the job brought its files or named lists.
func TestGroup(t *testing.T) {
	ts, alice, bob, carol := startGroup(t, nil)
	if alice.welcome.Group != "team" || bob.welcome.Group != "team" || carol.welcome.Group != "" {
		t.Fatalf("groups %q, %q, %q", alice.welcome.Group, bob.welcome.Group, carol.welcome.Group)
	}
	gcc := ts.tool("gcc")
	for i, list := range []bool{false, true} {
		x := everything()
		x.files[0].text += strings.Repeat("\n", i)
		key := x.key(ts)
		for _, c := range []*testClient{alice, carol} {
			q := x.request(list)
			q.change = func(m *job.Job) { m.Key = key }
			if r := c.do(gcc, q); r.Status != job.StatusRan || r.Exit != 0 {
				t.Fatalf("%+v: %s", r.Result, r.bytes(r.Stderr))
			}
		}
		e := bob.look(key)
		if e == nil {
			t.Fatalf("list %v: the result is not there\n%s", list, ts.log)
		}
		if who, err := e.Maker(testVerify); err != nil || who != "host" || e.Builder != "tls:127.0.0.2" {
			t.Errorf("made by %q for %q, %v", who, e.Builder, err)
		}
		if e := carol.look(key); e == nil || e.Signed != nil || e.Builder != "desk" {
			t.Errorf("a tenant without a group: %+v", e)
		}
	}
	if st := ts.Status().Results; st.Entries != 4 || st.Tenants != 2 {
		t.Errorf("%+v", st)
	}
	for _, why := range []string{unsharedName, unsharedToolchain, unsharedInputs, unsharedConfinement, unsharedSignature} {
		if n := ts.unshared(t, why); n != 0 {
			t.Errorf("%v results not kept: %s", n, why)
		}
	}
}

// TestForgedNames: a member that names its result as that of another job has it kept for nobody, whatever it lies about. It is
// counted, and the log has one line.
func TestForgedNames(t *testing.T) {
	ts, alice, bob, carol := startGroup(t, nil)
	gcc := ts.tool("gcc")
	lies := map[string]func(x *shows){
		"the source": func(x *shows) { x.files[0].text += "int y;\n" },
		"a header": func(x *shows) {
			x.files[1].text, x.files[3].text, x.files[4].text = "#define ONE 9\n", "#define ONE 9\n", "#define ONE 9\n"
		},
		"a file too many":    func(x *shows) { x.files = append(x.files, shownFile{name: "/src/more.h", text: "x", sec: 1}) },
		"a file less":        func(x *shows) { x.files = slices.Delete(x.files, 3, 4) },
		"a name":             func(x *shows) { x.files[3].name = "/src/twin/uno.h" },
		"a mode":             func(x *shows) { x.files[1].exec = true },
		"twins that are not": func(x *shows) { x.files[3].sec = 7 },
		"twins unnamed":      func(x *shows) { x.files[4].sec = 200 },
		"a hard link": func(x *shows) {
			x.files[5] = shownFile{name: "/src/same.h", text: "#define TWO 2\n", sec: 300, exec: true}
		},
		"one file as two": func(x *shows) { x.files[3] = shownFile{name: "/src/twin/one.h", same: "/src/one.h"} },
		"a directory":     func(x *shows) { x.dirs = x.dirs[1:] },
		"a link":          func(x *shows) { x.links = nil; x.files[8].name = "/src/link.h" },
	}
	n := 0.0
	for what, lie := range lies {
		for _, list := range []bool{false, true} {
			honest, x := everything(), everything()
			lie(x)
			key := honest.key(ts)
			q := x.request(list)
			q.change = func(m *job.Job) { m.Key = key }
			for _, c := range []*testClient{alice, carol} {
				if r := c.do(gcc, q); r.Status != job.StatusRan || r.Exit != 0 {
					t.Fatalf("%s: %+v: %s", what, r.Result, r.bytes(r.Stderr))
				}
			}
			if n++; bob.look(key) != nil || ts.unshared(t, unsharedName) != n {
				t.Errorf("a lie about %s, list %v: kept %v, %v counted, want %v", what, list, bob.look(key) != nil, ts.unshared(t, unsharedName), n)
			}
		}
	}
	// Another command, another directory, another compiler's name.
	for what, change := range map[string]func(b *job.Body){
		"a word": func(b *job.Body) { b.Args = append([]string{"-O2"}, b.Args...) },
		"the working directory": func(b *job.Body) {
			b.Cwd, b.Args = "/elsewhere", []string{"-c", "/src/a.c", "-o", "x.o"}
		},
		"the environment": func(b *job.Body) { b.Env = []string{"PWD=/src"} },
	} {
		x := everything()
		key := x.key(ts)
		q := x.request(false)
		change(&q.body)
		q.change = func(m *job.Job) { m.Key = key }
		if r := alice.do(gcc, q); r.Status != job.StatusRan || r.Exit != 0 {
			t.Fatalf("%s: %+v: %s", what, r.Result, r.bytes(r.Stderr))
		}
		if n++; bob.look(key) != nil || ts.unshared(t, unsharedName) != n {
			t.Errorf("another %s: kept, or %v counted, want %v", what, ts.unshared(t, unsharedName), n)
		}
	}
	if lines := strings.Count(ts.log.String(), "has named a result otherwise than its job"); lines != 1 {
		t.Errorf("the log has %d lines", lines)
	}
	// Files whose names could mean something else than they say.
	for _, name := range []string{"one.h", "/src/../src/one.h", "/src//one.h"} {
		x := everything()
		x.files[1].name = name
		key := x.key(ts)
		q := x.request(false)
		q.change = func(m *job.Job) { m.Key = key }
		before := ts.unshared(t, unsharedInputs)
		if r := alice.do(gcc, q); r.Status != job.StatusRan || r.Exit != 0 {
			t.Fatalf("%s: %+v: %s", name, r.Result, r.bytes(r.Stderr))
		}
		if bob.look(key) != nil || ts.unshared(t, unsharedInputs) != before+1 {
			t.Errorf("a file %q: kept, or not counted", name)
		}
	}
}

// TestUnsigned: where compiles are not confined, or a result cannot be signed, nothing is kept for a group.
func TestUnsigned(t *testing.T) {
	part.Skip(t)
	for why, change := range map[string]func(*Options){
		unsharedConfinement: func(o *Options) { o.Sandbox = SandboxOff },
		unsharedSignature:   func(o *Options) { o.Sign = func([32]byte) ([]byte, error) { return nil, errors.New("no key") } },
	} {
		t.Run(why, func(t *testing.T) {
			ts, alice, bob, _ := startGroup(t, change)
			x := everything()
			key := x.key(ts)
			q := x.request(true)
			q.change = func(m *job.Job) { m.Key = key }
			if r := alice.do(ts.tool("gcc"), q); r.Status != job.StatusRan || r.Exit != 0 {
				t.Fatalf("%+v", r.Result)
			}
			if bob.look(key) != nil || ts.unshared(t, why) != 1 {
				t.Errorf("kept, or not counted")
			}
		})
	}
}
