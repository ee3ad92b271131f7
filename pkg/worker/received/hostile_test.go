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
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/toolchain/parcel"
)

// manyNames returns a toolchain in which a content that others have too has n names.
func manyNames(version int, content string, n int) *kit {
	k := &kit{contents: map[string][]byte{}}
	p := parcel.Parcel{Toolchain: toolchain.Toolchain{Exec: "/o/00000", Path: "/o/00000", Family: "gcc", Version: fmt.Sprint(version), Target: "x", Major: 1}}
	for i := range n {
		p.Entries = append(p.Entries, parcel.Entry{Name: fmt.Sprintf("/o/%05d", i), Exec: true, Len: uint64(len(content)), Sum: sha256.Sum256([]byte(content))})
	}
	k.contents[contentName(&p.Entries[0])] = []byte(content)
	k.encoded = p.Append(nil)
	return k
}

// TestManyNames: names cost a client of its part, however small the contents are; and a client that gives a content as many
// names as a file can have takes it from no other one.
func TestManyNames(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 160,000 links")
	}
	s, err := Open(Options{Dir: t.TempDir(), Quota: 1 << 30, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	defer s.Close()
	newKit("driver", "compiler", 1000).send(t, s, "alice")
	const most = 1 << 15
	for i := range 5 {
		manyNames(i+1, "libc", most).send(t, s, "mallory") // ext4 has 65000 names for a file
	}
	if n := usable(s, "mallory"); n == 0 || n > (1<<29)/(most*(4<<10)) {
		t.Errorf("%d toolchains of %d names", n, most)
	}
	k := newKit("driver", "another compiler", 1600)
	k.send(t, s, "bob")
	tc, done, err := s.Use("bob", k.id(t))
	must(t, err)
	defer done()
	if b, err := os.ReadFile(tc.Root + "/lib/libc.so.6"); err != nil || string(b) != "libc" {
		t.Errorf("%q, %v", b, err)
	}
	if usable(s, "alice") != 1 {
		t.Error("another tenant's toolchain is gone")
	}
	k = newKit("driver", "compiler", 1<<29)
	if _, _, err := s.Offer("mallory", k.encoded); !errors.Is(err, ErrQuota) {
		t.Errorf("contents as large as the part, and names: %v", err)
	}
}

// TestOthersTrouble: a toolchain that cannot be laid out is no trouble of another client, which sends a content of it.
func TestOthersTrouble(t *testing.T) {
	s := open(t, t.TempDir())
	bad := manyNames(1, "libc", 1)
	id, _, err := s.Offer("mallory", bad.encoded)
	must(t, err)
	must(t, os.Mkdir(s.path("parcels", idName(id)+".new"), 0o755)) // its last step fails
	k := newKit("driver", "compiler", 1000)
	k.send(t, s, "alice")
	if usable(s, "alice") != 1 || usable(s, "mallory") != 0 {
		t.Error("not usable, or both")
	}
	if _, _, err := s.Offer("mallory", bad.encoded); err == nil {
		t.Error("the client whose toolchain it is does not learn of it")
	}
}

// TestLaidOutAgain: after a start, a toolchain has the names of its parcel and no others, whatever has become of its directory.
func TestLaidOutAgain(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	k := newKit("driver", "compiler", 1000)
	k.send(t, s, "alice")
	root := s.root(k.id(t))
	must(t, s.Close())
	must(t, os.Remove(root+"/opt/lib/data"))
	must(t, os.Remove(root+"/opt/bin/gcc"))
	must(t, os.WriteFile(root+"/opt/bin/gcc", []byte("another driver"), 0o555))
	must(t, os.WriteFile(root+"/opt/lib/more", []byte("more"), 0o444))
	s = open(t, dir)
	if n := k.send(t, s, "alice"); n != 0 {
		t.Errorf("%d bytes are sent again", n)
	}
	tc, done, err := s.Use("alice", k.id(t))
	must(t, err)
	defer done()
	for _, e := range tc.Entries {
		if b, err := os.ReadFile(filepath.Join(tc.Root, e.Name)); err != nil || !bytes.Equal(b, k.contents[contentName(&e)]) {
			t.Errorf("%s: %.20q, %v", e.Name, b, err)
		}
	}
	if _, err := os.Lstat(root + "/opt/lib/more"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a name that no parcel has: %v", err)
	}
}

// TestPoisonedPieces: what one client has sent of a content is not a beginning for another one, whom it would fail.
func TestPoisonedPieces(t *testing.T) {
	s := open(t, t.TempDir())
	evil, k := newKit("evil driver", "compiler", 1000), newKit("driver", "compiler", 1000)
	id, missing, err := s.Offer("mallory", evil.encoded)
	must(t, err)
	for _, m := range missing {
		err := only(s.Write("mallory", id, contentName(m.Entry), 0, bytes.NewReader(bytes.Repeat([]byte("x"), int(m.Entry.Len-1)))))
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
	}
	_, missing, err = s.Offer("alice", k.encoded)
	must(t, err)
	for _, m := range missing {
		if m.Have != 0 {
			t.Errorf("%s: %d bytes are there", m.Entry.Name, m.Have)
		}
	}
	k.send(t, s, "alice")
	if usable(s, "alice") != 1 {
		t.Error("not usable")
	}
}

// TestSlowSender: a client that does not get on keeps no other one from sending the same content for long. Whoever is first is used.
func TestSlowSender(t *testing.T) {
	s := open(t, t.TempDir())
	k := newKit("driver", "compiler", 100_000)
	id, missing, err := s.Offer("mallory", k.encoded)
	must(t, err)
	name := contentName(missing[0].Entry)
	finish := k.halted(s, "mallory", id, name)
	_, _, err = s.Offer("alice", k.encoded)
	must(t, err)
	write := func(tenant string) error {
		return only(s.Write(tenant, id, name, 0, bytes.NewReader(k.contents[name])))
	}
	if err := write("alice"); !errors.Is(err, ErrBusy) {
		t.Errorf("at once: %v", err)
	}
	s.mu.Lock()
	s.writing[name].began = s.writing[name].began.Add(-time.Minute)
	s.mu.Unlock()
	if err := write("mallory"); !errors.Is(err, ErrBusy) {
		t.Errorf("the same client: %v", err)
	}
	k.send(t, s, "alice")
	if usable(s, "alice") != 1 {
		t.Error("not usable")
	}
	must(t, finish())
	if usable(s, "mallory") != 1 || s.Stats().Bytes != 4+60+100_000+60 || len(s.writing) != 0 {
		t.Errorf("%d toolchains, %+v, %d writers", usable(s, "mallory"), s.Stats(), len(s.writing))
	}
}

// TestTogetherOverQuota: pieces that several tenants send of one toolchain count for each of them.
func TestTogetherOverQuota(t *testing.T) {
	s := open(t, t.TempDir())
	k := newKit("driver", "compiler", 400_000)
	admitted := 0
	for i := range 8 {
		tenant := fmt.Sprint("tenant", i)
		id, missing, err := s.Offer(tenant, k.encoded)
		if errors.Is(err, ErrQuota) {
			continue
		}
		must(t, err)
		admitted++
		for _, m := range missing {
			name := contentName(m.Entry)
			if err := only(s.Write(tenant, id, name, 0, bytes.NewReader(k.contents[name][:m.Entry.Len-1]))); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatal(err)
			}
			s.mu.Lock()
			s.writing[name].began = s.writing[name].began.Add(-time.Hour)
			s.mu.Unlock()
		}
	}
	list, err := os.ReadDir(s.path("partial"))
	must(t, err)
	sum := int64(0)
	for _, e := range list {
		st, err := e.Info()
		must(t, err)
		sum += st.Size()
	}
	if sum == 0 || sum > quota || admitted != 3 {
		t.Errorf("%d bytes of %d tenants in pieces, with a quota of %d", sum, admitted, quota)
	}
	if _, _, err := s.Offer("tenant0", k.encoded); err != nil {
		t.Errorf("one that is admitted, once more: %v", err)
	}
	k.send(t, s, "tenant1")
	if _, _, err := s.Offer("tenant7", k.encoded); err != nil || usable(s, "tenant7") != 1 {
		t.Errorf("one that was not, once all of it is there: %v", err)
	}
}
