package received

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/toolchain/parcel"
	"github.com/rdistcc/rdistcc/internal/unit"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const quota = 1200 << 10

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(Options{Dir: dir, Quota: quota, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(func() { _ = s.Close() }) // a test may have closed it
	return s
}

// kit is a toolchain that a client has.
type kit struct {
	encoded  []byte
	contents map[string][]byte // by contentName
}

// newKit returns a toolchain of a driver, a compiler, and a file with the driver's content that is not executable. The names of
// the kit decide the contents; all kits share libc.
func newKit(driver, compiler string, size int) *kit {
	k := &kit{contents: map[string][]byte{}}
	p := parcel.Parcel{Toolchain: toolchain.Toolchain{Exec: "/opt/bin/gcc", Path: "/opt/bin/gcc", Family: "gcc", Version: "12.2.0", Target: "x86_64-linux-gnu", Major: 12,
		Files: []string{"/lib/libc.so.6", "/opt/bin/gcc", "/opt/lib/cc1"}}}
	add := func(name, text string, n int, exec bool) {
		b := bytes.Repeat([]byte(text), n)
		e := parcel.Entry{Name: name, Exec: exec, Len: uint64(len(b)), Sum: sha256.Sum256(b)}
		p.Entries = append(p.Entries, e)
		k.contents[contentName(&e)] = b
	}
	add("/lib/libc.so.6", "libc", 1, true)
	add("/opt/bin/gcc", driver, 10, true)
	add("/opt/lib/cc1", compiler, size/len(compiler), true)
	add("/opt/lib/data", driver, 10, false)
	k.encoded = p.Append(nil)
	return k
}

func (k *kit) id(t *testing.T) unit.ToolchainID {
	t.Helper()
	p, err := parcel.Parse(k.encoded)
	must(t, err)
	return p.ID
}

// send has a tenant send a toolchain.
func (k *kit) send(t *testing.T, s *Store, tenant string) (written int) {
	t.Helper()
	id, missing, err := s.Offer(tenant, k.encoded)
	must(t, err)
	for _, m := range missing {
		name := contentName(m.Entry)
		must(t, only(s.Write(tenant, id, name, m.Have, bytes.NewReader(k.contents[name][m.Have:]))))
		written += len(k.contents[name]) - int(m.Have)
	}
	return written
}

func only(_ []string, err error) error { return err }

func usable(s *Store, tenant string) int { return len(s.List(tenant)) }

// TestSend: a toolchain can be used once all of it has come, by the tenants that have offered it; what is there already is not
// sent again; and all of that survives a restart.
func TestSend(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	k := newKit("driver", "compiler", 1000)
	if n := k.send(t, s, "alice"); n != 4+60+1000+60 {
		t.Errorf("%d bytes", n)
	}
	tc, done, err := s.Use("alice", k.id(t))
	must(t, err)
	done()
	for name, want := range map[string]string{"/opt/bin/gcc": strings.Repeat("driver", 10), "/lib/libc.so.6": "libc"} {
		b, err := os.ReadFile(tc.Root + name)
		if err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	for name, want := range map[string]os.FileMode{"/opt/bin/gcc": 0o555, "/opt/lib/data": 0o444} {
		if st, err := os.Stat(tc.Root + name); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, st.Mode(), err)
		}
	}
	if _, _, err := s.Use("bob", k.id(t)); !errors.Is(err, ErrUnknown) || usable(s, "bob") != 0 {
		t.Errorf("bob has not offered it: %v", err)
	}
	if n := k.send(t, s, "bob"); n != 0 || usable(s, "bob") != 1 {
		t.Errorf("bob sent %d bytes of what is there", n)
	}
	if n := newKit("driver", "other compiler", 1400).send(t, s, "bob"); n != 1400 {
		t.Errorf("%d bytes of another compiler with the same driver", n)
	}
	if _, err := Open(Options{Dir: dir, Quota: quota, Log: slog.Default()}); err == nil || !errors.Is(err, ErrInUse) {
		t.Errorf("a second daemon: %v", err)
	}
	must(t, s.Close())
	s = open(t, dir)
	if st := s.Stats(); st.Toolchains != 2 || st.Bytes != 4+60+1000+60+1400 {
		t.Errorf("after a restart: %+v", st)
	}
	if n := k.send(t, s, "alice"); n != 0 || usable(s, "alice") != 1 || usable(s, "bob") != 0 {
		t.Errorf("after a restart: %d bytes", n)
	}
}

