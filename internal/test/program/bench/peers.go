package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// peerSide is one library that moves messages over TCP.
type peerSide struct {
	name   string
	g      *group
	sample func(c peerCase, seconds float64) (peerSample, error)
}

// peerCase is what all sides do in turns.
type peerCase struct {
	test   string // "write": RDMA Writes, 16 at a time; "send", "read": round trips
	size   int    // bytes
	conns  int
	asleep bool // both programs block until something has completed; otherwise they poll
}

func (c peerCase) String() string {
	way := "polling"
	if c.asleep {
		way = "asleep"
	}
	return fmt.Sprintf("%s %s, %d, %s", c.test, sizeText(c.size), c.conns, way)
}

func sizeText(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// peerSample is one run. CPU is that of all processes that took part, from their start to their end.
type peerSample struct {
	bytes, seconds float64
	p50            float64 // us, of a round trip
	cpu            time.Duration
}

// value returns what c is about: GB/s, or the round trip in us.
func (s peerSample) value(c peerCase) float64 {
	if c.test != "write" {
		return s.p50
	}
	return s.bytes / s.seconds / 1e9
}

// cost returns CPU nanoseconds a byte.
func (s peerSample) cost() float64 { return float64(s.cpu) / s.bytes }

const peerSeconds = 0.3 // of one sample

// peerCases are those of the table in docs/perf.md.
func peerCases() (all []peerCase) {
	for _, asleep := range []bool{false, true} {
		for _, conns := range []int{1, 8} {
			for _, size := range []int{64, 4 << 10, 64 << 10, 1 << 20, 4 << 20} {
				all = append(all, peerCase{"write", size, conns, asleep})
			}
		}
		all = append(all, peerCase{"send", 64, 1, asleep}, peerCase{"read", 64, 1, asleep})
	}
	return all
}

// peers measures rdistcc-perf next to libfabric's and UCX's transports over TCP, in turns. Of those, what is not installed is left
// out by name.
func (b *bench) peers() error {
	sides, err := b.peerSides()
	if err != nil {
		return err
	}
	table := &peerTable{sides: sides}
	for _, c := range peerCases() {
		got := make(map[string][]peerSample)
		for round := -1; round < b.turns; round++ { // the first one warms up
			for i := range sides {
				s := sides[(i+round+1)%len(sides)]
				x, err := s.sample(c, peerSeconds)
				switch {
				case b.ctx.Err() != nil:
					return b.ctx.Err()
				case err == errNotThere:
					continue
				case err != nil:
					return fmt.Errorf("%s, %v: %w", s.name, c, err)
				case round < 0:
					continue
				}
				b.log.add(sample{Figure: "peers", Side: s.name + ": " + c.String(), Round: round, CPUMS: ms(x.cpu),
					GBps: x.bytes / x.seconds / 1e9, GBpCPU: 1 / x.cost(), P50US: x.p50})
				got[s.name] = append(got[s.name], x)
			}
		}
		table.add(c, got)
	}
	table.print(os.Stdout)
	return nil
}

// errNotThere says that a side has no such test.
var errNotThere = fmt.Errorf("no such test")

// Names of the sides in the table.
const (
	oursPlain, oursCRC = "rdistcc-perf", "with CRC"
	libfabric, ucx     = "libfabric", "UCX"
)

func (b *bench) peerSides() (sides []*peerSide, err error) {
	for _, crc := range []bool{false, true} {
		name := oursPlain
		if crc {
			name = oursCRC
		}
		s := &peerSide{name: name}
		if s.g, err = b.acct.group("peers-" + strings.ReplaceAll(name, " ", "-")); err != nil {
			return nil, err
		}
		s.sample = func(c peerCase, seconds float64) (peerSample, error) { return b.peerOurs(s.g, c, crc, seconds) }
		sides = append(sides, s)
	}
	if prog, err := b.buildFabric(); err != nil {
		fmt.Printf("# libfabric is left out: %v\n", err)
	} else {
		s := &peerSide{name: libfabric}
		if s.g, err = b.acct.group("peers-libfabric"); err != nil {
			return nil, err
		}
		s.sample = func(c peerCase, seconds float64) (peerSample, error) { return b.peerFabric(s.g, prog, c, seconds) }
		sides = append(sides, s)
	}
	if prog, err := exec.LookPath("ucx_perftest"); err != nil {
		fmt.Printf("# UCX is left out: no ucx_perftest: apt-get install ucx-utils\n")
	} else {
		s := &peerSide{name: ucx}
		if s.g, err = b.acct.group("peers-ucx"); err != nil {
			return nil, err
		}
		s.sample = func(c peerCase, seconds float64) (peerSample, error) { return b.peerUCX(s.g, prog, c, seconds) }
		sides = append(sides, s)
	}
	return sides, nil
}

// output runs a client of a sample against the server d, and returns what it printed and the CPU time of both. A server that is
// not kept ends with it.
func (b *bench) output(g *group, d *daemon, keep bool, before time.Duration, env []string, argv ...string) ([]byte, time.Duration, error) {
	ctx, cancel := context.WithTimeout(b.ctx, commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out, said bytes.Buffer
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = env, b.tmp, &out, &said
	if err := g.start(cmd); err != nil {
		return nil, 0, err
	}
	err := cmd.Wait()
	g.waited += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if err != nil {
		return nil, 0, d.trouble(fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, lastLines(said.Bytes(), 2)))
	}
	if !keep {
		select {
		case <-d.done:
			g.waited += d.cmd.ProcessState.UserTime() + d.cmd.ProcessState.SystemTime()
		case <-ctx.Done():
			return nil, 0, d.trouble(fmt.Errorf("it does not end"))
		}
		g.daemons = slices.DeleteFunc(g.daemons, func(x *daemon) bool { return x == d })
	}
	return out.Bytes(), g.usage() - before, nil
}

// peerOurs takes a sample of rdistcc-perf.
func (b *bench) peerOurs(g *group, c peerCase, crc bool, seconds float64) (peerSample, error) {
	test := map[string]string{"write": "write_bw", "send": "send_lat", "read": "read_lat"}[c.test]
	way := []string{"--wait", "poll"}
	if c.asleep {
		way[1] = "loan"
	}
	before := g.usage()
	d, addr, err := b.perfServer(g, test, append(way, "--once")...)
	if err != nil {
		return peerSample{}, err
	}
	defer d.stop()
	argv := append([]string{filepath.Join(b.bin, "rdistcc-perf"), test, "-c", addr, "--json", "--size", strconv.Itoa(c.size),
		"--duration", fmt.Sprintf("%.0fms", seconds*1000), fmt.Sprintf("--crc=%t", crc)}, way...)
	if c.conns > 1 {
		argv = append(argv, "--qps", strconv.Itoa(c.conns))
	}
	out, cpu, err := b.output(g, d, false, before, b.env(), argv...)
	if err != nil {
		return peerSample{}, err
	}
	var r struct {
		Bytes    float64 `json:"bytes"`
		Messages float64 `json:"messages"`
		Seconds  float64 `json:"seconds"`
		P50      float64 `json:"p50_us"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return peerSample{}, err
	}
	return peerSample{bytes: r.Messages * float64(c.size), seconds: r.Seconds, p50: r.P50, cpu: cpu}, nil
}

//go:embed testdata/fabric.c
var fabricSource []byte

// buildFabric builds the peer that uses libfabric.
func (b *bench) buildFabric() (prog string, err error) {
	prog = filepath.Join(b.tmp, "fabric")
	if err := os.WriteFile(prog+".c", fabricSource, 0o644); err != nil {
		return "", err
	}
	if out, err := exec.CommandContext(b.ctx, b.gcc, "-O2", prog+".c", "-o", prog, "-lfabric").CombinedOutput(); err != nil {
		return "", fmt.Errorf("no libfabric to build with: apt-get install libfabric-dev (%s)", lastLines(out, 1))
	}
	return prog, nil
}

// freePort returns a port of loopback that nobody listens on at this moment.
func freePort() (string, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

func (b *bench) peerFabric(g *group, prog string, c peerCase, seconds float64) (peerSample, error) {
	port, err := freePort()
	if err != nil {
		return peerSample{}, err
	}
	before := g.usage()
	d, err := b.startDaemon(g, "fabric", b.env(), prog, port)
	if err != nil {
		return peerSample{}, err
	}
	defer d.stop()
	if err := d.await(b.ctx, d.said("listening")); err != nil {
		return peerSample{}, err
	}
	way := "poll"
	if c.asleep {
		way = "sleep"
	}
	out, cpu, err := b.output(g, d, false, before, b.env(), prog, port, c.test, strconv.Itoa(c.size), strconv.Itoa(c.conns), fmt.Sprint(seconds), way)
	if err != nil {
		return peerSample{}, err
	}
	s := peerSample{cpu: cpu}
	var messages float64
	if _, err := fmt.Sscan(string(out), &messages, &s.seconds, &s.p50); err != nil {
		return peerSample{}, fmt.Errorf("%q: %w", out, err)
	}
	s.bytes = messages * float64(c.size)
	return s, nil
}

// peerUCX takes a sample of ucx_perftest, which has one connection, counts messages instead of seconds, and tells half of a round trip.
// Its puts are active messages: TCP has nothing else.
func (b *bench) peerUCX(g *group, prog string, c peerCase, seconds float64) (peerSample, error) {
	if c.conns > 1 || c.test == "read" {
		return peerSample{}, errNotThere
	}
	port, err := freePort()
	if err != nil {
		return peerSample{}, err
	}
	test, n := "ucp_put_bw", min(max(int(seconds*(1<<30))/c.size, 64), 20000)
	if c.test == "send" {
		test, n = "ucp_am_lat", 4000
	}
	words := []string{prog, "-p", port}
	if c.asleep {
		words = append(words, "-E", "sleep")
	}
	env := append(b.env(), "UCX_TLS=tcp", "UCX_NET_DEVICES=lo")
	before := g.usage()
	d, err := b.startDaemon(g, "ucx", env, words...)
	if err != nil {
		return peerSample{}, err
	}
	defer d.stop()
	if err := d.await(b.ctx, listens(port)); err != nil {
		return peerSample{}, err
	}
	argv := append(slices.Insert(slices.Clone(words), 1, "127.0.0.1"), "-t", test, "-s", strconv.Itoa(c.size), "-n", strconv.Itoa(n), "-w", strconv.Itoa(n/8), "-f")
	out, cpu, err := b.output(g, d, false, before, env, argv...)
	if err != nil {
		return peerSample{}, err
	}
	s, err := parseUCX(string(out), c.size)
	s.cpu = cpu * time.Duration(n) / time.Duration(n+n/8) // the warm-up costs as much a message
	return s, err
}

// parseUCX reads the last line of ucx_perftest -f: iterations; median, average and overall time of one in us; and rates.
func parseUCX(out string, size int) (s peerSample, err error) {
	var n, mean, overall float64
	if _, err := fmt.Sscan(lastLines([]byte(out), 1), &n, &s.p50, &mean, &overall); err != nil {
		return s, fmt.Errorf("ucx_perftest: %q: %w", lastLines([]byte(out), 1), err)
	}
	s.p50 *= 2
	s.bytes, s.seconds = n*float64(size), n*overall/1e6
	return s, nil
}

// listens returns a function that reports whether something listens on a port of this machine. It does not connect, as that
// would be the one client.
func listens(port string) func() bool {
	n, _ := strconv.Atoi(port) // from freePort
	state := fmt.Sprintf(":%04X 00000000:0000 0A ", n)
	return func() bool {
		table, _ := os.ReadFile("/proc/net/tcp")
		return strings.Contains(string(table), state)
	}
}
