package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Sizes that rping accepts, in bytes: librdmacm's needs room for its greeting.
const (
	rpingMin     = 27
	rpingMax     = 1<<16 - 1
	rpingDefault = 64
)

// rpingOptions holds a command line of rping.
type rpingOptions struct {
	options // of its connection
	count   int
	verify  bool
	verbose bool
	pause   time.Duration
}

func rpingCommand() *cobra.Command {
	o := &rpingOptions{options: options{t: &test{name: "rping", read: true}, depth: 1, qps: 1, duration: 1}}
	o.size = rpingDefault
	c := &cobra.Command{
		Use:   "rping {-s | -c ADDR:PORT}",
		Short: "Ping by RDMA Read and RDMA Write, as librdmacm's rping and against it",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return &exitError{exitArguments, err}
			}
			if o.server {
				return o.serve(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			r, err := o.ping(cmd.Context(), cmd.OutOrStdout())
			if err != nil {
				return err
			}
			return r.print(cmd.OutOrStdout(), o.json)
		},
	}
	f := c.Flags()
	o.sideFlags(c, "ping")
	f.Var(&o.size, "size", "bytes of the ping's data; of a server, the most that it takes")
	f.IntVar(&o.count, "count", 10, "client: pings to send; 0 = until interrupted")
	f.BoolVar(&o.verify, "verify", false, "client: compare what comes back with what was sent")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "print the data of each ping")
	f.DurationVar(&o.pause, "pause", 0, "server: wait so long before each RDMA Read (the kernel's siw closes some connections whose Send it answers at once)")
	f.BoolVar(&o.json, "json", false, "client: print one JSON object")
	o.connFlags(c)
	return c
}

func (o *rpingOptions) check() error {
	switch {
	case o.size < rpingMin || o.size > rpingMax:
		return fmt.Errorf("--size %d: %d to %d bytes", int(o.size), rpingMin, rpingMax)
	case o.pause < 0 || o.pause > time.Minute:
		return fmt.Errorf("--pause %v: 0 to 1m", o.pause)
	case o.count < 0:
		return fmt.Errorf("--count %d: a number of pings, or 0 to ping until interrupted", o.count)
	}
	return o.options.check()
}

// rpingAdvert is the only message of the protocol: it advertises a buffer. Those of a server have no
// content; their arrival is the message.
type rpingAdvert struct {
	Addr       uint64
	RKey, Size uint32
}

var rpingAdvertSize = binary.Size(&rpingAdvert{})

// Receives and requests outstanding at a time: the peer takes turns, and one message of it may arrive
// before our own last one has completed.
const (
	rpingRecvs = 4
	rpingSends = 4
)

// rpinger is one side of one connection.
type rpinger struct {
	pd       iwarp.PD
	scq, rcq iwarp.CQ
	qp       iwarp.QP
	adverts  []byte // receives, one after the other
	data     []byte // a client's sink; a server's sink and source
	source   []byte // a client's

	recvMR, dataMR, sourceMR iwarp.MR
}

func newRpinger(dev iwarp.Device, size int, server bool, wait iwarp.Waiting) (p *rpinger, err error) {
	p = &rpinger{adverts: make([]byte, rpingRecvs*rpingAdvertSize), data: make([]byte, size)}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.pd, err = dev.AllocPD(); err != nil {
		return p, err
	}
	if p.scq, err = dev.CreateCQ(rpingSends); err != nil {
		return p, err
	}
	if p.rcq, err = dev.CreateCQ(rpingRecvs); err != nil {
		return p, err
	}
	for _, cq := range []iwarp.CQ{p.scq, p.rcq} {
		if err = cq.SetWaiting(wait); err != nil {
			return p, err
		}
	}
	if p.recvMR, err = p.pd.RegMR(p.adverts, iwarp.LocalWrite, nil); err != nil {
		return p, err
	}
	p.qp, err = p.pd.CreateQP(iwarp.QPInitAttr{SendCQ: p.scq, RecvCQ: p.rcq, MaxSend: rpingSends, MaxRecv: rpingRecvs})
	if err != nil {
		return p, err
	}
	// Remote write for a server too: some hardware places what it reads that way.
	access := iwarp.LocalWrite | iwarp.RemoteWrite
	if p.dataMR, err = p.pd.RegMR(p.data, access, nil); err != nil {
		return p, err
	}
	if !server {
		p.source = make([]byte, size)
		if p.sourceMR, err = p.pd.RegMR(p.source, iwarp.LocalWrite|iwarp.RemoteRead, nil); err != nil {
			return p, err
		}
	}
	for i := range rpingRecvs {
		if err := p.postRecv(uint64(i)); err != nil {
			return p, err
		}
	}
	return p, nil
}

