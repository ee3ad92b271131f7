package attacks

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/compress"
	"github.com/rdistcc/rdistcc/internal/streams"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/toolchain/parcel"
)

// shipment is a toolchain as a client sends it.
type shipment struct {
	*parcel.Parcel
	encoded  []byte
	contents map[[sha256.Size]byte]func() (io.ReadCloser, error)
}

// ship describes a toolchain of this machine.
func ship(t *testing.T, tc *toolchain.Toolchain) *shipment {
	t.Helper()
	p, err := parcel.Make(t.Context(), tc)
	if err != nil {
		t.Fatal(err)
	}
	sh := &shipment{Parcel: p, encoded: p.Append(nil), contents: map[[sha256.Size]byte]func() (io.ReadCloser, error){}}
	for i := range p.Entries {
		if e := &p.Entries[i]; !e.Link() {
			sh.contents[e.Sum] = e.Open
		}
	}
	return sh
}

// infect returns the toolchain with another program in the place of one of its files. The genuine one has ".real" behind its name.
func (sh *shipment) infect(t *testing.T, name string, program []byte) *shipment {
	t.Helper()
	p := *sh.Parcel
	p.Entries, p.Files = slices.Clone(p.Entries), append(slices.Clone(p.Files), name+".real")
	i := slices.IndexFunc(p.Entries, func(e parcel.Entry) bool { return e.Name == name })
	if i < 0 || p.Entries[i].Link() {
		t.Fatalf("%s is no file of the toolchain", name)
	}
	genuine := p.Entries[i]
	genuine.Name += ".real"
	p.Entries[i].Len, p.Entries[i].Sum = uint64(len(program)), sha256.Sum256(program)
	all := map[[sha256.Size]byte]func() (io.ReadCloser, error){
		p.Entries[i].Sum: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(program)), nil },
	}
	for sum, open := range sh.contents {
		all[sum] = open
	}
	p.Entries = append(p.Entries, genuine)
	slices.SortFunc(p.Entries, func(x, y parcel.Entry) int { return strings.Compare(x.Name, y.Name) })
	slices.Sort(p.Files)
	return &shipment{parsed(t, &p), p.Append(nil), all}
}

// parsed returns a parcel as a daemon reads it, which gives it its ID.
func parsed(t *testing.T, p *parcel.Parcel) *parcel.Parcel {
	t.Helper()
	q, err := parcel.Parse(p.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// toolchains returns an HTTP client for a daemon's service of toolchains. The caller closes its idle connections.
func (s *site) toolchains() *http.Client {
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return streams.Dial(ctx, s.dev, s.addr, streams.Options{Service: streams.Toolchains})
	}, MaxConnsPerHost: 1}
	return &http.Client{Transport: tr, Timeout: 2 * time.Minute}
}

// call makes a request. refusal is why it was refused, or "".
func call(t *testing.T, c *http.Client, method, path string, body io.Reader, into any) (refusal string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://host"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if a.StatusCode >= 300 {
		var no parcel.Refusal
		if err := json.NewDecoder(a.Body).Decode(&no); err != nil {
			t.Fatalf("%s %s: %s, %v", method, path, a.Status, err)
		}
		return no.Cause + ": " + no.Text
	}
	if into != nil {
		if err := json.NewDecoder(a.Body).Decode(into); err != nil {
			t.Fatal(err)
		}
	}
	return ""
}

// sendToolchain sends a toolchain to the daemon, which can then use it.
func (s *site) sendToolchain(t *testing.T, sh *shipment) {
	t.Helper()
	if no := s.trySend(t, sh); no != "" {
		t.Fatal(no)
	}
}

// trySend returns why the daemon refuses a toolchain, or "".
func (s *site) trySend(t *testing.T, sh *shipment) (refusal string) {
	t.Helper()
	c := s.toolchains()
	defer c.CloseIdleConnections()
	var o parcel.Offered
	if no := call(t, c, http.MethodPost, "/offer", bytes.NewReader(sh.encoded), &o); no != "" {
		return no
	}
	for _, m := range o.Missing {
		e := sh.entry(m.File)
		if e == nil {
			t.Fatalf("the daemon wants %q", m.File)
		}
		f, err := sh.contents[e.Sum]()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, f, int64(m.Have)); err != nil {
			t.Fatal(err)
		}
		no := call(t, c, http.MethodPut, fmt.Sprintf("/content/%s/%s?at=%d", o.ID, m.Name, m.Have), f, nil)
		f.Close()
		if no != "" {
			return no
		}
	}
	return ""
}

func (sh *shipment) entry(name string) *parcel.Entry {
	for i := range sh.Entries {
		if e := &sh.Entries[i]; e.Name == name && !e.Link() {
			return e
		}
	}
	return nil
}

