package grant

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Verdict says what became of a peer's Write after its job.
type Verdict uint8

// Verdicts.
const (
	Refused Verdict = iota // it ended the peer's stream, and changed nothing
	Landed                 // the peer has changed memory that is not its own any more
)

func (v Verdict) String() string { return [...]string{"refused", "lands"}[v] }

// Outcome is what Try found.
type Outcome struct {
	Way     Way
	Jobs    int
	PerJob  time.Duration // Open and Shut of one job, the mean of all
	CPU     time.Duration // of this process, the same
	Verdict Verdict
}

// Try grants peer access to buf for as many jobs, one after the other, without any transfer, and measures
// that. Then it attacks: peer uses the last job's STag after its end. The two sides must be connected, with
// nothing posted, and nothing else may use them. buf has 4 bytes at least. If the attack is refused, the connection has ended
// when Try returns. cpu returns the CPU time that the process has used; nil = not measured.
func Try(ctx context.Context, owner, peer Side, w Way, buf []byte, jobs int, cpu func() time.Duration) (o Outcome, err error) {
	g, err := New(owner, w, buf)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	o = Outcome{Way: w, Jobs: jobs}
	if cpu == nil {
		cpu = func() time.Duration { return 0 }
	}
	var stag iwarp.STag
	var to uint64
	cpu0, t0 := cpu(), time.Now()
	for range jobs {
		if stag, to, err = g.Open(ctx); err != nil {
			return o, err
		}
		if err = g.Shut(ctx); err != nil {
			return o, err
		}
	}
	o.PerJob, o.CPU = time.Since(t0)/time.Duration(jobs), (cpu()-cpu0)/time.Duration(jobs)
	o.Verdict, err = attack(ctx, owner, peer, buf, stag, to)
	return o, err
}

var late = []byte("late")

// attack writes to the start of buf by an STag whose job is over, and sends a message behind it: if that
// arrives, so has the Write.
func attack(ctx context.Context, owner, peer Side, buf []byte, stag iwarp.STag, to uint64) (Verdict, error) {
	clear(buf[:len(late)])
	if err := owner.QP.PostRecv(&iwarp.RecvWR{}); err != nil {
		return 0, err
	}
	for _, wr := range []*iwarp.SendWR{
		{Op: iwarp.OpWrite, Flags: iwarp.Inline, Data: late, STag: stag, TO: to},
		{Op: iwarp.OpSend},
	} {
		if err := peer.QP.PostSend(wr); err != nil && !errors.Is(err, iwarp.ErrState) { // it may have ended by then
			return 0, err
		}
	}
	wc, err := owner.next(ctx)
	if err != nil {
		return 0, fmt.Errorf("grant: nothing came of a late Write: %w", err)
	}
	landed := bytes.Equal(buf[:len(late)], late)
	if wc.Status == iwarp.StatusSuccess && landed {
		return Landed, nil
	}
	if wc.Status == iwarp.StatusSuccess || landed {
		return 0, fmt.Errorf("grant: a late Write landed: %v, and the stream went on: %v", landed, wc.Status == iwarp.StatusSuccess)
	}
	<-owner.QP.Done()
	return Refused, nil
}
