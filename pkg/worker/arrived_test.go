package worker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/streams"
	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/toolchain/parcel"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/worker/received"
)

// receives makes a server accept toolchains.
func receives(t *testing.T, o *Options, from AcceptMode) {
	o.Sandbox, o.Accept = SandboxAuto, from
	o.Received = received.Options{Dir: filepath.Join(t.TempDir(), "toolchains"), Quota: 4 << 30}
}

// needStore skips the test if no toolchains can be accepted here.
func (ts *testServer) needStore() {
	ts.t.Helper()
	if !ts.places.Trees || ts.places.Bare || !ts.places.Confined {
		need.Skipf(ts.t, need.Sandbox, "compiles are not confined in trees here")
	}
}

// outfit sends a toolchain from an address of this machine.
func outfit(t *testing.T, ip, addr string, p *parcel.Parcel) (id unit.ToolchainID, written int, err error) {
	t.Helper()
	dev := iwarptest.Open(t, from(ip))
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return streams.Dial(ctx, dev, addr, streams.Options{Service: streams.Toolchains})
	}, MaxConnsPerHost: 1}
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr, Timeout: patience}
	do := func(method, path string, body io.Reader, into any) error {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://host"+path, body)
		if err != nil {
			return err
		}
		a, err := c.Do(r)
		if err != nil {
			return err
		}
		defer a.Body.Close()
		if a.StatusCode >= 300 {
			return errors.New(a.Status)
		}
		if into == nil {
			return nil
		}
		return json.NewDecoder(a.Body).Decode(into)
	}
	var o parcel.Offered
	if err := do(http.MethodPost, "/offer", bytes.NewReader(p.Append(nil)), &o); err != nil {
		return id, 0, err
	}
	for _, m := range o.Missing {
		i := slices.IndexFunc(p.Entries, func(e parcel.Entry) bool { return e.Name == m.File })
		f, err := p.Entries[i].Open()
		if err != nil {
			return id, 0, err
		}
		err = do(http.MethodPut, fmt.Sprintf("/content/%s/%s?at=0", o.ID, m.Name), f, nil)
		f.Close()
		if err != nil {
			return id, 0, err
		}
	}
	return p.ID, len(o.Missing), nil
}

// TestSentForOneTenant: a tenant compiles with the toolchain that it has sent, to the object of the host's own. Another one cannot,
// also in the same group, until it has described the toolchain itself; and gets no results of it.
func TestSentForOneTenant(t *testing.T) {
	if testing.Short() {
		t.Skip("sends a hundred megabytes")
	}
	ts, addr := startNamed(t, func(o *Options) {
		receives(t, o, AcceptNamed)
		o.Results, o.Sign = 16<<20, testSign
		o.Groups = map[string]string{"tls:127.0.0.2": "team", "tls:127.0.0.3": "team"}
	})
	ts.needStore()
	alice, bob := dialFrom(t, "127.0.0.2", addr, 2, &job.Hello{Name: "desk"}), dialFrom(t, "127.0.0.3", addr, 3, &job.Hello{Name: "desk"})
	gcc := ts.tool("gcc")
	path, err := exec.LookPath("gcc")
	if err != nil {
		t.Fatal(err)
	}
	var cache toolchain.Cache // the server knows it below /tmp, where no toolchain can be
	own, err := cache.Identify(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	p, err := parcel.Make(t.Context(), &own)
	if err != nil {
		t.Fatal(err)
	}
	id, n, err := outfit(t, "127.0.0.2", addr, p)
	if err != nil || n == 0 || id == gcc {
		t.Fatalf("%d contents, %v", n, err)
	}
	compile := func(c *testClient, by unit.ToolchainID) *testResult {
		x := everything()
		q := x.request(false)
		key := x.key(ts)
		q.change = func(m *job.Job) { m.Key = key }
		return c.do(by, q)
	}
	object := func(r *testResult) []byte {
		t.Helper()
		if r.Status != job.StatusRan || r.Exit != 0 || len(r.Files) == 0 {
			t.Fatalf("%+v", r.Result)
		}
		return r.sink[r.Files[0].Off:][:r.Files[0].Len]
	}
	want := object(compile(alice, gcc))
	kept := ts.unshared(t, unsharedToolchain)
	if got := object(compile(alice, id)); !bytes.Equal(got, want) {
		t.Error("another object than by the host's own")
	}
	if n := ts.unshared(t, unsharedToolchain); n != kept+1 {
		t.Errorf("%v results of it are not shared, want 1", n-kept)
	}
	if r := compile(bob, id); r.Status != job.StatusRefused || r.Cause != job.CauseToolchain {
		t.Errorf("a tenant that has not described it: %+v", r.Result)
	}
	if _, n, err := outfit(t, "127.0.0.3", addr, p); err != nil || n != 0 {
		t.Errorf("%d contents sent again, %v", n, err)
	}
	if got := object(compile(bob, id)); !bytes.Equal(got, want) {
		t.Error("another object for the second tenant")
	}
}

// posing gives connections the peers that they would have elsewhere: 127.0.0.2 one with a certificate on another machine,
// 127.0.0.3 a stranger on another machine.
type posing struct{ net.Listener }

type posed struct {
	net.Conn
	remote net.Addr
}

func (c posed) RemoteAddr() net.Addr { return c.remote }

type posedName struct{ posed }

func (posedName) PeerName() string { return "tls:desk" }

func (l posing) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	switch hostOf(c.RemoteAddr()) {
	case "127.0.0.2":
		return posedName{posed{c, &net.TCPAddr{IP: net.IPv4(10, 1, 2, 2), Port: 1}}}, nil
	case "127.0.0.3":
		return posed{c, &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 1}}, nil
	}
	return c, nil
}