// receive has the daemon compile with compilers that it was sent, in place of its own.
func (s *site) receive(t *testing.T) {
	t.Helper()
	s.hangUp() // sending takes longer than a silent client may be
	sent := map[string]toolchain.Toolchain{}
	for name, tc := range s.tcs {
		sh := ship(t, &tc)
		s.sendToolchain(t, sh)
		if sh.ID == tc.ID {
			t.Fatalf("%s: a toolchain that was sent has the ID of the host's own", name)
		}
		tc.ID = sh.ID
		sent[name] = tc
	}
	s.tcs = sent
}

// kept returns the names of all that the daemon keeps of toolchains, with their modes and contents.
func (s *site) kept(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	root, err := os.OpenRoot(s.here(s.c.seen + "/received"))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	s.keptIn(t, root, ".", all)
	return all
}

func (s *site) keptIn(t *testing.T, root *os.Root, dir string, all map[string]string) {
	t.Helper()
	d, err := root.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	list, err := d.ReadDir(-1)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		name := dir + "/" + e.Name()
		st, err := root.Lstat(name)
		if err != nil {
			t.Fatal(err)
		}
		text := st.Mode().String()
		switch {
		case e.IsDir():
			s.keptIn(t, root, name, all)
		case st.Mode().IsRegular() && dir == "./contents":
			b, err := root.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			text += fmt.Sprintf(" %s %x", st.ModTime(), sha256.Sum256(b))
		case st.Mode().IsRegular():
			text += fmt.Sprintf(" %d", st.Size())
		}
		all[name] = text
	}
}

// with returns the toolchain with more entries and directories, which trees show. text is the content of those that are files.
func (sh *shipment) with(t *testing.T, text string, entries []parcel.Entry, dirs ...string) *shipment {
	t.Helper()
	p := *sh.Parcel
	p.Entries, p.Dirs = append(slices.Clone(p.Entries), entries...), append(slices.Clone(p.Dirs), dirs...)
	all := map[[sha256.Size]byte]func() (io.ReadCloser, error){
		sha256.Sum256([]byte(text)): func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil },
	}
	for sum, open := range sh.contents {
		all[sum] = open
	}
	p.Files = slices.Clone(p.Files)
	for i := range entries {
		if !entries[i].Link() {
			p.Files = append(p.Files, entries[i].Name)
		}
	}
	slices.SortFunc(p.Entries, func(x, y parcel.Entry) int { return strings.Compare(x.Name, y.Name) })
	slices.Sort(p.Files)
	slices.Sort(p.Dirs)
	return &shipment{parsed(t, &p), p.Append(nil), all}
}

