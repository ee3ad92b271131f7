package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/engine"
)

// clusters measures P31: an empty C file by way of a daemon that hands its jobs to a cluster which is not ours, beside one that runs them
// itself, and beside the same action by a client that does nothing but ask the cluster for it; by turns.
func (b *bench) clusters() error {
	e, err := engine.Start(b.ctx, b.sources, filepath.Join(b.tmp, "engine"), 4)
	if errors.Is(err, engine.ErrMissing) {
		fmt.Println("# P31:", err)
		return nil
	}
	if err != nil {
		return err
	}
	defer func() {
		if err := e.Stop(); err != nil {
			fmt.Println("# P31:", err)
		}
	}()
	if err := os.WriteFile(filepath.Join(b.tmp, "empty.c"), nil, 0o644); err != nil {
		return err
	}
	sides, farms, done, err := b.sidesOf([]farmSpec{{name: "cluster", executor: "grpc://" + e.Addr}, {name: "host"}}, "gcc", "-c", "empty.c")
	if err != nil {
		return err
	}
	defer done()
	if err := b.turn("P31", sides, -1, farms[0]); err != nil { // the compiler has been uploaded
		return err
	}
	last, err := lastAction(farms[0].daemons[0].log)
	if err != nil {
		return err
	}
	client, err := engine.Dial(e.Addr)
	if err != nil {
		return err
	}
	defer client.Close()
	var alone []float64
	for round := -warmup; round < b.rounds; round++ {
		if err := b.turn("P31", sides, round, farms[0]); err != nil {
			return err
		}
		began := time.Now()
		if err := client.Execute(b.ctx, last.hash, last.size); err != nil {
			return err
		}
		wall := ms(time.Since(began))
		if round < 0 {
			continue
		}
		alone = append(alone, wall)
		b.log.add(sample{Figure: "P31", Side: "the cluster alone", Round: round, WallMS: wall})
	}
	for i, s := range sides {
		places, err := farms[i].places()
		if err != nil {
			return err
		}
		fmt.Printf("# %s: wall %.2f ms, client %.2f and manager %.2f ms of CPU; %s\n", s.name, median(s.wall), median(s.client), median(s.mgr), places)
	}
	b.table.ratio("P31", "wall of an empty file on a cluster; the cluster's own for the action", "ms", median(sides[0].wall), median(alone), "<= 1.2")
	b.table.ratio("P31", "wall of an empty file on a cluster; on a host", "ms", median(sides[0].wall), median(sides[1].wall), "-")
	b.table.ratio("P31", "client's CPU of such a job", "ms", median(sides[0].client)+median(sides[0].mgr), median(sides[1].client)+median(sides[1].mgr), "-")
	return nil
}

// action is the digest of one.
type action struct {
	hash string
	size int64
}

// aDigest finds in a daemon's log which actions it has had executed.
var aDigest = regexp.MustCompile(`msg=action digest=([0-9a-f]{64}) size=([0-9]+)`)

// lastAction returns the last action in a daemon's log.
func lastAction(log string) (*action, error) {
	text, err := os.ReadFile(log)
	if err != nil {
		return nil, err
	}
	all := aDigest.FindAllSubmatch(text, -1)
	if len(all) == 0 {
		return nil, fmt.Errorf("no action in %s", log)
	}
	last := all[len(all)-1]
	n, err := strconv.ParseInt(string(last[2]), 10, 64)
	return &action{string(last[1]), n}, err
}
