package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/relay"
)

// bucketStore is a store of results that is far away, and how often it was asked for one.
type bucketStore struct {
	name     string
	settings string // of a manager's cache, after a comma
	reads    func() (int, error)
	close    func()
}

// farStore returns the store that serve starts, or nil, which it says, where its program is missing.
func farStore(serve func() (*bucketStore, error)) (*bucketStore, error) {
	store, err := serve()
	if errors.Is(err, exec.ErrNotFound) {
		fmt.Printf("# left out: %v (make deps)\n", err)
		return nil, nil
	}
	return store, err
}

// ahead measures P30: a build of a client that is new in every respect, with all results in a store 50 ms away, beside one with all of
// them in its directory.
func (b *bench) ahead() error {
	for _, serve := range []func() (*bucketStore, error){b.redisStore, b.s3Store} {
		store, err := farStore(serve)
		if err != nil {
			return err
		}
		if store == nil {
			continue
		}
		for _, p := range []project{projects[1], heavy[0]} {
			if err = p.ready(b); err != nil {
				fmt.Printf("# left out: %v\n", err)
				err = nil
				continue
			}
			if err = b.aheadOf(store, p); err != nil {
				break
			}
		}
		store.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// aheadOf measures P30 with a store and a project.
func (b *bench) aheadOf(store *bucketStore, p project) error {
	name := "p30-" + store.name + "-" + p.name
	kept := filepath.Join(b.tmp, name+"-kept")
	type measured struct {
		what, settings string
		wall, requests []float64
	}
	all := []*measured{{what: "directory", settings: "dir: " + kept}, {what: "ahead", settings: store.settings}, {what: "ahead: 0", settings: store.settings + ", ahead: 0"}}
	var want map[string][sha256.Size]byte
	for round := -1; round < b.turns; round++ { // the first one fills directory and store
		turn := all
		if round < 0 {
			turn = []*measured{{settings: all[0].settings + ", " + store.settings}}
		}
		for i, m := range turn {
			settings := m.settings
			if !strings.Contains(settings, "dir:") {
				settings += fmt.Sprintf(", dir: %s-%d-%d", kept, round, i)
			}
			f, err := b.newFarm(farmSpec{name: fmt.Sprintf("%s-%d-%d", name, round, i), config: "cache: {farm: false, " + settings + "}\n"})
			if err != nil {
				return err
			}
			before, err := store.reads()
			if err != nil {
				f.close()
				return err
			}
			wall, got, err := b.newClientBuilds(f, p, round, "on")
			kinds := ""
			if err == nil {
				kinds, err = f.kinds()
			}
			after, rerr := store.reads()
			f.close() // which writes what the next build wants
			if err = errors.Join(err, rerr); err != nil {
				return f.trouble(err)
			}
			if round < 0 {
				want = got
				continue
			}
			equal := same(want, got)
			fmt.Printf("# %s, %s, round %d: %s: wall %.2f s, %d requests; %s; %d of %d objects equal\n", p.name, store.name, round, m.what, wall/1e3, after-before, kinds, equal, len(want))
			if equal != len(want) {
				return fmt.Errorf("%s, %s: %d of %d objects are those of the first build", p.name, m.what, equal, len(want))
			}
			m.wall, m.requests = append(m.wall, wall), append(m.requests, float64(after-before))
		}
	}
	for _, m := range all[1:] {
		goal, most := "<= 1.3", "<= 12"
		if m != all[1] {
			goal, most = "-", "-"
		}
		what := fmt.Sprintf("%s, new client, %s 50 ms away, %s", p.name, store.name, m.what)
		b.table.ratio("P30", what, "s", median(m.wall)/1e3, median(all[0].wall)/1e3, goal)
		b.table.note("P30", "its requests", fmt.Sprintf("%.0f", median(m.requests)), "0", most)
	}
	return nil
}

// puts measures P32: a cold build, none of whose results is there, that keeps them in its directory, or in a store 50 ms away as well,
// beside one that keeps none.
func (b *bench) puts() error {
	p := projects[1]
	if err := p.ready(b); err != nil {
		fmt.Printf("# P32 left out: %v\n", err)
		return nil
	}
	type measured struct {
		what, mode, settings string
		wall                 []float64
	}
	all := []*measured{{what: "nowhere", mode: "off"}, {what: "directory", mode: "refresh"}}
	for _, serve := range []func() (*bucketStore, error){b.redisStore, b.s3Store} {
		store, err := farStore(serve)
		if err != nil {
			return err
		}
		if store == nil {
			continue
		}
		defer store.close()
		all = append(all, &measured{what: "directory and " + store.name, mode: "refresh", settings: ", " + store.settings})
	}
	for round := range b.turns {
		for i := range all {
			m := all[(i+round)%len(all)]
			name := fmt.Sprintf("p32-%d-%d", round, i)
			f, err := b.newFarm(farmSpec{name: name, config: "cache: {farm: false, dir: " + filepath.Join(b.tmp, name+"-kept") + m.settings + "}\n"})
			if err != nil {
				return err
			}
			wall, _, err := b.newClientBuilds(f, p, round, m.mode)
			f.close()
			if err != nil {
				return f.trouble(err)
			}
			fmt.Printf("# %s, round %d, kept: %s: wall %.2f s\n", p.name, round, m.what, wall/1e3)
			m.wall = append(m.wall, wall)
		}
	}
	for _, m := range all[1:] {
		b.table.ratio("P32", p.name+", a cold build, results kept: "+m.what+"; nowhere", "s", median(m.wall)/1e3, median(all[0].wall)/1e3, "<= 1.03")
	}
	return nil
}

// newClientBuilds builds a project with a farm that was just started, with that RDISTCC_CACHE, and returns how long that took, in
// milliseconds, and the sums of the objects.
func (b *bench) newClientBuilds(f *farm, p project, round int, cache string) (wall float64, objects map[string][sha256.Size]byte, err error) {
	r, err := newRunner(f.g, b.tmp)
	if err != nil {
		return 0, nil, err
	}
	defer r.close()
	r.limit = buildLimit
	s := &side{name: "rdistcc", run: r, argv: []string{filepath.Join(b.bin, "rdistcc"), "gcc"}, host: f.host, manager: f.manager, env: append(slices.Clone(f.env), "RDISTCC_CACHE="+cache)}
	if err := b.buildOnce(p, asItIs, s, round); err != nil {
		return 0, nil, err
	}
	objects, err = b.objects(filepath.Join(b.tmp, "build"), false)
	return s.wall[0], objects, err
}

// serves starts a server on addr, and waits for it.
func (b *bench) serves(addr, program string, args ...string) (stop func(), err error) {
	path, err := exec.LookPath(program)
	if err != nil {
		if out, goErr := exec.CommandContext(b.ctx, "go", "env", "GOPATH").Output(); goErr == nil {
			path, err = exec.LookPath(filepath.Join(strings.TrimSpace(string(out)), "bin", program))
		}
	}
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(b.ctx, path, args...)
	cmd.Env = b.env("HOME=" + b.tmp)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // an error: it was killed
	}
	for range 200 {
		c, err := (&net.Dialer{}).DialContext(b.ctx, "tcp", addr)
		if err == nil {
			return stop, c.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
	stop()
	return nil, fmt.Errorf("%s does not serve %s", program, addr)
}

// beyond starts a relay to addr that is far away.
func beyond(addr string) (*relay.Relay, error) {
	r, err := relay.New(addr)
	if err == nil {
		r.SetDelay(far / 2)
	}
	return r, err
}

func (b *bench) redisStore() (*bucketStore, error) {
	addr, err := freeAddr(nil)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	stop, err := b.serves(addr, "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", b.tmp)
	if err != nil {
		return nil, err
	}
	r, err := beyond(addr)
	if err != nil {
		stop()
		return nil, err
	}
	return &bucketStore{"redis", "redis: {url: \"redis://" + r.Addr() + "\"}", func() (int, error) { return redisReads(b.ctx, addr) }, func() { r.Close(); stop() }}, nil
}

// redisReads returns how many results a server was asked for.
func redisReads(ctx context.Context, addr string) (int, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	fmt.Fprint(c, "INFO commandstats\r\nQUIT\r\n")
	in := bufio.NewScanner(c)
	for in.Scan() {
		if rest, is := strings.CutPrefix(in.Text(), "cmdstat_get:calls="); is {
			text, _, _ := strings.Cut(rest, ",")
			return strconv.Atoi(text)
		}
	}
	return 0, in.Err()
}

func (b *bench) s3Store() (*bucketStore, error) {
	addr, err := freeAddr(nil)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(b.tmp, "p30-buckets")
	if err := os.MkdirAll(filepath.Join(dir, "results"), 0o755); err != nil {
		return nil, err
	}
	login := filepath.Join(b.tmp, "p30-login")
	if err := os.WriteFile(login, []byte("[default]\naws_access_key_id=AKIDEXAMPLE\naws_secret_access_key=example\n"), 0o600); err != nil {
		return nil, err
	}
	stop, err := b.serves(addr, "versitygw", "--quiet", "--port", addr, "--access", "AKIDEXAMPLE", "--secret", "example", "posix", "--nometa", dir)
	if err != nil {
		return nil, err
	}
	var reads atomic.Int64
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: addr})
	l, err := (&net.ListenConfig{}).Listen(b.ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		stop()
		return nil, err
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			reads.Add(1)
		}
		proxy.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(l) }() // ends with Close
	r, err := beyond(l.Addr().String())
	if err != nil {
		server.Close()
		stop()
		return nil, err
	}
	return &bucketStore{"s3", "s3: {bucket: results, endpoint: \"http://" + r.Addr() + "\", credentials-file: " + login + "}",
		func() (int, error) { return int(reads.Load()), nil }, func() { r.Close(); server.Close(); stop() }}, nil
}