// TestHostileParcels: a toolchain that has what belongs to jobs, or leads elsewhere, is trouble for its own jobs at most. A
// content that is not what its list says is refused.
func TestHostileParcels(t *testing.T) {
	if testing.Short() {
		t.Skip("sends a hundred megabytes")
	}
	part.Skip(t)
	bin := filepath.Join(farmtest.Programs(t), "rdistccd")
	tcs, have := identify(t)
	m := modes[slices.IndexFunc(modes, func(m mode) bool { return m.name == "user" })]
	if err := m.can(); err != nil || !have["gcc"] {
		need.Skipf(t, need.Tools, "no gcc")
	}
	s := newSite(t, m, bin, tcs)
	s.honest(t, "gcc")
	if !s.trees {
		need.Skipf(t, need.Sandbox, "no private trees here")
	}
	gcc := tcs["gcc"]
	genuine := ship(t, &gcc)
	s.hangUp()
	s.sendToolchain(t, genuine)
	good := &evilToolchain{site: s, shipment: genuine}
	want := s.object(t, good.job(""))

	text := "int planted;\n"
	file := func(name string) parcel.Entry {
		return parcel.Entry{Name: name, Exec: true, Len: uint64(len(text)), Sum: sha256.Sum256([]byte(text))}
	}
	link := func(name, target string) parcel.Entry { return parcel.Entry{Name: name, Target: target} }
	for what, c := range map[string]struct {
		entries []parcel.Entry
		dirs    []string
	}{
		"the job's directory is a file":         {[]parcel.Entry{file("/src")}, nil},
		"the job's directory is shown whole":    {[]parcel.Entry{file("/src/in.c"), file("/src/out.o")}, []string{"/src"}},
		"the job's source is a file":            {[]parcel.Entry{file("/src/in.c")}, nil},
		"the headers' directory is a file":      {[]parcel.Entry{file("/usr/include")}, nil},
		"the headers' directory is shown whole": {[]parcel.Entry{file("/usr/include/stdio.h")}, []string{"/usr/include"}},
		"the job's source is a link":            {[]parcel.Entry{file("/src/x"), link("/src/in.c", "/dev/zero")}, []string{"/src"}},
		"the job's object is a link":            {[]parcel.Entry{file("/src/x"), link("/src/out.o", "/proc/1/environ")}, []string{"/src"}},
		"the job's directory is a link":         {[]parcel.Entry{link("/src", "/opt/y"), file("/opt/y/x")}, []string{"/src"}},
		"the directory above is a link":         {[]parcel.Entry{link("/usr/local/include", "/proc/1/root"), file("/usr/local/x")}, []string{"/usr/local"}},
		"links to everywhere": {[]parcel.Entry{link("/a/a", s.c.names["SECRETDIR"]), link("/a/b", "../../../../.."+s.c.names["SECRET"]), link("/a/c", "/proc/1/root"+s.c.names["SECRET"]),
			link("/a/d", "/dev/zero"), link("/a/e", "/a/e"), link("/a/f", "/proc/self/root"), file("/a/x")}, []string{"/a"}},
		"directories of the machine": {[]parcel.Entry{file("/home/x"), file("/root/x"), file("/var/lib/x"), file("/etc/passwd"), file("/.hosts"), file("/lost+found")}, []string{"/home", "/root", "/var"}},
	} {
		e := &evilToolchain{site: s, shipment: genuine.with(t, text, c.entries, c.dirs...), part: what}
		s.hangUp()
		s.sendToolchain(t, e.shipment)
		for range 2 {
			v := s.tryJob(t, trial{&attack{id: what, class: "parcel", must: "contain", repeat: 1}, "gcc"}, e.job(""))
			t.Logf("%s: %s", what, v.what)
			if len(v.breaches) > 0 {
				t.Errorf("%s: %q (%s) %s", what, v.breaches, v.what, v.said)
			}
		}
		if got := s.object(t, good.job("")); !bytes.Equal(got, want) {
			t.Errorf("%s: another object by a genuine toolchain", what)
		}
	}
	s.wrongContents(t, genuine)
	s.hangUp() // that took a while, and a client that was silent is taken for lost
	s.honest(t, "gcc")
	s.proven(t)
}

// wrongContents sends contents that are not what was announced.
func (s *site) wrongContents(t *testing.T, genuine *shipment) {
	t.Helper()
	announced := bytes.Repeat([]byte("announced"), 1000)
	e := parcel.Entry{Name: "/opt/x", Len: uint64(len(announced)), Sum: sha256.Sum256(announced)}
	sh := genuine.with(t, string(announced), []parcel.Entry{e})
	// The offer makes room: the toolchain that has been unused for longest goes, if none shows it any more.
	offer := func(what string, c *http.Client) (o parcel.Offered) {
		if no := call(t, c, http.MethodPost, "/offer", bytes.NewReader(sh.encoded), &o); no != "" || len(o.Missing) != 1 || o.Missing[0].Have != 0 {
			t.Fatalf("%s: %s, %+v", what, no, o.Missing)
		}
		return o
	}
	first := s.toolchains()
	offer("nothing yet", first)
	first.CloseIdleConnections()
	before := s.kept(t)
	for what, content := range map[string]io.Reader{
		"another content": bytes.NewReader(bytes.Repeat([]byte("else......"), 900)[:len(announced)]),
		"a byte more":     bytes.NewReader(append(bytes.Clone(announced), 'x')),
		"10 GB of zeros":  io.LimitReader(zeros{}, 10<<30),
		"a bomb":          bytes.NewReader(bomb(t)),
	} {
		c := s.toolchains()
		o := offer(what, c)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://host/content/"+o.ID+"/"+o.Missing[0].Name+"?at=0", content)
		if err != nil {
			t.Fatal(err)
		}
		if what == "a bomb" {
			r.Header.Set("Content-Encoding", "zstd")
		}
		a, err := c.Do(r)
		switch {
		case err == nil:
			a.Body.Close()
			if a.StatusCode < 300 {
				t.Errorf("%s: %s", what, a.Status)
			}
		case what != "10 GB of zeros": // the daemon does not wait for the rest
			t.Errorf("%s: %v", what, err)
		}
		c.CloseIdleConnections()
		after := s.kept(t)
		for name, now := range after {
			if was, there := before[name]; was != now {
				t.Errorf("%s: %s is kept: %s, before %s (%t)", what, name, now, was, there)
			}
		}
		for name := range before {
			if _, there := after[name]; !there {
				t.Errorf("%s: %s is lost", what, name)
			}
		}
	}
	s.sendToolchain(t, sh)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// bomb returns a gigabyte of zeros, compressed.
func bomb(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := compress.Copy(&b, io.LimitReader(zeros{}, 1<<30)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