// close ends the connection and frees everything.
func (p *rpinger) close() {
	if p.qp != nil {
		_ = p.qp.Destroy()
	}
	for _, mr := range []iwarp.MR{p.recvMR, p.dataMR, p.sourceMR} {
		if mr != nil {
			_ = mr.Dereg()
		}
	}
	for _, cq := range []iwarp.CQ{p.scq, p.rcq} {
		if cq != nil {
			_ = cq.Close()
		}
	}
	if p.pd != nil {
		_ = p.pd.Dealloc()
	}
}

func (p *rpinger) postRecv(id uint64) error {
	n := rpingAdvertSize
	return p.qp.PostRecv(&iwarp.RecvWR{ID: id, SGL: []iwarp.SGE{{
		Addr: p.recvMR.Base() + id*uint64(n), Length: uint32(n), LKey: p.recvMR.STag()}}})
}

// await waits for one completion.
func (p *rpinger) await(ctx context.Context, cq iwarp.CQ, what string) (iwarp.WC, error) {
	var wc [1]iwarp.WC
	for cq.Poll(wc[:]) == 0 {
		if err := cq.Wait(ctx); err != nil {
			return wc[0], err
		}
	}
	if wc[0].Status != iwarp.StatusSuccess {
		select {
		case <-p.qp.Done():
			if err := p.qp.Err(); err != nil {
				return wc[0], fmt.Errorf("%s: %w", what, err)
			}
			return wc[0], fmt.Errorf("%s: %w", what, errPeerClosed)
		case <-ctx.Done():
			return wc[0], ctx.Err()
		}
	}
	return wc[0], nil
}

var errPeerClosed = errors.New("the peer closed the connection")

// post posts one request and waits for it.
func (p *rpinger) post(ctx context.Context, what string, wr *iwarp.SendWR) error {
	if err := p.qp.PostSend(wr); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	_, err := p.await(ctx, p.scq, what)
	return err
}

// advertise tells the peer of n bytes of mr.
func (p *rpinger) advertise(ctx context.Context, mr iwarp.MR, n int) error {
	b, err := binary.Append(nil, binary.BigEndian, &rpingAdvert{Addr: mr.Base(), RKey: uint32(mr.STag()), Size: uint32(n)})
	if err != nil {
		return err
	}
	return p.post(ctx, "send", &iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Inline, Data: b})
}

// hear waits for the peer's next message.
func (p *rpinger) hear(ctx context.Context) (a rpingAdvert, err error) {
	wc, err := p.await(ctx, p.rcq, "receive")
	if err != nil {
		return a, err
	}
	if int(wc.ByteLen) != rpingAdvertSize {
		return a, fmt.Errorf("a message of %d bytes instead of %d: the peer is not rping", wc.ByteLen, rpingAdvertSize)
	}
	at := int(wc.ID) * rpingAdvertSize
	if err := binary.Read(bytes.NewReader(p.adverts[at:at+rpingAdvertSize]), binary.BigEndian, &a); err != nil {
		return a, err
	}
	return a, p.postRecv(wc.ID)
}

