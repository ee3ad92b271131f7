package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"

	"github.com/rdistcc/rdistcc/internal/hostlist"
	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rdmaread"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Dial connects to the daemon of the host addr by dialling the address at. It returns once the daemon has
// sent its Welcome and its toolchains; ctx bounds all of that. The caller must call Run on the link.
//
// An error is worded for the user and leaves it to the caller to name the host. Hopeless reports whether
// trying again is pointless.
func Dial(ctx context.Context, c *Config, owner Owner, addr, at string) (*Link, error) {
	l, err := dial(ctx, c, owner, addr, at, job.Version)
	var no *rejection
	if errors.As(err, &no) {
		if version, ok := no.Instead(job.Version); ok {
			return dial(ctx, c, owner, addr, at, version)
		}
	}
	return l, err
}

// dial is Dial with one version of the protocol.
func dial(ctx context.Context, c *Config, owner Owner, addr, at string, version uint16) (*Link, error) {
	l := &Link{
		c: c, owner: owner, addr: addr,
		up:      make(chan struct{}),
		retire:  make(chan struct{}),
		dead:    make(chan struct{}),
		ids:     make(map[unit.ToolchainID]bool),
		flights: make(map[uint64]*Flight),
	}
	var err error
	defer func() {
		if err != nil {
			l.destroy()
		}
	}()
	if l.cq, err = c.Device.CreateCQ(maxSend + recvBuffers); err != nil {
		return nil, fmt.Errorf("completion queue: %w", err)
	}
	if err = l.cq.SetWaiting(c.Wait); err != nil {
		return nil, err
	}
	l.qp, err = c.PD.CreateQP(iwarp.QPInitAttr{SendCQ: l.cq, RecvCQ: l.cq, MaxSend: maxSend, MaxRecv: recvBuffers, MaxSGE: 1})
	if err != nil {
		return nil, fmt.Errorf("queue pair: %w", err)
	}
	hi := job.Greeting{Version: version, Boot: c.Boot}
	p := &iwarp.ConnParam{PrivateData: hi.Append(nil), Timeout: c.DialTimeout}
	var proving *psk.Dialing // nil: there is no key
	if c.Key != nil {
		if k := c.Key(); k != nil {
			proving = k.Dial(p.PrivateData, c.Device.Attr().StartUp)
			p.PrivateData = proving.PrivateData()
		}
	}
	p.Unsent, p.Connected = unsent, func(net.Addr) { owner.Connected() }
	p.ORD, p.IRD = rdmaread.Depths(c.Device.Attr())
	name, _, serr := net.SplitHostPort(addr)
	if serr != nil {
		name = addr
	}
	info, err := c.Device.Dial(identity.WithHost(ctx, name), at, l.qp, p)
	if err != nil {
		return nil, atPort(addr, err)
	}
	owner.Reached(info.Remote)
	answer, err := job.ParseGreeting(info.PrivateData)
	if err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	if answer.Version != version {
		err = fmt.Errorf("answers with version %d of the job protocol to version %d; install the same rdistcc on both", answer.Version, version)
		return nil, err
	}
	var proof *job.Proof
	if proving != nil {
		// Checked before anything is sent: a host that does not prove that it has the key gets no message,
		// and there is no connection without the proof.
		proof = new(job.Proof)
		if _, proof.MAC, err = proving.Finish(info.Request, info.Reply, info.PrivateData); err != nil {
			err = fmt.Errorf("does not prove that it has our pre-shared key: %w", err)
			return nil, err
		}
	}
	if err = l.openReceives(); err != nil {
		return nil, err
	}
	l.path, l.peer = newPath(info), info.Peer
	l.puller, l.peerReads = rdmaread.New(l.qp, int(info.ORD), wrRead), info.IRD > 0
	l.running.Go(l.serve)
	l.running.Go(l.tick)
	l.mu.Lock()
	if proof != nil {
		l.sendLocked(proof, 0)
	}
	hello := &job.Hello{Name: job.Clip(c.Name, job.MaxName), Want: MaxInFlight, Bare: c.Bare}
	if version >= 12 {
		hello.Program = job.Clip(c.Version, job.MaxName)
	}
	l.sendLocked(hello, 0)
	l.mu.Unlock()
	if l.welcomed(ctx) {
		return l, nil
	}
	err = l.Err()
	return nil, err
}

