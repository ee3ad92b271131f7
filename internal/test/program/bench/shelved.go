package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// shelfAway is how far away hosts are in P19.
const shelfAway = 10 * time.Millisecond

// shelved measures P19: a hit in the farm's tier of the cache of results, which the manager reads in a host's memory. It
// has no tier of its own here. How many round trips it takes follows from hosts at two distances.
func (b *bench) shelved() error {
	const what, goal = "round trips of a hit in the farm's tier", "<= 2"
	if !b.canBeAway("P19", what, goal) {
		return nil
	}
	const name = "shelved.cc"
	if err := os.WriteFile(filepath.Join(b.tmp, name), []byte(headersSource), 0o644); err != nil {
		return err
	}
	var sides []*side
	var farms []*farm
	for i, rtt := range []time.Duration{shelfAway / 10, shelfAway + shelfAway/10} {
		at, done, err := b.away(1, rtt)
		if err != nil {
			return err
		}
		defer done()
		f, err := b.newFarm(farmSpec{name: fmt.Sprintf("p19-%v", rtt), at: at, config: "cache: {size: 0}\n"})
		if err != nil {
			return err
		}
		defer f.close()
		r, err := newRunner(f.g, b.tmp)
		if err != nil {
			return err
		}
		defer r.close()
		r.limit = buildLimit
		farms = append(farms, f)
		sides = append(sides, &side{name: rtt.String(), run: r, host: f.host, manager: f.manager, env: append(f.env, "RDISTCC_CACHE=on"),
			argv: []string{filepath.Join(b.bin, "rdistcc"), "g++", "-O2", "-g", "-c", name, "-o", fmt.Sprintf("shelved%d.o", i)}})
	}
	if err := b.compete("P19", sides, b.rounds, farms[1]); err != nil {
		return err
	}
	object, err := os.Stat(filepath.Join(b.tmp, "shelved1.o"))
	if err != nil {
		return err
	}
	for i, s := range sides {
		places, err := farms[i].places()
		if err != nil {
			return err
		}
		fmt.Printf("# %s away: wall %.2f ms, client %.2f ms of CPU, manager %.2f, host %.2f; object of %d bytes; %s\n",
			s.name, median(s.wall), median(s.client), median(s.mgr), median(s.far), object.Size(), places)
	}
	trips := median(diff(sides[1].wall, sides[0].wall)) / ms(shelfAway)
	b.table.note("P19", what, fmt.Sprintf("%.2f", trips), "-", goal)
	b.table.note("P19", "host's CPU of such a hit, its stack included", fmt.Sprintf("%.2f ms", median(sides[1].far)), "-", "-")
	return nil
}
