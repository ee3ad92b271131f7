package main

import (
	"fmt"
	"strconv"
)

// scalingRounds is the number of samples for one point. A point is a ratio of medians: the shape of a row
// matters, not its last digit.
const scalingRounds = 3

// scaling measures how goodput depends on each parameter, with the others at their defaults, beside raw TCP
// with the same message size and number of connections. It is only part of a run with -only, as it takes
// some minutes.
func (b *bench) scaling(seconds float64) error {
	d := fmt.Sprintf("%.0fms", seconds*500)
	type point struct {
		name      string
		args, tcp []string
		tests     []string
	}
	every := []string{"write_bw", "read_bw", "send_bw"}
	var points []point
	for _, size := range []string{"64", "1KiB", "16KiB", "64KiB", "1MiB", "16MiB", "64MiB"} {
		a := []string{"--size", size}
		points = append(points, point{"size " + size, a, a, every})
	}
	for _, n := range []int{1, 2, 4, 16, 64, 256} {
		a := []string{"--size", "64KiB", "--qps", strconv.Itoa(n)}
		points = append(points, point{fmt.Sprintf("64 KiB, %d QPs", n), a, a, every})
	}
	for _, n := range []int{1, 2, 8, 32, 128} {
		points = append(points, point{fmt.Sprintf("64 KiB, depth %d", n),
			[]string{"--size", "64KiB", "--depth", strconv.Itoa(n)}, []string{"--size", "64KiB"}, every})
	}
	for _, n := range []int{1408, 8928, 16384, 32768, 64764} {
		points = append(points, point{fmt.Sprintf("1 MiB, FPDU %d", n),
			[]string{"--size", "1MiB", "--fpdu", strconv.Itoa(n)}, []string{"--size", "1MiB"}, []string{"write_bw"}})
	}
	for _, p := range points {
		tcp := &transportSide{name: "tcp, " + p.name, test: "tcp_bw", args: append([]string{"--duration", d}, p.tcp...)}
		sides := []*transportSide{tcp}
		for _, test := range p.tests {
			sides = append(sides, &transportSide{name: test + ", " + p.name, test: test, args: append([]string{"--duration", d}, p.args...)})
		}
		if err := b.inTurns("scaling", scalingRounds, sides); err != nil {
			return err
		}
		for _, s := range sides[1:] {
			b.table.ratio("scaling", s.name, "GB/s", median(s.gbps), median(tcp.gbps), "")
			b.table.ratio("scaling", s.name+", a CPU second", "GB", median(s.gbpcpu), median(tcp.gbpcpu), "")
		}
	}
	return nil
}
