package rawjob

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// script is the daemon's side of a connection: messages that arrive one by one, and then none any more.
type script struct {
	iwarp.CQ
	c        *Client
	messages []job.Message
}

var errNoMore = errors.New("no more messages")

func (s *script) Poll(wcs []iwarp.WC) int {
	if len(s.messages) == 0 {
		return 0
	}
	n := copy(s.c.recv, job.Append(nil, s.messages[0]))
	s.messages = s.messages[1:]
	wcs[0] = iwarp.WC{Op: iwarp.OpRecv, ByteLen: uint32(n)}
	return 1
}

func (s *script) Wait(context.Context) error { return errNoMore }

type anyQP struct{ iwarp.QP }

func (anyQP) PostRecv(*iwarp.RecvWR) error { return nil }
func (anyQP) PostSend(*iwarp.SendWR) error { return nil }

type anyMR struct{ iwarp.MR }

func (anyMR) Base() uint64     { return 0 }
func (anyMR) STag() iwarp.STag { return 1 }

// TestRecalledWhileIdentifying: a credit that the daemon recalls while the client still waits for the list of compilers is
// not spent. As on a busy host, which identifies its compilers for longer than it lets a client have an unspent credit.
func TestRecalledWhileIdentifying(t *testing.T) {
	c := &Client{recv: make([]byte, recvs*job.MaxMessage), wcs: make([]iwarp.WC, recvs), due: map[uint64]*Pending{}, qp: anyQP{}, rmr: anyMR{}, most: job.MaxMessage}
	id := unit.ToolchainID{1}
	c.cq = &script{c: c, messages: []job.Message{
		&job.Welcome{Identifying: true, Toolchains: 1},
		&job.Grant{Seq: 1, Credits: []job.Credit{{ID: 7}}},
		&job.Recall{Seq: 1, Count: 1},
		&job.Toolchains{Seq: 1, Total: 1, IDs: []unit.ToolchainID{id}},
	}}
	_, err := c.Start(t.Context(), &Job{Toolchain: id, Body: &job.Body{}})
	if !errors.Is(err, errNoMore) || !strings.Contains(err.Error(), "waiting for a credit") {
		t.Errorf("%v, want that it waits for another credit", err)
	}
}
