package main

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Bounds on what a client may ask of a server.
const (
	maxSize   = 1 << 30 // bytes of one message
	maxDepth  = 4096
	maxQPs    = 256
	maxMemory = 4 << 30 // bytes of buffers at each end
)

// Sizes of --all: every fourth power of two.
const (
	sweepFirst = 64
	sweepLast  = 64 << 20
)

// defaultAddr is next to the ports of the daemons.
const defaultAddr = "127.0.0.1:7635"

// options holds a command line.
type options struct {
	t        *test
	server   bool
	client   string
	listen   string
	once     bool
	size     sizeFlag
	all      bool
	more     bool // another size of a sweep follows
	iters    int
	duration time.Duration
	qps      int
	depth    int
	fpdu     sizeFlag
	crc      bool
	markers  bool
	mpa      int
	rtr      rtrFlag
	settle   time.Duration
	wait     iwarp.Waiting
	perftest bool
	json     bool
}

func testCommand(t *test) *cobra.Command {
	o := &options{t: t, size: t.size}
	c := &cobra.Command{
		Use:   t.name + " {-s | -c ADDR:PORT}",
		Short: "Measure the " + t.short,
		Args:  noArguments,
	}
	f := c.Flags()
	o.sideFlags(c, "measure against")
	f.Var(&o.size, "size", "bytes of a message: 64, 4KiB, 1MiB")
	f.BoolVar(&o.all, "all", false, "measure with messages of 64 B to 64 MiB, one after the other")
	f.IntVar(&o.iters, "iters", 0, "messages to send on each connection; 0 = as many as --duration allows")
	f.DurationVar(&o.duration, "duration", 2*time.Second, "how long to measure, without --iters")
	f.IntVar(&o.qps, "qps", 1, "connections at a time")
	f.IntVar(&o.depth, "depth", 16, "messages under way on each")
	f.BoolVar(&o.json, "json", false, "print one JSON object (with --all, one a size)")
	if !t.tcp {
		o.connFlags(c)
		f.BoolVar(&o.perftest, "perftest", false, "speak to perftest's ib_"+t.name+" -R, as its other side")
	}
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.perftest {
			o.perftestDefaults(f.Changed)
		}
		if err := o.check(); err != nil {
			return &exitError{exitArguments, err}
		}
		if o.server {
			return serve(cmd.Context(), o, cmd.ErrOrStderr())
		}
		for _, size := range o.sizes() {
			one := *o
			one.size, one.more = size, o.all && size != sweepLast
			r, err := measure(cmd.Context(), &one)
			if err != nil {
				return err
			}
			if err := r.print(cmd.OutOrStdout(), o.json); err != nil {
				return err
			}
		}
		return nil
	}
	return c
}

// connFlags adds the flags of a connection.
func (o *options) connFlags(c *cobra.Command) {
	f := c.Flags()
	f.Var(&o.fpdu, "fpdu", "longest FPDU in bytes; 0 = what suits the path")
	f.BoolVar(&o.crc, "crc", true, "protect FPDUs by CRC32C")
	f.BoolVar(&o.markers, "markers", false, "have MPA markers in both directions")
	f.IntVar(&o.mpa, "mpa", 2, "client: MPA revision, 1 or 2")
	f.Var(&o.rtr, "rtr", "client: first message of a peer-to-peer connection: none, write, read or send; default: what the server takes")
	f.Var(&o.wait, "wait", "how this side waits for completions: loan, event, poll, hybrid or hybrid:DURATION")
	f.DurationVar(&o.settle, "settle", 0, "wait so long behind MPA start-up before the first message (the kernel's siw needs it: 20ms)")
}

// sizes returns the sizes to measure with.
func (o *options) sizes() []sizeFlag {
	if !o.all {
		return []sizeFlag{o.size}
	}
	var s []sizeFlag
	for n := sizeFlag(sweepFirst); n <= sweepLast; n *= 4 {
		s = append(s, n)
	}
	return s
}

