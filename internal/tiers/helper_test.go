package tiers

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/test/kit/storetest"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/resultcache/crsh"
)

// The helper of these tests is the test's own program: it says what it was told.
const telling = "TEST_TELLING_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(telling) == "" {
		os.Exit(m.Run())
	}
	told, err := crsh.ReadStarted(os.Getenv)
	if err != nil {
		os.Exit(1)
	}
	l, err := net.Listen("unix", told.Endpoint)
	if err != nil {
		os.Exit(1)
	}
	told.Endpoint = ""
	for {
		conn, err := l.Accept()
		if err != nil {
			os.Exit(1)
		}
		go (&crsh.Server{Values: tells{told}, Stop: func() { os.Exit(0) }}).Serve(context.Background(), conn)
	}
}

type tells struct{ told crsh.Started }

func (x tells) Get(_ context.Context, _ []byte, take func(uint64, io.Reader) error) error {
	text := fmt.Sprintf("%+v %s %s %s", x.told, os.Getenv("MORE"), os.Getenv(RedisPassword), os.Getenv("HOME"))
	return take(uint64(len(text)), strings.NewReader(text))
}
func (x tells) Put(context.Context, []byte, io.Reader, uint64, bool) (bool, error) {
	return false, fmt.Errorf("no: %+v %s", x.told, os.Getenv("MORE"))
}
func (x tells) Remove(context.Context, []byte) (bool, error) { return false, nil }
func (x tells) Exists(context.Context, []byte) (bool, error) { return false, nil }

// TestHelper: a helper is told what its line and its file of secrets say, and what it says of secrets is not shown.
func TestHelper(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secrets")
	if err := os.WriteFile(file, []byte("# a comment\n\nurl=test://me:pass1@h/x\n@bearer-token=pass2\n@layout=flat\nMORE=pass3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := parse(t, `helpers: ["web = test://h/x helper=`+os.Args[0]+` timeout=10s secrets=`+file+` @layout=deep @colour=blue"]`)
	environ := []string{telling + "=1", RedisPassword + "=pass4", "CRSH_URL=other", "HOME=/home/me"}
	all, err := Open(c, none, environ)
	if err != nil || len(all) != 1 || all[0].Name != "web" || !all[0].Lent || !all[0].Shared || all[0].Timeout != 10e9 {
		t.Fatalf("%+v, %v", all, err)
	}
	s := all[0].Store
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	got, err := s.Get(t.Context(), resultcache.Key{}, nil)
	const want = "{Endpoint: URL:test://me:pass1@h/x Idle:1h0m0s Attributes:[{Name:colour Value:blue} {Name:bearer-token Value:pass2} {Name:layout Value:flat}]} pass3  /home/me"
	if string(got) != want || err != nil {
		t.Errorf("it is told %s, %v; want %s", got, err, want)
	}
	if err := s.Put(t.Context(), resultcache.Key{}, []byte("x")); err == nil || strings.Contains(err.Error(), "pass") || !strings.Contains(err.Error(), "no: ") {
		t.Errorf("an error shows %v", err)
	}
}

// TestUnusableHelper: what a helper lacks is an error of its use, in one line that names the key, and no reason not to start.
func TestUnusableHelper(t *testing.T) {
	dir := t.TempDir()
	open, odd := filepath.Join(dir, "open"), filepath.Join(dir, "odd")
	for file, mode := range map[string]os.FileMode{open: 0o644, odd: 0o600} {
		if err := os.WriteFile(file, []byte("s3cret"), mode); err != nil {
			t.Fatal(err)
		}
	}
	for line, want := range map[string]string{
		"web = none://h":                        "cache.helpers: web: no program ccache-storage-none in PATH or in /usr/local/libexec, /usr/libexec: install it",
		"web = none://h helper=/none":           "cache.helpers: web: the helper cannot be started",
		"web = none://h secrets=" + open:        "cache.helpers: web: secrets: " + open + " can be read or written by others",
		"web = none://h secrets=" + odd:         "cache.helpers: web: secrets: " + odd + ": a line is none of url=URL",
		"web = none://h secrets=" + dir + "/no": "no: no such file",
	} {
		all, err := Open(parse(t, `helpers: ["`+line+`"]`), none, nil)
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		err = storetest.Fails(t, t.Context(), all[0].Store, resultcache.Key{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// TestChain: the order and the modes of cache.tiers are those of the tiers.
func TestChain(t *testing.T) {
	c, err := config.Parse("test", []byte("cache: {redis: {url: \"redis://127.0.0.1:1\", mode: write}, s3: {bucket: results}, tiers: [s3, \"redis:read\", manager], dir: "+t.TempDir()+"}"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := Open(c, none, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, x := range all {
		got += fmt.Sprintf("%s %t %t; ", x.Name, x.Read, x.Write)
		if err := x.Store.Close(); err != nil {
			t.Error(err)
		}
	}
	if want := "s3 true true; redis true false; manager true true; "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
