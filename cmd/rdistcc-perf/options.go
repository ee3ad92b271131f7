package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Bounds of what a client may ask a server for.
const (
	maxSize  = 1 << 30 // bytes of one message
	maxDepth = 4096
	maxQPs   = 64
)

// defaultAddr is beside the ports of the daemons.
const defaultAddr = "127.0.0.1:7635"

// test is one measurement.
type test struct {
	name, short string
	id          uint8
	tcp         bool // raw TCP instead of verbs
	latency     bool
	size        sizeFlag // default
}

// Numbers of the tests on the wire.
const (
	testWriteBW = 1 + iota
	testSendBW
	testWriteLat
	testSendLat
	testTCPBW
	testTCPLat
)

var tests = []test{
	{name: "write_bw", short: "goodput of RDMA Writes", id: testWriteBW, size: 1 << 20},
	{name: "send_bw", short: "goodput of Sends", id: testSendBW, size: 64 << 10},
	{name: "write_lat", short: "round trip of an RDMA Write and an empty Send each way", id: testWriteLat, latency: true, size: 64},
	{name: "send_lat", short: "round trip of a Send each way", id: testSendLat, latency: true, size: 64},
	{name: "tcp_bw", short: "goodput of a raw TCP connection", id: testTCPBW, tcp: true, size: 1 << 20},
	{name: "tcp_lat", short: "round trip on a raw TCP connection", id: testTCPLat, tcp: true, latency: true, size: 64},
}

// options are a command line.
type options struct {
	t        *test
	server   bool
	client   string
	listen   string
	once     bool
	size     sizeFlag
	iters    int
	duration time.Duration
	qps      int
	depth    int
	fpdu     sizeFlag
	crc      bool
	json     bool
}

func testCommand(t *test) *cobra.Command {
	o := &options{t: t, size: t.size}
	c := &cobra.Command{
		Use:   t.name + " {-s | -c ADDR:PORT}",
		Short: "Measure the " + t.short,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &exitError{exitArguments, fmt.Errorf("unknown argument %q: the server's address goes with -c", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return &exitError{exitArguments, err}
			}
			if o.server {
				return serve(cmd.Context(), o, cmd.ErrOrStderr())
			}
			r, err := measure(cmd.Context(), o)
			if err != nil {
				return err
			}
			return r.print(cmd.OutOrStdout(), o.json)
		},
	}
	f := c.Flags()
	f.BoolVarP(&o.server, "server", "s", false, "wait for clients")
	f.StringVarP(&o.client, "client", "c", "", "measure against the server at `ADDR:PORT`")
	f.StringVar(&o.listen, "listen", defaultAddr, "server: `ADDR:PORT` to listen on; port 0 picks one")
	f.BoolVar(&o.once, "once", false, "server: end after one client")
	f.Var(&o.size, "size", "bytes of a message: 64, 4KiB, 1MiB")
	f.IntVar(&o.iters, "iters", 0, "messages to send; 0 = as many as --duration allows")
	f.DurationVar(&o.duration, "duration", 2*time.Second, "how long to measure, without --iters")
	f.BoolVar(&o.json, "json", false, "print one JSON object")
	if !t.latency {
		f.IntVar(&o.qps, "qps", 1, "connections at a time")
		f.IntVar(&o.depth, "depth", 16, "messages under way on each")
	} else {
		o.qps, o.depth = 1, 1
	}
	if !t.tcp {
		f.Var(&o.fpdu, "fpdu", "longest FPDU in bytes; 0 = what suits the path")
		f.BoolVar(&o.crc, "crc", true, "protect FPDUs by CRC32C")
	}
	return c
}

// check finds contradictions and values out of range.
func (o *options) check() error {
	switch {
	case o.server == (o.client != ""):
		return errors.New("one of -s and -c ADDR:PORT is needed")
	case o.size < 1 || o.size > maxSize:
		return fmt.Errorf("--size %d: 1 byte to 1GiB", o.size)
	case o.iters < 0:
		return fmt.Errorf("--iters %d is negative", o.iters)
	case o.iters == 0 && o.duration <= 0:
		return fmt.Errorf("--duration %v: must be positive", o.duration)
	case o.qps < 1 || o.qps > maxQPs:
		return fmt.Errorf("--qps %d: 1 to %d", o.qps, maxQPs)
	case o.depth < 1 || o.depth > maxDepth:
		return fmt.Errorf("--depth %d: 1 to %d", o.depth, maxDepth)
	case o.fpdu != 0 && (o.fpdu < 136 || o.fpdu > 64776):
		return fmt.Errorf("--fpdu %d: 136 to 64776 bytes", o.fpdu)
	}
	return nil
}

// maxULPDU is the longest ULPDU whose FPDU (length, pad and CRC included) is no
// longer than --fpdu; 0 = the stack's choice.
func (o *options) maxULPDU() int {
	if o.fpdu == 0 {
		return 0
	}
	return int(o.fpdu)&^3 - 6
}

// params travel from the client to the server before anything else.
type params struct {
	Magic [4]byte
	Test  uint8
	CRC   bool
	Size  uint32
	Depth uint32
	FPDU  uint32
}

var paramsMagic = [4]byte{'r', 'd', 'p', '1'}

func (o *options) params() []byte {
	p := params{paramsMagic, o.t.id, o.crc, uint32(o.size), uint32(o.depth), uint32(o.fpdu)}
	b, err := binary.Append(nil, binary.BigEndian, &p)
	if err != nil {
		panic("params: a field without a fixed size: " + err.Error())
	}
	return b
}

// parseParams reads what a client sent, for the server of test t.
func parseParams(b []byte, t *test) (*options, error) {
	var p params
	if n := binary.Size(&p); len(b) != n {
		return nil, fmt.Errorf("%d bytes of parameters instead of %d: not rdistcc-perf, or another version", len(b), n)
	}
	if err := binary.Read(bytes.NewReader(b), binary.BigEndian, &p); err != nil {
		return nil, err
	}
	if p.Magic != paramsMagic {
		return nil, errors.New("the peer is not rdistcc-perf, or another version")
	}
	if p.Test != t.id {
		return nil, fmt.Errorf("this server runs %s", t.name)
	}
	o := &options{t: t, client: "-", size: sizeFlag(p.Size), depth: int(p.Depth), qps: 1, duration: 1, fpdu: sizeFlag(p.FPDU), crc: p.CRC}
	return o, o.check()
}

// sizeFlag is a number of bytes with an optional unit.
type sizeFlag int

func (s *sizeFlag) String() string { return strconv.Itoa(int(*s)) }

// Type names the value in the help.
func (s *sizeFlag) Type() string { return "bytes" }

// Set parses "4096", "4k", "4KiB", "1MiB", "1G".
func (s *sizeFlag) Set(v string) error {
	num := strings.TrimRight(v, "kKmMgGiB")
	shift, ok := map[string]int{"": 0, "k": 10, "m": 20, "g": 30}[strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(v[len(num):]), "b"), "i")]
	n, err := strconv.ParseUint(num, 10, 31)
	if err != nil || !ok || n<<shift > maxSize {
		return fmt.Errorf("%q is not a size like 64, 4KiB or 1MiB, of at most 1GiB", v)
	}
	*s = sizeFlag(n << shift)
	return nil
}
