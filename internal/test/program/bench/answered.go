package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// answered measures S8: a compile of P14's file, whose headers the host holds, in a tree that answers the compiler's calls, beside one in a
// tree of namespaces, by turns.
func (b *bench) answered() error {
	const name = "answered.cc"
	if err := os.WriteFile(filepath.Join(b.tmp, name), []byte(headersSource), 0o644); err != nil {
		return err
	}
	sides, farms, done, err := b.sidesOf([]farmSpec{{name: "answered", sandbox: "strict", tree: "answered"}, {name: "auto", sandbox: "strict", tree: "auto"}}, "g++", "-O2", "-g", "-c", name)
	if err != nil {
		return err
	}
	defer done()
	if err := b.compete("S8", sides, b.rounds, farms[0]); err != nil {
		return err
	}
	for i, s := range sides {
		places, err := farms[i].places()
		if err != nil {
			return err
		}
		fmt.Printf("# %s: wall %.2f ms, host %.2f ms of CPU; %s\n", s.name, median(s.wall), median(s.far), places)
	}
	b.table.ratio("S8", "host's CPU of a job of 350 headers in an answered tree; in a private tree", "ms", median(sides[0].far), median(sides[1].far), "<= 1.5")
	b.table.ratio("S8", "wall of such a job", "ms", median(sides[0].wall), median(sides[1].wall), "-")
	return nil
}