// TestPieces: a content goes on where it was cut off, also after a restart. What is not the content is not accepted.
func TestPieces(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	k := newKit("driver", "compiler", 100_000)
	id, missing, err := s.Offer("alice", k.encoded)
	must(t, err)
	var big string
	for _, m := range missing {
		if m.Entry.Name == "/opt/lib/cc1" {
			big = contentName(m.Entry)
		}
	}
	content := k.contents[big]
	write := func(at uint64, r io.Reader) error { return only(s.Write("alice", id, big, at, r)) }
	have := func() uint64 {
		_, missing, err := s.Offer("alice", k.encoded)
		must(t, err)
		for _, m := range missing {
			if contentName(m.Entry) == big {
				return m.Have
			}
		}
		return uint64(len(content))
	}
	broken := errors.New("broken")
	if err := write(0, io.MultiReader(bytes.NewReader(content[:30_000]), iotest.ErrReader(broken))); !errors.Is(err, broken) || have() != 30_000 {
		t.Errorf("%v, %d bytes are there", err, have())
	}
	if err := write(30_000, bytes.NewReader(content[30_000:50_000])); !errors.Is(err, io.ErrUnexpectedEOF) || have() != 50_000 {
		t.Errorf("%v, %d bytes are there", err, have())
	}
	for _, at := range []uint64{0, 49_999, 50_001, 1 << 40} {
		if err := write(at, bytes.NewReader(content)); !errors.Is(err, ErrWrong) || have() != 50_000 {
			t.Errorf("at %d: %v, %d bytes are there", at, err, have())
		}
	}
	must(t, s.Close())
	s = open(t, dir)
	if have() != 0 { // nobody wanted it: no parcel that is complete has it
		t.Errorf("%d bytes are there after a restart", have())
	}
	if err := write(0, bytes.NewReader(bytes.Repeat([]byte("x"), len(content)))); !errors.Is(err, ErrWrong) || have() != 0 {
		t.Errorf("other bytes: %v, %d are there", err, have())
	}
	if err := write(0, io.MultiReader(bytes.NewReader(content), strings.NewReader("x"))); !errors.Is(err, ErrWrong) || have() != 0 {
		t.Errorf("a byte more: %v, %d are there", err, have())
	}
	if err := only(s.Write("alice", id, "../../x", 0, strings.NewReader("x"))); !errors.Is(err, ErrWrong) {
		t.Errorf("another name: %v", err)
	}
	if err := only(s.Write("bob", id, big, 0, strings.NewReader("x"))); !errors.Is(err, ErrUnknown) {
		t.Errorf("another tenant: %v", err)
	}
	must(t, write(0, bytes.NewReader(content)))
	must(t, write(0, bytes.NewReader(content))) // it is there
	if usable(s, "alice") != 0 {
		t.Error("usable before it is complete")
	}
	k.send(t, s, "alice")
	if usable(s, "alice") != 1 {
		t.Error("not usable")
	}
}

// TestTwoSenders: two clients that send the same toolchain at the same time send each content once.
func TestTwoSenders(t *testing.T) {
	s := open(t, t.TempDir())
	k := newKit("driver", "compiler", 100_000)
	id, missing, err := s.Offer("alice", k.encoded)
	must(t, err)
	_, _, err = s.Offer("bob", k.encoded)
	must(t, err)
	name := contentName(missing[0].Entry)
	finish := k.halted(s, "alice", id, name)
	if err := only(s.Write("bob", id, name, 0, bytes.NewReader(k.contents[name]))); !errors.Is(err, ErrBusy) {
		t.Errorf("%v", err)
	}
	must(t, finish())
	for n, b := range k.contents {
		must(t, only(s.Write("bob", id, n, 0, bytes.NewReader(b))))
	}
	if usable(s, "alice") != 1 || usable(s, "bob") != 1 {
		t.Error("not usable")
	}
}

// halted has a tenant begin to send a content, which it goes on with when finish is called. That returns the error of it all.
func (k *kit) halted(s *Store, tenant string, id unit.ToolchainID, name string) (finish func() error) {
	began, goOn, ended := make(chan bool), make(chan bool), make(chan error)
	wait := readerFunc(func([]byte) (int, error) {
		close(began)
		<-goOn
		return 0, io.EOF
	})
	go func() {
		ended <- only(s.Write(tenant, id, name, 0, io.MultiReader(wait, bytes.NewReader(k.contents[name]))))
	}()
	<-began
	return func() error {
		close(goOn)
		return <-ended
	}
}

