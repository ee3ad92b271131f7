package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rawjob"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// startNames is how many names the unknown compilers have, startKinds how many of them are different.
const (
	startNames = 24
	startKinds = 7
)

// started holds how long after the start of its process a daemon reached each point, in seconds.
type started struct{ welcome, listed, compiled []float64 }

// start measures P20: how soon a daemon serves. In turns it knows its compilers from before, and has to
// identify 24 names of 7.
func (b *bench) start() error {
	dir := filepath.Join(b.tmp, "start")
	names := filepath.Join(dir, "bin")
	if err := os.MkdirAll(names, 0o755); err != nil {
		return err
	}
	if err := b.makeNames(names); err != nil {
		return err
	}
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte("toolchains: {dirs: ["+names+"]}\n"), 0o644); err != nil {
		return err
	}
	dev, err := iwarp.Open(iwarp.Config{})
	if err != nil {
		return err
	}
	defer dev.Close()
	gcc, err := new(toolchain.Cache).Identify(b.ctx, filepath.Join(names, "gcc"))
	if err != nil {
		return err
	}
	var known, unknown started
	rounds := max(b.rounds/6, 3)
	for round := range rounds {
		state := filepath.Join(dir, strconv.Itoa(round))
		for _, s := range []*started{&unknown, &known} { // the second start finds what the first one kept
			if err := b.startOnce(dev, s, gcc.ID, state, config); err != nil {
				return err
			}
			side := "unknown"
			if s == &known {
				side = "known"
			}
			b.log.add(sample{Figure: "P20", Side: side + " welcome", Round: round, WallMS: 1000 * s.welcome[round]})
			b.log.add(sample{Figure: "P20", Side: side + " listed", Round: round, WallMS: 1000 * s.listed[round]})
			b.log.add(sample{Figure: "P20", Side: side + " compiled", Round: round, WallMS: 1000 * s.compiled[round]})
		}
	}
	for _, r := range []struct {
		what string
		s    *started
		goal string
	}{
		{"start of rdistccd, compilers known", &known, "<= 0.3 s"},
		{fmt.Sprintf("start of rdistccd, %d names of %d compilers unknown", startNames, startKinds), &unknown, "<= 1 s"},
	} {
		b.table.note("P20", r.what, fmt.Sprintf("welcome %.2f s, first compile %.2f s, all compilers %.2f s (most %.2f, %.2f, %.2f)",
			median(r.s.welcome), median(r.s.compiled), median(r.s.listed), slices.Max(r.s.welcome), slices.Max(r.s.compiled), slices.Max(r.s.listed)), "", r.goal)
	}
	return nil
}

// makeNames makes names of compilers in dir: gcc, scripts around it that stand for other compilers, as this
// machine may have only one, and links to these. Each link leads through a directory of its own, from which
// a driver could find other parts, so each has to be asked.
func (b *bench) makeNames(dir string) error {
	plain := filepath.Join(dir, "gcc")
	if err := os.Symlink(b.gcc, plain); err != nil {
		return err
	}
	kinds := []string{plain}
	for len(kinds) < startKinds {
		name := filepath.Join(dir, "gcc-"+strconv.Itoa(len(kinds)))
		text := fmt.Sprintf("#!/bin/sh\n# compiler %d\nexec %s \"$@\"\n", len(kinds), b.gcc)
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			return err
		}
		kinds = append(kinds, name)
	}
	for i := startKinds; i < startNames; i++ {
		sub := filepath.Join(dir, "sub"+strconv.Itoa(i))
		link := filepath.Join(sub, "x86_64-linux-gnu-gcc-"+strconv.Itoa(i))
		if err := errors.Join(os.Mkdir(sub, 0o755), os.Symlink(kinds[i%startKinds], link), os.Symlink(link, filepath.Join(dir, filepath.Base(link)))); err != nil {
			return err
		}
	}
	return nil
}

// startOnce starts a daemon, asks it for a Welcome repeatedly, has it compile a file with gcc, and waits
// until it has listed the last compiler.
func (b *bench) startOnce(dev iwarp.Device, s *started, gcc unit.ToolchainID, state, config string) error {
	if err := os.MkdirAll(state, 0o700); err != nil {
		return err
	}
	addr, err := freeAddr(nil)
	if err != nil {
		return err
	}
	env := b.env("RDISTCC_DIR="+state, "HOME="+state, "RDISTCC_CONFIG="+config)
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	began := time.Now()
	d, err := b.startDaemon(&group{a: b.acct}, "rdistccd", env, filepath.Join(b.bin, "rdistccd"), "--listen", addr, "--http", "")
	if err != nil {
		return err
	}
	defer d.stop()
	c, err := dialSoon(ctx, dev, addr)
	if err != nil {
		return d.trouble(err)
	}
	defer c.Close()
	if _, _, err := c.Introduced(ctx); err != nil {
		return d.trouble(err)
	}
	s.welcome = append(s.welcome, time.Since(began).Seconds())
	res, err := c.Run(ctx, &rawjob.Job{Toolchain: gcc, Text: []byte("int x;\n"), Sink: 1 << 20, Body: &job.Body{
		Argv0: "gcc", Language: "cpp-output", Name: "a.c", Cwd: "/", Outputs: []unit.Output{{Kind: unit.OutputObject, Name: "a.o"}},
	}})
	if err != nil {
		return d.trouble(err)
	}
	if res.Status != job.StatusRan || res.Exit != 0 {
		return d.trouble(fmt.Errorf("the first job: %+v", res.Result))
	}
	s.compiled = append(s.compiled, time.Since(began).Seconds())
	ids, err := c.Identified(ctx)
	if err != nil {
		return d.trouble(err)
	}
	if len(ids) != startKinds {
		return d.trouble(fmt.Errorf("%d compilers are listed, not %d", len(ids), startKinds))
	}
	s.listed = append(s.listed, time.Since(began).Seconds())
	return nil
}

// dialSoon connects as soon as something answers.
func dialSoon(ctx context.Context, dev iwarp.Device, addr string) (*rawjob.Client, error) {
	for {
		c, err := rawjob.Dial(ctx, dev, addr, 1)
		if err == nil || ctx.Err() != nil {
			return c, err
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}