// check rejects contradictions and values out of range.
func (o *options) check() error {
	switch {
	case o.server == (o.client != ""):
		return errors.New("one of -s and -c ADDR:PORT is needed")
	case o.size < 1 || o.size > maxSize:
		return fmt.Errorf("--size %d: 1 byte to 1GiB", o.size)
	case o.iters < 0:
		return fmt.Errorf("--iters %d is negative: give a number of messages, or 0 to measure for --duration", o.iters)
	case o.iters == 0 && o.duration <= 0:
		return fmt.Errorf("--duration %v: must be positive", o.duration)
	case o.qps < 1 || o.qps > maxQPs:
		return fmt.Errorf("--qps %d: 1 to %d", o.qps, maxQPs)
	case o.qps > 1 && o.t.latency:
		return fmt.Errorf("--qps %d: %s measures one connection", o.qps, o.t.name)
	case o.qps*int(o.size) > maxMemory, o.all && o.qps*sweepLast > maxMemory:
		return fmt.Errorf("--qps %d of such messages take more than 4GiB of buffers: take fewer, or a smaller --size without --all", o.qps)
	case o.depth < 1 || o.depth > maxDepth:
		return fmt.Errorf("--depth %d: 1 to %d", o.depth, maxDepth)
	case o.fpdu != 0 && (o.fpdu < 136 || o.fpdu > 64776):
		return fmt.Errorf("--fpdu %d: 136 to 64776 bytes", o.fpdu)
	case o.mpa != 0 && o.mpa != 1 && o.mpa != 2:
		return fmt.Errorf("--mpa %d: revision 1 or 2", o.mpa)
	case o.mpa == 1 && o.rtr.set && o.rtr.form != 0:
		return fmt.Errorf("--rtr %v needs revision 2 of MPA: leave --mpa 1 out, or take --rtr none", &o.rtr)
	case o.settle < 0 || o.settle > time.Minute:
		return fmt.Errorf("--settle %v: 0 to 1m", o.settle)
	}
	if o.perftest {
		return o.checkPerftest()
	}
	return nil
}

// maxULPDU returns the longest ULPDU whose FPDU (including length, pad and CRC) is no longer than --fpdu; 0
// = the stack's choice.
func (o *options) maxULPDU() int {
	if o.fpdu == 0 {
		return 0
	}
	return int(o.fpdu)&^3 - 6
}

// connParam returns the parameters of this side of a connection.
func (o *options) connParam(dev iwarp.Device) *iwarp.ConnParam {
	p := &iwarp.ConnParam{
		MaxULPDU: o.maxULPDU(), Markers: o.markers, Rev: o.mpa, Settle: o.settle,
		RTR: o.rtr.form, ClientServer: o.rtr.set && o.rtr.form == 0,
	}
	if !o.crc {
		p.CRC = iwarp.CRCOffIfAgreed
	}
	if o.t.read {
		depth := uint16(min(o.depth, 1<<14-2))
		p.ORD, p.IRD = min(depth, uint16(dev.Attr().MaxORD)), min(depth, uint16(dev.Attr().MaxIRD))
	}
	return p
}

// rtrFlag is the value of --rtr.
type rtrFlag struct {
	set  bool
	form iwarp.RTRSet
}

var rtrForms = map[string]iwarp.RTRSet{"none": 0, "write": iwarp.RTRWrite, "read": iwarp.RTRRead, "send": iwarp.RTRSend}

// rtrName names the message that began a connection.
func rtrName(f iwarp.RTRSet) string {
	for name, form := range rtrForms {
		if form == f {
			return name
		}
	}
	return "several"
}

func (r *rtrFlag) String() string {
	if !r.set {
		return ""
	}
	return rtrName(r.form)
}

// Type names the value in the help.
func (r *rtrFlag) Type() string { return "form" }

// Set parses a form.
func (r *rtrFlag) Set(v string) error {
	form, ok := rtrForms[v]
	if !ok {
		return fmt.Errorf("%q is none of none, write, read, send", v)
	}
	r.set, r.form = true, form
	return nil
}

// sizeFlag is a number of bytes with an optional unit.
type sizeFlag int

func (s *sizeFlag) String() string {
	n := uint64(*s)
	if n == 0 {
		return "0"
	}
	unit := min(bits.TrailingZeros64(n)/10, 3)
	return strconv.FormatUint(n>>(10*unit), 10) + []string{"", "KiB", "MiB", "GiB"}[unit]
}

// Type names the value in the help.
func (s *sizeFlag) Type() string { return "bytes" }

// Set parses "4096", "4k", "4KiB", "1MiB", "1G".
func (s *sizeFlag) Set(v string) error {
	num := strings.TrimRight(v, "kKmMgGiBb")
	shift, ok := map[string]int{"": 0, "k": 10, "m": 20, "g": 30}[strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(v[len(num):]), "b"), "i")]
	n, err := strconv.ParseUint(num, 10, 31)
	if err != nil || !ok || n<<shift > maxSize {
		return fmt.Errorf("%q is not a size like 64, 4KiB or 1MiB, of at most 1GiB", v)
	}
	*s = sizeFlag(n << shift)
	return nil
}

// noArguments rejects words that are not flags.
func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return &exitError{exitArguments, fmt.Errorf("unknown argument %q: the server's address goes with -c", args[0])}
	}
	return nil
}

// sideFlags adds the flags that choose between server and client. verb is what a client does.
func (o *options) sideFlags(c *cobra.Command, verb string) {
	f := c.Flags()
	f.BoolVarP(&o.server, "server", "s", false, "wait for clients")
	f.StringVarP(&o.client, "client", "c", "", verb+" the server at `ADDR:PORT`")
	f.StringVar(&o.listen, "listen", defaultAddr, "server: `ADDR:PORT` to listen on; port 0 picks one")
	f.BoolVar(&o.once, "once", false, "server: end after one client")
}
