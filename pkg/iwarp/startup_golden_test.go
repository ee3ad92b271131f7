package iwarp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

// covers INT-10, MPA-02, MPA-03, MPA-10 to MPA-14, MPA-24, CM-10, CM-21: start-up
// frames that break a rule, over real TCP.
func TestGoldenStartupReactions(t *testing.T) {
	v, err := iwarptest.ReadVectors("testdata/vectors/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range v.MPAReactions {
		t.Run(r.Name, func(t *testing.T) {
			if strings.HasPrefix(r.Role, "responder") {
				responderReaction(t, r)
			} else {
				initiatorReaction(t, r)
			}
		})
	}
}

// responderReaction sends a Request to a listener that would take any.
func responderReaction(t *testing.T, r iwarptest.MPAReaction) {
	s := newSide(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	ln, err := s.dev.Listen(ctx, "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	private := make(chan []byte, 1)
	go func() {
		req, err := ln.Accept(ctx)
		if err != nil {
			return
		}
		private <- req.Info().PrivateData
		_ = req.Accept(ctx, s.qp, &iwarp.ConnParam{}) // it may see the connection close
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	if _, err := c.Write(r.Hex); err != nil {
		t.Fatal(err)
	}
	if r.Expect.Action == "close" {
		if got, err := io.ReadAll(c); len(got) > 0 || isTimeout(err) {
			t.Errorf("got %x, %v; want the connection closed without an answer", got, err)
		}
		return
	}
	got := make([]byte, mpa.FrameSize)
	if _, err := io.ReadFull(c, got); err != nil {
		t.Fatal(err)
	}
	f, n, err := mpa.ParseFrame(got, true)
	if err != nil || n != len(got) || f.Reject || f.Enhanced != nil {
		t.Errorf("answer %x: length %d, %+v, %v", got, n, f, err)
	}
	if got[16]&0x1f != 0 {
		t.Errorf("answer's flags %02x: reserved bits are set", got[16])
	}
	if want := r.Hex[mpa.FrameSize:]; !bytes.Equal(<-private, want) {
		t.Errorf("the application did not get the private data %x", []byte(want))
	}
}

// initiatorReaction answers a Dial with a Reply.
func initiatorReaction(t *testing.T, r iwarptest.MPAReaction) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	answer := make(chan []byte, 1)
	go func() { // a responder that says what the vector says, and listens on
		defer close(answer)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
		if _, err := io.ReadFull(c, make([]byte, mpa.FrameSize+mpa.EnhancedSize)); err != nil {
			return
		}
		if _, err := c.Write(r.Hex); err != nil {
			return
		}
		got, err := io.ReadAll(c)
		if isTimeout(err) {
			return
		}
		answer <- got
	}()
	s := newSide(t)
	// The vector with an ORD that is too big does not agree to peer-to-peer.
	p := &iwarp.ConnParam{ClientServer: r.Name == "reply-ord-too-big", IRD: 128}
	if _, err := s.dev.Dial(t.Context(), ln.Addr().String(), s.qp, p); err == nil {
		t.Error("Dial succeeded")
	} else if rej := (*iwarp.RejectedError)(nil); errors.As(err, &rej) {
		t.Errorf("Dial: %v: it was not the application that refused", err)
	}
	got, ok := <-answer
	if !ok {
		t.Fatal("the connection was not closed")
	}
	if r.Expect.Action == "close" {
		if len(got) > 0 {
			t.Errorf("got %x, want nothing", got)
		}
		return
	}
	all, err := iwarptest.ReadVectors("testdata/vectors/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Clone(all.Find("term-mpa-ird").Hex) // differs in the code only
	want[2+18+1] = r.Expect.ECode
	crc := len(want) - mpa.CRCSize
	for i := range mpa.CRCSize {
		want[crc+i] = byte(mpa.CRC(0, want[:crc]) >> (8 * i))
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%x, want\n%x", got, want)
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
