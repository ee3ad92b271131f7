package connmgr

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/results"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/resultcache/crsh"
	"github.com/rdistcc/rdistcc/pkg/resultcache/disk"
)

// storage opens a connection for values, or returns the line by which the manager refuses it.
func (r *rig) storage(hosts string) (c *crsh.Client, refused string) {
	r.t.Helper()
	conn, err := ipc.Dial(r.socket)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := conn.Send((&ipc.Control{Version: ipc.Version, Hosts: hosts, Args: []string{"storage"}}).Append(nil)); err != nil {
		r.t.Fatal(err)
	}
	kind, fields, err := conn.Recv()
	var reply ipc.Reply
	if err != nil || kind != ipc.KindReply || reply.Parse(fields) != nil {
		r.t.Fatal(kind, err)
	}
	if reply.Code != 0 {
		conn.Close()
		return nil, string(reply.Data)
	}
	fd, received := conn.Detach()
	f := os.NewFile(uintptr(fd), "storage")
	defer f.Close()
	raw, err := net.FileConn(f)
	if err != nil {
		r.t.Fatal(err)
	}
	if c, err = crsh.NewClient(r.t.Context(), &early{raw, bytes.NewReader(received)}); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c, ""
}

// early is a connection of which something was received already.
type early struct {
	net.Conn
	received *bytes.Reader
}

func (e *early) Read(p []byte) (int, error) {
	if e.received.Len() > 0 {
		return e.received.Read(p)
	}
	return e.Conn.Read(p)
}

// valueOf returns a value; there is none: "-".
func valueOf(t *testing.T, c *crsh.Client, key string) (value string) {
	t.Helper()
	err := c.Get(t.Context(), []byte(key), func(_ uint64, v io.Reader) error {
		b, err := io.ReadAll(v)
		value = string(b)
		return err
	})
	if errors.Is(err, crsh.ErrMissing) {
		return "-"
	}
	if err != nil {
		t.Errorf("Get of %s: %v", key, err)
	}
	return value
}

func keepValue(t *testing.T, c *crsh.Client, key, value string, replace bool) (kept bool) {
	t.Helper()
	kept, err := c.Put(t.Context(), []byte(key), strings.NewReader(value), uint64(len(value)), replace)
	if err != nil {
		t.Errorf("Put of %s: %v", key, err)
	}
	return kept
}

// onDisk makes a manager keep results in dir.
func onDisk(t *testing.T, dir string) func(o *Options) {
	return func(o *Options) {
		s, err := disk.Open(dir, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		o.Results = []results.Tier{{Name: resultcache.TierManager, Store: s, Read: true, Write: true}}
	}
}

// TestStorage: values of all lengths that are taken come back at once, are replaced and removed, and are no results.
func TestStorage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "results")
	r := newRig(t, onDisk(t, dir))
	c, _ := r.storage("")
	for _, n := range []int{0, 1, 5000, 3 << 20} {
		value := random(n)
		if !keepValue(t, c, "key", value, true) || valueOf(t, c, "key") != value {
			t.Errorf("a value of %d bytes does not come back", n)
		}
	}
	if keepValue(t, c, "key", "other", false) || valueOf(t, c, "key") == "other" {
		t.Error("a value is replaced that was to stay")
	}
	if !keepValue(t, c, "key", "other", true) || valueOf(t, c, "key") != "other" {
		t.Error("a value is not replaced")
	}
	if removed, err := c.Remove(t.Context(), []byte("key")); !removed || err != nil {
		t.Errorf("Remove: %t, %v", removed, err)
	}
	eventually(t, "the value to be gone", func() bool { return valueOf(t, c, "key") == "-" })
	if keepValue(t, c, "long", random(MaxValue+1), true) || valueOf(t, c, "long") != "-" {
		t.Error("a value is kept that is too long")
	}
	if identity, _, err := c.Info(t.Context()); !strings.HasPrefix(identity, "rdistcc-cm ") || err != nil {
		t.Errorf("Info: %q, %v", identity, err)
	}
	var no crsh.Refusal
	if err := c.Stop(t.Context()); !errors.As(err, &no) {
		t.Errorf("Stop: %v", err)
	}
	if got := r.m.Status(); got.Running != 0 {
		t.Errorf("it counts as %d commands", got.Running)
	}
}

func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // never fails
	return string(b)
}

// TestStorageDamaged: what is damaged, or the result of a compile in a value's place, is missing, and removed.
func TestStorageDamaged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "results")
	r := newRig(t, onDisk(t, dir))
	c, _ := r.storage("")
	key := resultcache.ValueKeyOf("ccache", []byte("key"))
	compiled, err := (&resultcache.Entry{Key: key, Stderr: []byte("warning"), Files: []resultcache.File{{Data: []byte("object")}}}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	k := key.String()
	file := filepath.Join(dir, k[:1], k[1:3], k[3:])
	for name, kept := range map[string][]byte{"cut": compiled[:len(compiled)-1], "empty": nil, "other": []byte("something else"), "compiled": compiled} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, kept, 0o600); err != nil {
			t.Fatal(err)
		}
		err := c.Get(t.Context(), []byte("key"), func(uint64, io.Reader) error { return nil })
		if err == nil || crsh.IsBroken(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !keepValue(t, c, "key", "value", true) || valueOf(t, c, "key") != "value" {
		t.Error("the next one is not kept")
	}
}

