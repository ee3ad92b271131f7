package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// perfResult is the part of the output of rdistcc-perf --json that is used here.
type perfResult struct {
	GBps   float64 `json:"gb_per_second"`
	GBpCPU float64 `json:"gb_per_cpu_second"`
	P50    float64 `json:"p50_us"`
}

// perfServer starts rdistcc-perf as server of a test and returns its address.
func (b *bench) perfServer(g *group, test string, words ...string) (*daemon, string, error) {
	d, err := b.startDaemon(g, test, b.env(), append([]string{filepath.Join(b.bin, "rdistcc-perf"), test, "-s", "--listen", "127.0.0.1:0"}, words...)...)
	if err != nil {
		return nil, "", err
	}
	var addr string
	err = d.await(b.ctx, func() bool {
		out, _ := os.ReadFile(d.log)
		_, rest, ok := strings.Cut(string(out), "listening on ")
		addr, _, _ = strings.Cut(rest, "\n")
		return ok && addr != ""
	})
	if err != nil {
		d.stop()
		return nil, "", err
	}
	return d, addr, nil
}

// perf runs one sample as client.
func (b *bench) perf(args ...string) (perfResult, error) {
	cmd := exec.CommandContext(b.ctx, filepath.Join(b.bin, "rdistcc-perf"), append(args, "--json")...)
	cmd.Env = b.env()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return perfResult{}, fmt.Errorf("rdistcc-perf %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	var r perfResult
	return r, json.Unmarshal(out, &r)
}

// transportSide is one way to move the same bytes.
type transportSide struct {
	name, test string
	args       []string
	server     []string // words for the server
	addr       string

	gbps, gbpcpu, p50 []float64
}

// inTurns runs rounds of all sides, each against a server of its test.
func (b *bench) inTurns(figure string, rounds int, sides []*transportSide) error {
	g, err := b.acct.group("perf")
	if err != nil {
		return err
	}
	servers := make(map[string]string)
	for _, s := range sides {
		kind := strings.Join(append([]string{s.test}, s.server...), " ")
		if servers[kind] == "" {
			d, addr, err := b.perfServer(g, s.test, s.server...)
			if err != nil {
				return err
			}
			defer d.stop()
			servers[kind] = addr
		}
		s.addr = servers[kind]
	}
	for round := -1; round < rounds; round++ { // the first one warms up
		for i := range sides {
			s := sides[(i+round+1)%len(sides)]
			r, err := b.perf(append([]string{s.test, "-c", s.addr}, s.args...)...)
			if err != nil {
				return err
			}
			if round < 0 {
				continue
			}
			b.log.add(sample{Figure: figure, Side: s.name, Round: round, GBps: r.GBps, GBpCPU: r.GBpCPU, P50US: r.P50})
			s.gbps, s.gbpcpu, s.p50 = append(s.gbps, r.GBps), append(s.gbpcpu, r.GBpCPU), append(s.p50, r.P50)
		}
	}
	return nil
}

// goodput measures P10 and P11: 1 MiB RDMA Writes against a raw TCP connection.
func (b *bench) goodput(seconds float64) error {
	d := fmt.Sprintf("%.0fms", seconds*1000)
	tcp := &transportSide{name: "tcp", test: "tcp_bw", args: []string{"--size", "1MiB", "--duration", d}}
	plain := &transportSide{name: "write, no CRC", test: "write_bw", args: []string{"--size", "1MiB", "--duration", d, "--crc=false"}}
	crc := &transportSide{name: "write, CRC", test: "write_bw", args: []string{"--size", "1MiB", "--duration", d}}
	small := &transportSide{name: "write, CRC, FPDU 1408", test: "write_bw", args: []string{"--size", "1MiB", "--duration", d, "--fpdu", "1408"}}
	if err := b.inTurns("P10", 5, []*transportSide{tcp, plain, crc, small}); err != nil {
		return err
	}
	t := &b.table
	t.ratio("P10", "RDMA Write 1 MiB, no CRC", "GB/s", median(plain.gbps), median(tcp.gbps), ">= 0.95")
	t.ratio("P10", "RDMA Write 1 MiB, CRC", "GB/s", median(crc.gbps), median(tcp.gbps), ">= 0.88")
	t.ratio("P11", "a CPU second, no CRC", "GB", median(plain.gbpcpu), median(tcp.gbpcpu), ">= 0.85")
	t.ratio("P11", "a CPU second, CRC", "GB", median(crc.gbpcpu), median(tcp.gbpcpu), ">= 0.68")
	t.ratio("P11", "a CPU second, CRC, FPDU 1408", "GB", median(small.gbpcpu), median(tcp.gbpcpu), ">= 0.40")
	return nil
}

// latency measures P12: 64 bytes there and back between two processes.
func (b *bench) latency() error {
	args := []string{"--size", "64", "--iters", "4000"}
	tcp := &transportSide{name: "tcp", test: "tcp_lat", args: args}
	send := &transportSide{name: "send", test: "send_lat", args: args}
	write := &transportSide{name: "write", test: "write_lat", args: args}
	read := &transportSide{name: "read", test: "read_lat", args: args}
	sides := []*transportSide{tcp, send, write, read}
	// The same with a program that spins: what is left when nothing has to be woken.
	spin := []string{"--wait", "hybrid"}
	spinSend := &transportSide{name: "send, hybrid", test: "send_lat", args: slices.Concat(args, spin), server: spin}
	spinRead := &transportSide{name: "read, hybrid", test: "read_lat", args: slices.Concat(args, spin), server: spin}
	if err := b.inTurns("P12", 9, append(sides, spinSend, spinRead)); err != nil {
		return err
	}
	b.table.ratio("P12", "Send and Receive, 64 bytes, p50 of the round trip", "us", median(send.p50), median(tcp.p50), "<= 1.20")
	b.table.ratio("P12", "RDMA Write and its notice, the same", "us", median(write.p50), median(tcp.p50), "")
	b.table.ratio("P12", "RDMA Read, the same", "us", median(read.p50), median(tcp.p50), "<= 1.50")
	b.table.ratio("P12", "Send and Receive with --wait hybrid", "us", median(spinSend.p50), median(tcp.p50), "")
	b.table.ratio("P12", "RDMA Read with --wait hybrid", "us", median(spinRead.p50), median(tcp.p50), "")
	return nil
}

// secrecy measures the cost of TLS under MPA: goodput, CPU and round trip beside the same without. Its
// frames have their CRC as well.
func (b *bench) secrecy(seconds float64) error {
	dir := filepath.Join(b.tmp, "perf")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	server, client, err := b.identity(dir, true, false)
	if err != nil {
		return err
	}
	write := []string{"--size", "1MiB", "--duration", fmt.Sprintf("%.0fms", seconds*1000)}
	send := []string{"--size", "64", "--iters", "4000"}
	side := func(name, test string, args []string, tls bool) *transportSide {
		s := &transportSide{name: name, test: test, args: args}
		if tls {
			s.args, s.server = slices.Concat(args, client), server
		}
		return s
	}
	open, secret := side("write", "write_bw", write, false), side("write, TLS", "write_bw", write, true)
	ping, whisper := side("send", "send_lat", send, false), side("send, TLS", "send_lat", send, true)
	if err := b.inTurns("S6", 5, []*transportSide{open, secret, ping, whisper}); err != nil {
		return err
	}
	t := &b.table
	t.ratio("S6", "RDMA Write 1 MiB, TLS / without", "GB/s", median(secret.gbps), median(open.gbps), "")
	t.ratio("S6", "a CPU second, TLS / without", "GB", median(secret.gbpcpu), median(open.gbpcpu), "")
	if a, p := median(secret.gbpcpu), median(open.gbpcpu); a > 0 && p > 0 {
		t.note("S6", "CPU that TLS takes for a MB, both ends", fmt.Sprintf("%.2f ms", 1/a-1/p), "", "<= 1 ms")
	}
	t.ratio("S6", "Send of 64 bytes, p50, TLS / without", "us", median(whisper.p50), median(ping.p50), "")
	return nil
}
