package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
)

// traffic measures P16: how many bytes a build host sends for a whole build on a host that has nothing of
// it, and for the same build again. A proxy counts them; both sides compress.
func (b *bench) traffic() error {
	var ours, theirs *iwarptest.Proxy
	behind := func(p **iwarptest.Proxy) func(string) (string, error) {
		return func(addr string) (string, error) {
			var err error
			if *p, err = iwarptest.NewProxy(addr, nil); err != nil {
				return "", err
			}
			return (*p).Addr(), nil
		}
	}
	defer func() {
		for _, p := range []*iwarptest.Proxy{ours, theirs} {
			if p != nil {
				_ = p.Close() // it is no longer needed
			}
		}
	}()
	for _, p := range heavy {
		if err := p.ready(b); err != nil {
			fmt.Printf("# left out: %v\n", err)
			continue
		}
		f, err := b.newFarm(farmSpec{name: "p16-" + p.name, via: behind(&ours), options: ",zstd"})
		if err != nil {
			return err
		}
		defer f.close()
		mine, err := b.sends(p, []string{filepath.Join(b.bin, "rdistcc"), "gcc"}, f.env, f.g, ours)
		if err != nil {
			return f.trouble(err)
		}
		places, err := f.places()
		if err != nil {
			return err
		}
		fmt.Printf("# %s, twice: %s\n", p.name, places)
		r, err := b.newRival("p16-distcc-"+p.name, ",lzo", behind(&theirs))
		if err != nil && !errors.Is(err, errNoRival) {
			return err
		}
		var other [2]float64
		if err == nil {
			defer r.close()
			if other, err = b.sends(p, []string{r.client, "gcc"}, r.env, r.g, theirs); err != nil {
				return err
			}
		}
		for i, row := range [2]struct{ what, goal string }{
			{"bytes sent for a build of " + p.name, "<= 0.20"}, {"bytes sent for it again", "<= 0.06"},
		} {
			if other[i] == 0 {
				b.table.note("P16", row.what, fmt.Sprintf("%.2f MB", mine[i]), "no distcc", row.goal)
				continue
			}
			b.table.ratio("P16", row.what, "MB", mine[i], other[i], row.goal)
		}
	}
	return nil
}

// sends builds p twice, and returns how many millions of bytes went to the host each time.
func (b *bench) sends(p project, argv, env []string, g *group, proxy *iwarptest.Proxy) (sent [2]float64, err error) {
	dir, cc := filepath.Join(b.tmp, "build"), strings.Join(argv, " ")
	if err := p.unpack(b, dir, cc, asItIs, env); err != nil {
		return sent, err
	}
	r, err := newRunner(g, b.tmp)
	if err != nil {
		return sent, err
	}
	defer r.close()
	r.limit = buildLimit
	for i := range sent {
		before := proxy.Counts().Sent
		if _, err := r.run(b.ctx, settle, env, dir, p.build(cc, asItIs)...); err != nil {
			return sent, err
		}
		sent[i] = float64(proxy.Counts().Sent-before) / 1e6
		if out, err := exec.CommandContext(b.ctx, "find", dir, "-name", "*.o", "-delete").CombinedOutput(); err != nil {
			return sent, fmt.Errorf("find: %w: %s", err, lastLines(out, 1))
		}
	}
	return sent, nil
}
