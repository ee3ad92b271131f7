package link

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rdmaread"
)

// owner is an Owner that calls lost when its link is lost, and otherwise does nothing.
type owner struct{ lost func(l *Link) }

func (*owner) Connected()                  {}
func (*owner) Reached(net.Addr)            {}
func (*owner) Learned(*Link, News)         {}
func (*owner) Granted(*Link, []job.Credit) {}
func (*owner) Recalled(*Link, int)         {}

func (*owner) Answered(*Link, job.Load, uint64, *job.Credit) {}

func (*owner) Moved(uint64, uint64)       {}
func (*owner) Tick(*Link, time.Time) bool { return false }
func (*owner) Settled()                   {}
func (o *owner) Lost(l *Link, _ error)    { o.lost(l) }

// TestOwnerIsToldFirst: when a link ends, the owner is told before the flights end, because what waits for
// one of them looks for another link next. The owner may call the link when it is told.
func TestOwnerIsToldFirst(t *testing.T) {
	gone := errors.New("gone")
	before, amid, after := &Flight{ID: 1, Length: 1}, &Flight{ID: 2, Length: 1}, &Flight{ID: 3, Length: 1}
	ended := func(f *Flight) bool {
		select {
		case <-f.Done():
			return true
		default:
			return false
		}
	}
	told := false
	o := &owner{lost: func(l *Link) {
		told = true
		if l.Ended() != gone {
			t.Error("the link says to its owner that it has not ended")
		}
		l.Start(amid)
		if ended(before) || ended(amid) {
			t.Error("a flight has ended before the owner knows that the link has")
		}
	}}
	l := &Link{c: new(Config), owner: o, cause: gone, puller: rdmaread.New(nil, 0, wrRead), dead: make(chan struct{}), flights: make(map[uint64]*Flight)}
	l.Start(before)
	if l.Ended() != nil {
		t.Error("the link says that it has ended")
	}
	l.end()
	l.Start(after)
	for _, f := range []*Flight{before, amid, after} {
		if !told || !ended(f) || f.Err != gone {
			t.Errorf("flight %d of a link that has ended: %v", f.ID, f.Err)
		}
	}
	<-l.Dead()
}

// TestWhoAsksForMore: the owner is not kept waiting by a flight whose result is still to be fetched.
func TestWhoAsksForMore(t *testing.T) {
	here := &Flight{Result: new(job.Result)}
	there := &Flight{Result: &job.Result{Window: job.Window{STag: 1}}}
	for _, c := range []struct {
		landed []*Flight
		want   bool
	}{{nil, false}, {[]*Flight{there}, false}, {[]*Flight{here}, true}, {[]*Flight{there, here}, true}} {
		if got := asks(c.landed); got != c.want {
			t.Errorf("%d flights: %v", len(c.landed), got)
		}
	}
}