type readerFunc func(b []byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// TestQuota: the least recently used toolchains make room, but none that a job uses; and no tenant takes more than half.
func TestQuota(t *testing.T) {
	s := open(t, t.TempDir())
	kits := make([]*kit, 8)
	for i := range kits {
		kits[i] = newKit(fmt.Sprint("driver", i), fmt.Sprintf("%07d\n", i), 200_000)
	}
	kits[0].send(t, s, "alice")
	_, done, err := s.Use("alice", kits[0].id(t))
	must(t, err)
	kits[1].send(t, s, "alice")
	kits[2].send(t, s, "alice") // in place of 1, as 0 is in use
	if usable(s, "alice") != 2 || s.Stats().Bytes > quota/2 {
		t.Errorf("%d toolchains, %+v", usable(s, "alice"), s.Stats())
	}
	p, err := parcel.Parse(kits[0].encoded)
	must(t, err)
	if h := newHeld(p); s.Room("alice") != quota/2-h.size-h.names || s.Room("bob") != quota/2 {
		t.Errorf("room for %d and %d", s.Room("alice"), s.Room("bob"))
	}
	if _, _, err := s.Use("alice", kits[1].id(t)); !errors.Is(err, ErrUnknown) {
		t.Errorf("%v", err)
	}
	if _, _, err := s.Offer("alice", newKit("d", "too big\n", quota/2+1000).encoded); !errors.Is(err, ErrQuota) {
		t.Errorf("%v", err)
	}
	kits[3].send(t, s, "bob")
	kits[4].send(t, s, "bob")
	kits[5].send(t, s, "carol") // in place of one of the others
	if n := s.Stats(); n.Toolchains != 5 || n.Bytes > quota {
		t.Errorf("%+v", n)
	}
	kits[6].send(t, s, "dora")
	if n := s.Stats(); n.Toolchains != 5 || n.Bytes > quota {
		t.Errorf("%+v", n)
	}
	if _, _, err := s.Use("alice", kits[0].id(t)); err != nil {
		t.Errorf("one that is in use: %v", err)
	}
	done()
	list, err := os.ReadDir(s.path("contents"))
	must(t, err)
	if len(list) != 5*3+1 {
		t.Errorf("%d contents", len(list))
	}
}

// TestAnnouncedOnly: toolchains that are announced and do not come take room for a while only, and not without end.
func TestAnnouncedOnly(t *testing.T) {
	s := open(t, t.TempDir())
	var err error
	for i := range 2 * pendingMost {
		if _, _, err = s.Offer("mallory", newKit(fmt.Sprint("driver", i), "compiler", 1000).encoded); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrQuota) || len(s.parcels) != pendingMost {
		t.Errorf("%v, %d parcels", err, len(s.parcels))
	}
	newKit("driver", "compiler", 400_000).send(t, s, "alice")
	s.mu.Lock()
	for _, h := range s.parcels {
		h.used = h.used.Add(-2 * pendingTime)
	}
	s.mu.Unlock()
	newKit("another driver", "compiler", 1000).send(t, s, "bob")
	if len(s.parcels) != 2 {
		t.Errorf("%d parcels", len(s.parcels))
	}
}

// TestDamage: what is not whole after a crash, or was changed, is dropped at the start, and can be sent again.
func TestDamage(t *testing.T) {
	for what, damage := range map[string]func(dir, id string) error{
		"no root":       func(dir, id string) error { return os.RemoveAll(filepath.Join(dir, "roots", id)) },
		"no parcel":     func(dir, id string) error { return os.Remove(filepath.Join(dir, "parcels", id)) },
		"half a parcel": func(dir, id string) error { return os.Truncate(filepath.Join(dir, "parcels", id), 50) },
		"empty parcel":  func(dir, id string) error { return os.Truncate(filepath.Join(dir, "parcels", id), 0) },
		"another parcel": func(dir, id string) error {
			return os.WriteFile(filepath.Join(dir, "parcels", id), newKit("x", "y", 5).encoded, 0o600)
		},
		"no content": func(dir, _ string) error {
			list, err := filepath.Glob(filepath.Join(dir, "contents", "*"))
			return errors.Join(err, os.Remove(list[0]))
		},
		"rubbish": func(dir, _ string) error {
			return errors.Join(os.WriteFile(filepath.Join(dir, "parcels", "x.new"), nil, 0o600), os.MkdirAll(filepath.Join(dir, "roots", "y/z"), 0o755),
				os.WriteFile(filepath.Join(dir, "partial", "z"), nil, 0o600), os.WriteFile(filepath.Join(dir, "contents", "w"), nil, 0o600))
		},
	} {
		dir := t.TempDir()
		s := open(t, dir)
		k := newKit("driver", "compiler", 1000)
		k.send(t, s, "alice")
		must(t, s.Close())
		must(t, damage(dir, idName(k.id(t))))
		s = open(t, dir)
		n := s.Stats().Toolchains
		if want := map[bool]int{true: 1}[what == "rubbish"]; n != want {
			t.Errorf("%s: %d toolchains, want %d", what, n, want)
		}
		k.send(t, s, "alice")
		tc, done, err := s.Use("alice", k.id(t))
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		done()
		if b, err := os.ReadFile(tc.Root + "/opt/lib/cc1"); err != nil || len(b) != 1000 {
			t.Errorf("%s: %d bytes, %v", what, len(b), err)
		}
		for _, sub := range []string{"parcels", "roots"} {
			if list, _ := os.ReadDir(filepath.Join(dir, sub)); len(list) != 1 {
				t.Errorf("%s: %d in %s", what, len(list), sub)
			}
		}
		if list, _ := os.ReadDir(filepath.Join(dir, "contents")); len(list) != 4 {
			t.Errorf("%s: %d contents", what, len(list))
		}
		must(t, s.Close())
	}
}

// TestDamagedContent: what has changed on the disk is not used. It is sent again, and nothing else.
func TestDamagedContent(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	k := newKit("driver", "compiler", 1000)
	k.send(t, s, "alice")
	must(t, s.Close())
	for name, b := range k.contents {
		if len(b) == 1000 {
			file := filepath.Join(dir, "contents", name)
			must(t, os.Chmod(file, 0o755))
			f, err := os.OpenFile(file, os.O_WRONLY, 0)
			must(t, err)
			_, err = f.WriteAt([]byte("X"), 500)
			must(t, errors.Join(err, f.Close()))
		}
	}
	s = open(t, dir)
	k.send(t, s, "alice")
	if _, _, err := s.Use("alice", k.id(t)); !errors.Is(err, ErrUnknown) || usable(s, "alice") != 0 {
		t.Errorf("%v", err)
	}
	if n := k.send(t, s, "alice"); n != 1000 && n != 4+60+1000+60 {
		t.Errorf("%d bytes sent again", n)
	}
	tc, done, err := s.Use("alice", k.id(t))
	must(t, err)
	done()
	if b, err := os.ReadFile(tc.Root + "/opt/lib/cc1"); err != nil || string(b) != strings.Repeat("compiler", 125) {
		t.Errorf("%.20q, %v", b, err)
	}
}

// TestNotOpened: a content that cannot be opened at the moment is not taken for damaged.
func TestNotOpened(t *testing.T) {
	s := open(t, t.TempDir())
	k := newKit("driver", "compiler", 1000)
	k.send(t, s, "alice")
	must(t, os.Rename(s.path("contents"), s.path("away")))
	must(t, os.WriteFile(s.path("contents"), nil, 0o600))
	if _, _, err := s.Use("alice", k.id(t)); err == nil || errors.Is(err, ErrUnknown) || usable(s, "alice") != 1 {
		t.Errorf("%v, %d toolchains", err, usable(s, "alice"))
	}
	must(t, os.Remove(s.path("contents")))
	must(t, os.Rename(s.path("away"), s.path("contents")))
	_, done, err := s.Use("alice", k.id(t))
	must(t, err)
	done()
}

// TestFullDisk: an error of the disk is reported, and the next attempt goes on.
func TestFullDisk(t *testing.T) {
	s := open(t, t.TempDir())
	k := newKit("driver", "compiler", 1000)
	id, missing, err := s.Offer("alice", k.encoded)
	must(t, err)
	must(t, os.Rename(s.path("partial"), s.path("away")))
	name := contentName(missing[0].Entry)
	if err := only(s.Write("alice", id, name, 0, bytes.NewReader(k.contents[name]))); err == nil || errors.Is(err, ErrWrong) {
		t.Errorf("%v", err)
	}
	must(t, os.Rename(s.path("away"), s.path("partial")))
	k.send(t, s, "alice")
	if usable(s, "alice") != 1 {
		t.Error("not usable")
	}
}
