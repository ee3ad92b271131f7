// Package streams opens byte streams (package stream) to daemons, on the port that their jobs use: what proves the sides of a
// job's connection to each other proves those of a stream. A stream has a QP of its own.
package streams

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/wire"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/stream"
)

// Version is that of the greeting and of the services. It has nothing to do with that of the job protocol.
const Version = 1

// Service is what a stream is for.
type Service uint8

// HTTP is the daemon's pages: metrics, status, profiles and log.
const HTTP Service = 1

// Toolchains takes toolchains that the daemon does not have (package received).
const Toolchains Service = 2

// magic begins the private data of both sides' start-up, where a connection for jobs has another.
const magic = "RDCS"

// ring is enough for pages, and bounds what a stream takes of a daemon's memory.
const ring = 128 << 10

const greetingLen = len(magic) + 2 + 1

// greeting returns the private data of either side, without proofs.
func greeting(s Service) []byte {
	b := wire.AppendUint16([]byte(magic), Version)
	return append(b, byte(s))
}

// Wanted reports whether the private data of a Request asks for a stream.
func Wanted(private []byte) bool {
	return len(private) >= len(magic) && string(private[:len(magic)]) == magic
}

// Request is what a client asks for.
type Request struct {
	Service Service
	Proof   bool // it wants to prove that it has the pre-shared key
}

// Parse reads the private data of a Request.
func Parse(private []byte) (r Request, why *job.Rejection) {
	bad := &job.Rejection{Cause: job.CauseMalformed, Detail: "a greeting that asks for a stream and makes no sense"}
	if !Wanted(private) || len(private) < greetingLen {
		return r, bad
	}
	if v := uint16(private[4]) | uint16(private[5])<<8; v != Version {
		return r, &job.Rejection{Cause: job.CauseVersion, Detail: fmt.Sprintf("the daemon speaks version %d of streams, not %d", Version, v)}
	}
	r.Service = Service(private[6])
	switch len(private) - greetingLen {
	case 0:
	case psk.RequestLen:
		r.Proof = true
	default:
		return r, bad
	}
	if r.Service != HTTP && r.Service != Toolchains {
		return r, &job.Rejection{Cause: job.CauseVersion, Detail: fmt.Sprintf("the daemon has no service %d", r.Service)}
	}
	return r, nil
}

// Options says how to Dial.
type Options struct {
	Service Service
	Key     *psk.Key // the pre-shared key; nil: there is none
	Host    string   // the name that the daemon's certificate has to have; "": that in the address
}

// Rejected is a daemon's refusal, in its own words.
type Rejected struct{ job.Rejection }

func (r *Rejected) Error() string { return "rejected (" + r.Cause.String() + "): " + r.Detail }

// Dial opens a stream to the daemon at addr. ctx bounds that, not the stream.
func Dial(ctx context.Context, dev iwarp.Device, addr string, o Options) (*stream.Conn, error) {
	e, err := stream.NewEndpoint(dev, stream.Config{Ring: ring})
	if err != nil {
		return nil, err
	}
	p := &iwarp.ConnParam{PrivateData: greeting(o.Service)}
	var proving *psk.Dialing
	if o.Key != nil {
		proving = o.Key.Dial(p.PrivateData, dev.Attr().StartUp)
		p.PrivateData = proving.PrivateData()
	}
	if o.Host != "" {
		ctx = identity.WithHost(ctx, o.Host)
	}
	info, err := dev.Dial(ctx, addr, e.QP(), p)
	if err == nil {
		err = agree(e, info, proving)
	}
	if err != nil {
		_ = e.Close()
		return nil, refusal(err)
	}
	return e.Start(ctx, info.Local, info.Remote)
}

// agree checks the daemon's answer. If the daemon has proven that it has the key, agree lets this side prove the same.
func agree(e *stream.Endpoint, info *iwarp.ConnInfo, proving *psk.Dialing) error {
	private := info.PrivateData
	if proving != nil {
		answer, proof, err := proving.Finish(info.Request, info.Reply, private)
		if err != nil {
			return fmt.Errorf("it does not prove that it has our pre-shared key: %w", err)
		}
		e.Introduce(proof[:])
		private = answer
	}
	if _, no := Parse(private); no != nil {
		return &Rejected{*no}
	}
	return nil
}

// refusal returns err with the daemon's own words, if it has refused the connection, and otherwise without those of the
// system calls: who shows it names the host.
func refusal(err error) error {
	var no *iwarp.RejectedError
	if !errors.As(err, &no) {
		var errno syscall.Errno
		if errors.As(err, &errno) {
			return errno
		}
		return err
	}
	r, perr := job.ParseRejection(no.PrivateData)
	if perr != nil {
		return fmt.Errorf("rejected by a peer that is no rdistccd: %w", err)
	}
	if r.Cause == job.CauseMalformed {
		r.Detail = "it is too old to serve streams (" + r.Detail + ")"
	}
	return &Rejected{r}
}

// Accept makes a stream of a connection request that Parse has read. claim is that of its proof; nil: there is no
// key. An error of the proof is psk.ErrWrong. ctx bounds the start, not the stream.
func Accept(ctx context.Context, dev iwarp.Device, req iwarp.ConnRequest, r Request, claim *psk.Claim) (*stream.Conn, error) {
	e, err := stream.NewEndpoint(dev, stream.Config{Ring: ring})
	if err != nil {
		return nil, err
	}
	p := &iwarp.ConnParam{PrivateData: greeting(r.Service)}
	if claim != nil {
		p.PrivateData, p.Private = nil, func(info iwarp.ConnInfo) []byte { return claim.Answer(greeting(r.Service), info.Request, info.Reply) }
		e.Expect(claim.Check)
	}
	info := req.Info()
	if err := req.Accept(ctx, e.QP(), p); err != nil {
		_ = e.Close()
		return nil, err
	}
	return e.Start(ctx, info.Local, info.Remote)
}