// openReceives posts the receives of an established connection. That is early enough, because the daemon
// sends nothing before our Hello. Any earlier, each unreachable host of a long list would hold receive memory.
func (l *Link) openReceives() (err error) {
	l.recvMem = make([]byte, recvBuffers*job.MaxMessage)
	if l.recvMR, err = l.c.PD.RegMR(l.recvMem, iwarp.LocalWrite, nil); err != nil {
		return fmt.Errorf("register receives: %w", err)
	}
	for i := recvBuffers - 1; i >= 0; i-- {
		l.spare = append(l.spare, i)
	}
	for range job.Spare + 1 {
		if err := l.postRecvLocked(); err != nil { // no lock is needed: no other goroutine has l yet
			return err
		}
	}
	return nil
}

// errUnknownName: a host's name does not resolve; it may be mistyped.
var errUnknownName = errors.New("no such host: correct its name in the host list, or in DNS or /etc/hosts")

// dialError returns what a Dial or a connection failed on, in the daemon's own words if it rejected the
// connection. Operation, address and system call are left out, as in "connection refused": what shows the
// error names the host.
func dialError(err error) error {
	var no *iwarp.RejectedError
	if !errors.As(err, &no) {
		var op *net.OpError
		var errno syscall.Errno
		var name *net.DNSError
		var unproven *identity.Error
		switch {
		case errors.As(err, &unproven): // "hung up on TLS" says more than "connection reset"
			return unproven
		case errors.Is(err, iwarp.ErrPeerTLS):
			return iwarp.ErrPeerTLS
		case errors.As(err, &name) && name.IsNotFound:
			return errUnknownName
		case errors.As(err, &name): // without the server that was asked
			return fmt.Errorf("lookup %s: %s", name.Name, name.Err)
		case errors.As(err, &errno):
			return errno
		case errors.As(err, &op):
			return op.Err
		}
		return err
	}
	r, perr := job.ParseRejection(no.PrivateData)
	if perr != nil {
		return fmt.Errorf("rejected by a peer that is no rdistccd: %w", err)
	}
	return &rejection{r}
}

// atPort returns dialError(err) with what the port tells of a peer that is not there, or hangs up: distccd listens there, or would.
func atPort(addr string, err error) error {
	said := dialError(err)
	_, port, _ := net.SplitHostPort(addr)
	var no *iwarp.RejectedError
	var name *net.DNSError
	switch {
	case port != strconv.Itoa(hostlist.DistccPort), errors.As(err, &no), errors.As(err, &name), Hopeless(err),
		errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return said
	}
	return fmt.Errorf("%w; %s", said, hostlist.DistccPortNote)
}

// Hopeless reports whether dialling again is pointless after err, from Dial or from a link that has ended:
// one side does not accept the other's version, name, key or certificate.
func Hopeless(err error) bool {
	var no *rejection
	return errors.As(err, &no) && (no.Cause == job.CauseDenied || no.Cause == job.CauseVersion) ||
		errors.Is(err, psk.ErrMissing) || errors.Is(err, psk.ErrWrong) || unproven(err)
}

// unproven reports whether one side does not accept the other's certificate, or its lack of TLS. Dialling
// again does not change that.
func unproven(err error) bool {
	if errors.Is(err, iwarp.ErrPeerTLS) {
		return true
	}
	var e *identity.Error
	return errors.As(err, &e) && e.Cause != identity.CauseClosed && e.Cause != identity.CauseTimeout && e.Cause != identity.CauseTooMany
}

// HungUp reports whether the peer of a Dial ended a TLS handshake without a word, as one does that speaks no TLS, and as a proxy does
// whose daemon is not there yet.
func HungUp(err error) bool {
	var e *identity.Error
	return errors.As(err, &e) && e.Cause == identity.CauseClosed
}

// rejection is a daemon's refusal of the connection.
type rejection struct{ job.Rejection }

func (r *rejection) Error() string { return "rejected (" + r.Cause.String() + "): " + r.Detail }