// TestStorageFarm: a value is in the memory of a host, where another build host finds it, and in its place what replaces it.
func TestStorageFarm(t *testing.T) {
	f := copies(t, 2, nil)
	addrs := f.hosts[0].Addr + " " + f.hosts[1].Addr
	c, _ := f.storage(addrs)
	value := random(10_000)
	eventually(t, "a host to keep the value", func() bool { return keepValue(t, c, "key", value, true) })
	seen := func(want string) func() bool {
		return func() bool {
			f.look(resultcache.Key{200}, f.hosts...) // reads what is new on hosts
			return valueOf(t, c, "key") == want
		}
	}
	eventually(t, "the value to be found", seen(value))
	if !keepValue(t, c, "key", "another one", true) {
		t.Error("a value is not replaced")
	}
	eventually(t, "what replaced it to be found", seen("another one"))
	other, _ := f.storage("") // it names no hosts
	if got := valueOf(t, other, "key"); got != "-" {
		t.Errorf("without hosts there is %q", got)
	}
	if keepValue(t, other, "key", "x", true) {
		t.Error("it is kept nowhere, and said to be kept")
	}
}

// TestStorageFarmRefuses: a host that takes nothing costs a value, and nothing else.
func TestStorageFarmRefuses(t *testing.T) {
	f := copies(t, 1, func(int, *job.Keep, []byte) (keep, ack bool) { return false, true })
	c, _ := f.storage(f.hosts[0].Addr)
	for range 3 {
		keepValue(t, c, "key", "value", true)
		if got := valueOf(t, c, "key"); got != "-" {
			t.Errorf("there is %q", got)
		}
	}
}

// TestStorageLent: tiers of other programs get no values, and are not asked for them.
func TestStorageLent(t *testing.T) {
	var lent *disk.Store
	r := newRig(t, func(o *Options) {
		onDisk(t, filepath.Join(t.TempDir(), "own"))(o)
		var err error
		if lent, err = disk.Open(filepath.Join(t.TempDir(), "lent"), 1<<30); err != nil {
			t.Fatal(err)
		}
		o.Results = append(o.Results, results.Tier{Name: "lent", Store: lent, Read: true, Write: true, Lent: true})
	})
	c, _ := r.storage("")
	keepValue(t, c, "key", "value", true)
	if got := valueOf(t, c, "key"); got != "value" {
		t.Errorf("there is %q", got)
	}
	valueOf(t, c, "none")
	if u, err := lent.Usage(t.Context()); err != nil || u.Files != 0 {
		t.Errorf("the lent tier has %+v, %v", u, err)
	}
	for _, n := range r.m.results.Counts() {
		if want := map[string]uint64{"manager": 2}[n.Tier]; n.Looks != want {
			t.Errorf("%s was asked %d times, want %d", n.Tier, n.Looks, want)
		}
	}
}

// TestStorageRefused: without a cache, or with a host list that makes no sense, a line says so.
func TestStorageRefused(t *testing.T) {
	r := newRig(t, nil)
	if _, line := r.storage(""); line != "the connection manager has no cache of results (cache.use)" {
		t.Errorf("without a cache: %q", line)
	}
	r = newRig(t, onDisk(t, filepath.Join(t.TempDir(), "results")))
	if _, line := r.storage("host:port:x"); !strings.Contains(line, "host:port:x") {
		t.Errorf("with a wrong list: %q", line)
	}
	r.m.uid++ // another user's manager, which serves all
	r.m.o.AnyUser = true
	code, line := r.ask(nil, "", "storage")
	if os.Getuid() != 0 && (code != reason.ExitDenied || !strings.Contains(line, "only that user and root")) {
		t.Errorf("of another user: %d, %q", code, line)
	}
}

// TestStorageCrowd: many at a time get theirs, with values that take all the room.
func TestStorageCrowd(t *testing.T) {
	r := newRig(t, onDisk(t, filepath.Join(t.TempDir(), "results")))
	var wg sync.WaitGroup
	for i := range 40 {
		c, _ := r.storage("")
		wg.Go(func() {
			key, value := string(rune('a'+i)), random(100_000*(1+i%20))
			if keepValue(t, c, key, value, true) && valueOf(t, c, key) != value {
				t.Errorf("%s does not come back", key)
			}
		})
	}
	wg.Wait()
	// The room of a value is free shortly after its answer.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := r.m.values.Acquire(ctx, maxValues); err != nil {
		t.Errorf("room is lost: %v", err)
	}
}