// move does an RDMA Read into p.data, or a Write from it.
func (p *rpinger) move(ctx context.Context, op iwarp.Opcode, a rpingAdvert) error {
	what := map[iwarp.Opcode]string{iwarp.OpRead: "read", iwarp.OpWrite: "write"}[op]
	return p.post(ctx, what, &iwarp.SendWR{Op: op, STag: iwarp.STag(a.RKey), TO: a.Addr,
		SGL: []iwarp.SGE{{Addr: p.dataMR.Base(), Length: a.Size, LKey: p.dataMR.STag()}}})
}

// rpingText writes the data of ping i into b as librdmacm's rping does: a greeting, then characters that start with a
// different one for each ping, then a zero byte.
func rpingText(b []byte, i int) {
	const first, last = 'A', 'z'
	k := copy(b, fmt.Sprintf("rdma-ping-%d: ", i))
	for j := range b[k:] {
		b[k+j] = byte(first + (i+j)%(last-first+1))
	}
	b[len(b)-1] = 0
}

// rpingResult is the output of a client.
type rpingResult struct {
	Pings   int     `json:"pings"`
	Size    int     `json:"size"`
	CRC     bool    `json:"crc"`
	MPA     int     `json:"mpa"`
	RTR     string  `json:"rtr"`
	Seconds float64 `json:"seconds"`
	P50     float64 `json:"p50_us"` // of a ping: two Sends each way, a Read and a Write
	Max     float64 `json:"max_us"`
}

func (r *rpingResult) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	_, err := fmt.Fprintf(w, "rping: %d pings of %d bytes in %.3f s; p50 %.1f us, max %.1f us; MPA revision %d, CRC %v, RTR %s\n",
		r.Pings, r.Size, r.Seconds, r.P50, r.Max, r.MPA, r.CRC, r.RTR)
	return err
}

// ping runs the client.
func (o *rpingOptions) ping(ctx context.Context, out io.Writer) (*rpingResult, error) {
	dev, err := openDevice(ctx, identity.Client)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	p, err := newRpinger(dev, int(o.size), false, o.wait)
	if err != nil {
		return nil, err
	}
	defer p.close()
	info, err := dev.Dial(ctx, o.client, p.qp, o.connParam(dev))
	if err != nil {
		return nil, &exitError{exitConnect, err}
	}
	r := &rpingResult{Size: int(o.size), CRC: info.CRC, MPA: info.Rev, RTR: rtrName(info.RTR)}
	var took []time.Duration
	t0 := time.Now()
	for ; (o.count == 0 || r.Pings < o.count) && ctx.Err() == nil; r.Pings++ {
		t := time.Now()
		if err := p.round(ctx, r.Pings); err != nil {
			if ctx.Err() != nil {
				break
			}
			return nil, fmt.Errorf("ping %d: %w", r.Pings, err)
		}
		took = append(took, time.Since(t))
		if o.verify && !bytes.Equal(p.data, p.source) {
			return nil, &exitError{exitIO, fmt.Errorf("ping %d: what came back is not what was sent", r.Pings)}
		}
		if o.verbose {
			fmt.Fprintf(out, "ping data: %s\n", bytes.TrimRight(p.data, "\x00"))
		}
	}
	r.Seconds = time.Since(t0).Seconds()
	if len(took) > 0 {
		slices.Sort(took)
		r.P50, r.Max = micros(took[len(took)/2]), micros(took[len(took)-1])
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return r, p.qp.Disconnect(ctx)
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// round does ping i: the server reads our source, then writes to our sink.
func (p *rpinger) round(ctx context.Context, i int) error {
	rpingText(p.source, i)
	clear(p.data)
	for _, mr := range []iwarp.MR{p.sourceMR, p.dataMR} {
		if err := p.advertise(ctx, mr, len(p.data)); err != nil {
			return err
		}
		if _, err := p.hear(ctx); err != nil {
			return err
		}
	}
	return nil
}
