package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// perftest's programs with -R first make one connection to agree on the test, then one for each QP that is
// measured. On the first one both sides take turns, the client first, in Sends:
//
//	version            16 bytes, text
//	page size          4, to cycle buffers in
//	cache line         4
//	MTU                2, text of an enum that means nothing to iWARP
//	a ptDest of zeros  56, before the other connections are made; another one after
//	ptDests            each QP's, once or twice, in an order of each test's own
//	five figures       8 each, of the client's result (not in every test)
//	a ptDest           the end (not in write_lat)
//
// This is the protocol of version 6.06, Debian's perftest 4.5, with numbers in network byte order.

const (
	ptVersion    = "6.06"
	ptOldest     = 5.70 // it rejects older ones, and so do we
	ptVersionLen = 16
	ptPage       = 4096
	ptCacheLine  = 64
	ptMTU        = "3"
	ptDestLen    = 56
	ptMaxMessage = 64      // longer than any of them
	ptWindow     = 8 << 20 // its largest size with -a: a server does not know the client's
	ptMaxRecvs   = 512
	ptAddr       = "127.0.0.1:18515"
)

// perftestDefaults applies perftest's own defaults where the command line gives none: both sides must
// expect the same.
func (o *options) perftestDefaults(changed func(flag string) bool) {
	if !changed("size") {
		o.size = 65536
		if o.t.latency {
			o.size = 2
		}
	}
	if !changed("iters") && !changed("duration") {
		o.iters = 1000
		if o.t.id == testWriteBW {
			o.iters = 5000
		}
	}
	if !changed("depth") && !o.t.latency {
		o.depth = 128
	}
	if !changed("listen") {
		o.listen = ptAddr
	}
	if !changed("settle") {
		o.settle = ptSettle
	}
}

func (o *options) checkPerftest() error {
	switch {
	case o.all:
		return errors.New("--all is not for --perftest: give each --size by itself")
	case o.iters == 0 && (o.t.latency || o.server && o.t.id == testSendBW):
		return fmt.Errorf("--duration is not for %s --perftest: both sides count, give the same --iters to each", o.t.name)
	}
	return nil
}

// ptRecvs returns how many receives a perftest server of Sends has posted, as far as its client knows.
func (o *options) ptRecvs() int {
	n := ptMaxRecvs
	if o.iters > 0 && o.iters < n {
		n = o.iters
	}
	return n + n&1
}

// ptDest describes a QP.
type ptDest struct {
	LID, OutReads, QPN, PSN, RKey uint32
	_                             uint32
	VAddr                         uint64
	GID                           [16]byte
	SRQN, GIDIndex                uint32
}

func (d *ptDest) encode() []byte {
	b, err := binary.Append(nil, binary.BigEndian, d)
	if err != nil {
		panic("ptDest: a field without a fixed size: " + err.Error())
	}
	return b
}

func parsePTDest(b []byte) (d ptDest, err error) {
	if len(b) != ptDestLen {
		return d, fmt.Errorf("%d bytes where perftest %s describes a QP in %d: another version, or another test", len(b), ptVersion, ptDestLen)
	}
	return d, binary.Read(bytes.NewReader(b), binary.BigEndian, &d)
}

// ptReport is a result in the form that perftest exchanges.
type ptReport struct {
	Size, Iters     uint64
	Peak, Avg, Rate float64 // MiB/s, MiB/s, million messages per second
}

// exchanger is the first connection: it sends a message and receives the peer's counterpart, in the order
// of its role. The answer is valid until the next call.
type exchanger interface {
	exchange(ctx context.Context, mine []byte) ([]byte, error)
}

// ptTalk is the conversation on the first connection.
type ptTalk struct {
	x   exchanger
	t   *test
	qps int
}

// hello settles what does not depend on the test.
func (p *ptTalk) hello(ctx context.Context) error {
	mine := make([]byte, ptVersionLen)
	copy(mine, ptVersion)
	b, err := p.x.exchange(ctx, mine)
	if err != nil {
		return err
	}
	text, _, _ := bytes.Cut(b, []byte{0})
	if v, err := strconv.ParseFloat(string(text), 64); err != nil || v < ptOldest || len(b) != ptVersionLen {
		return fmt.Errorf("the peer calls its version %q: perftest with -R of %.2f or later is needed", text, ptOldest)
	}
	for _, m := range [][]byte{
		binary.BigEndian.AppendUint32(nil, ptPage),
		binary.BigEndian.AppendUint32(nil, ptCacheLine),
		{ptMTU[0], 0},
	} {
		b, err := p.x.exchange(ctx, m)
		if err != nil {
			return err
		}
		if len(b) != len(m) {
			return fmt.Errorf("%d bytes where perftest %s sends %d: another version", len(b), ptVersion, len(m))
		}
	}
	return nil
}

// shake exchanges the descriptions of one QP.
func (p *ptTalk) shake(ctx context.Context, mine ptDest) (ptDest, error) {
	b, err := p.x.exchange(ctx, mine.encode())
	if err != nil {
		return ptDest{}, err
	}
	return parsePTDest(b)
}

// setUp exchanges the descriptions of all QPs until both sides are ready to measure.
func (p *ptTalk) setUp(ctx context.Context, mine []ptDest) ([]ptDest, error) {
	theirs := make([]ptDest, p.qps)
	each := func() error {
		for i := range mine {
			d, err := p.shake(ctx, mine[i])
			if err != nil {
				return err
			}
			theirs[i] = d
		}
		return nil
	}
	once := func() error {
		_, err := p.shake(ctx, mine[0])
		return err
	}
	steps := []func() error{each, each, once}
	switch {
	case p.t.id == testSendBW || p.t.id == testSendLat:
		steps = []func() error{each, once, each, once}
	case p.t.latency:
		steps = []func() error{once, each, each, once}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return theirs, nil
}

// finish exchanges results, if the test does that, and the final message.
func (p *ptTalk) finish(ctx context.Context, mine ptReport, dest ptDest) (theirs ptReport, err error) {
	switch p.t.id {
	case testWriteLat:
		return theirs, nil
	case testWriteBW, testReadBW:
		if _, err := p.shake(ctx, dest); err != nil {
			return theirs, err
		}
		if theirs, err = p.report(ctx, mine); err != nil {
			return theirs, err
		}
	}
	_, err = p.shake(ctx, dest)
	return theirs, err
}

func (p *ptTalk) report(ctx context.Context, mine ptReport) (theirs ptReport, err error) {
	got := [5]uint64{}
	for i, v := range [5]uint64{mine.Size, mine.Iters, math.Float64bits(mine.Peak), math.Float64bits(mine.Avg), math.Float64bits(mine.Rate)} {
		b, err := p.x.exchange(ctx, binary.BigEndian.AppendUint64(nil, v))
		if err != nil {
			return theirs, err
		}
		if len(b) != 8 {
			return theirs, fmt.Errorf("%d bytes where perftest %s tells a figure in 8: another version", len(b), ptVersion)
		}
		got[i] = binary.BigEndian.Uint64(b)
	}
	return ptReport{got[0], got[1], math.Float64frombits(got[2]), math.Float64frombits(got[3]), math.Float64frombits(got[4])}, nil
}