// oneFile returns a toolchain that is one program of this machine, which is no compiler.
func oneFile(t *testing.T) *parcel.Parcel {
	t.Helper()
	name, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return described(t, name, content)
}

// described returns a toolchain that is one file, whose directory it shows whole.
func described(t *testing.T, name string, content []byte) *parcel.Parcel {
	t.Helper()
	made := &parcel.Parcel{Toolchain: toolchain.Toolchain{Exec: name, Path: name, Family: "gcc", Version: "1", Target: "x", Major: 1, Dirs: []string{filepath.Dir(name)}},
		Entries: []parcel.Entry{{Name: name, Exec: true, Len: uint64(len(content)), Sum: sha256.Sum256(content)}}}
	p, err := parcel.Parse(made.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestNotLaidOut: trouble with the disk is not taken for a toolchain that has gone, which its client would send again.
func TestNotLaidOut(t *testing.T) {
	ts, addr := startNamed(t, func(o *Options) { receives(t, o, AcceptNamed) })
	ts.needStore()
	c := dialFrom(t, "127.0.0.2", addr, 1, &job.Hello{Name: "desk"})
	id, _, err := outfit(t, "127.0.0.2", addr, oneFile(t))
	if err != nil {
		t.Fatal(err)
	}
	roots := filepath.Join(ts.o.Received.Dir, "roots") // it is laid out anew for the first job
	if err := errors.Join(os.RemoveAll(roots), os.WriteFile(roots, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	r := c.do(id, request{body: treeBody("gcc"), text: "int x;\n", sink: 1 << 20})
	if r.Status != job.StatusFailed || r.Cause != job.CauseInternal || !strings.Contains(r.Detail, "roots") {
		t.Errorf("%+v", r.Result)
	}
	if len(ts.arrived.store.List("tls:127.0.0.2")) != 1 {
		t.Error("it is no longer listed")
	}
}

// crashing returns a toolchain whose driver crashes at once, and one of n zeros.
func crashing(t *testing.T, n int) (driver, zeros *parcel.Parcel, contents [][]byte) {
	t.Helper()
	dir := t.TempDir()
	source, program := filepath.Join(dir, "a.c"), filepath.Join(dir, "a")
	if err := os.WriteFile(source, []byte("void _start(void) { __builtin_trap(); }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "gcc", "-static", "-nostdlib", "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	contents = [][]byte{b, make([]byte, n)}
	return described(t, "/opt/gcc", contents[0]), described(t, "/opt/zeros", contents[1]), contents
}

// TestCameBack: a toolchain that was dropped to make room, and has been sent again, is used as one that was never there: the tree
// of an earlier job shows files that are gone.
func TestCameBack(t *testing.T) {
	ts, addr := startNamed(t, func(o *Options) {
		receives(t, o, AcceptNamed)
		o.Received.Quota, o.Jobs, o.CanaryMean = 1<<20, 1, 100*time.Hour
	})
	ts.needStore()
	const tenant = "tls:127.0.0.2"
	driver, zeros, contents := crashing(t, 518_000)
	c := dialFrom(t, "127.0.0.2", addr, 1, &job.Hello{Name: "desk"})
	store := ts.arrived.store
	for i := range 2 {
		for k, p := range []*parcel.Parcel{zeros, driver} { // there is room for one of them
			id, missing, err := store.Offer(tenant, p.Append(nil))
			if err != nil || len(missing) != 1 {
				t.Fatalf("%d contents are missing, %v", len(missing), err)
			}
			if _, err := store.Write(tenant, id, hex.EncodeToString(p.Entries[0].Sum[:])+"x", 0, bytes.NewReader(contents[1-k])); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(store.List(tenant)); n != 1 {
			t.Fatalf("%d toolchains are there", n)
		}
		q := request{body: treeBody("gcc"), text: "int x;\n", sink: 1 << 20}
		q.body.Files[0].Len = uint64(len(q.text))
		r := c.do(driver.ID, q)
		if r.Status != job.StatusRan || r.Signal == 0 {
			t.Errorf("time %d: %+v", i, r.Result)
		}
	}
}

// TestAcceptedFrom: toolchains.accept decides from whom toolchains are taken, before anything of them is.
func TestAcceptedFrom(t *testing.T) {
	p := described(t, "/opt/gcc", []byte("a driver"))
	for mode, want := range map[AcceptMode]map[string]bool{
		AcceptNone:  {},
		AcceptNamed: {"127.0.0.1": true, "127.0.0.2": true},
		AcceptAll:   {"127.0.0.1": true, "127.0.0.2": true, "127.0.0.3": true},
	} {
		dev, err := iwarp.Open(iwarp.Config{Listen: func(ctx context.Context, addr string) (net.Listener, error) {
			l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
			return posing{l}, err
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		})
		ts := startServer(t, func(o *Options) {
			receives(t, o, mode)
			o.Device, o.Allow = dev, []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
		})
		if mode != AcceptNone {
			ts.needStore()
		}
		l, err := dev.Listen(context.Background(), "127.0.0.1:0", nil)
		if err != nil {
			t.Fatal(err)
		}
		ts.Serve(l)
		for _, ip := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"} {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			c, err := streams.Dial(ctx, iwarptest.Open(t, from(ip)), l.Addr().String(), streams.Options{Service: streams.Toolchains})
			cancel()
			var no *streams.Rejected
			switch {
			case err == nil != want[ip]:
				t.Errorf("mode %d, from %s: %v", mode, ip, err)
			case err != nil && (!errors.As(err, &no) || no.Cause != job.CauseDenied || !strings.Contains(no.Detail, "toolchains.accept")):
				t.Errorf("mode %d, from %s: %v", mode, ip, err)
			}
			if err != nil {
				continue
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://host/offer", bytes.NewReader(p.Append(nil)))
			if err != nil {
				t.Fatal(err)
			}
			tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil }, DisableKeepAlives: true}
			a, err := (&http.Client{Transport: tr, Timeout: patience}).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			a.Body.Close()
			if a.StatusCode != http.StatusOK {
				t.Errorf("mode %d, from %s: %s", mode, ip, a.Status)
			}
			_ = c.Close()
			<-c.Done()
		}
		if mode == AcceptNone && ts.arrived.store != nil {
			t.Error("there is a store all the same")
		}
		until(t, "the streams' end", func() bool {
			ts.mu.Lock()
			defer ts.mu.Unlock()
			return ts.streams.all == 0
		})
	}
}
