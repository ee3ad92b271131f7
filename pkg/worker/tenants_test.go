package worker

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// poison marks one client's texts, which no other client may see.
const poison = "poison of the first client;"

// TestNothingOfAnotherClient: nothing that a second client gets or can read has anything that the first one
// sent: a text that it names but never wrote, results and the gaps between their segments, windows, the load
// board.
func TestNothingOfAnotherClient(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	ts := startServer(t, func(o *Options) { o.Source, o.Result, o.Large = 8<<20, 8<<20, 32<<20 })
	// It says what it was given, on all three ways back.
	id := ts.fake("gcc-13", "cat a.c >$out; cat a.c; cat a.c >&2\n")
	secret := strings.Repeat(poison, 600<<10/len(poison)) // more than what slots keep
	long := request{body: compileBody("cpp-output", "a.c"), text: secret, sink: 4 << 20}
	first := dial(t, ts.addr, &job.Hello{Name: "first"})
	for range 8 {
		if r := first.do(id, long); !bytes.Contains(r.sink, []byte(poison)) {
			t.Fatalf("the first client's own: %+v", r.Result)
		}
	}
	offered := long
	offered.offer, offered.sink, offered.fetch = true, 4096, 4<<20
	r := first.do(id, offered)
	if got := first.read(r.Window); !bytes.Contains(got, []byte(poison)) {
		t.Fatalf("the first client's own window: %+v", r.Result)
	}
	first.post(&job.Release{ID: r.ID}, r.Window.STag)
	// Slots that are written into and given back unused carry nothing either.
	first.wait("a credit", func() bool { return len(first.credits) > 0 })
	first.mu.Lock()
	copy(first.src, secret)
	for len(first.credits) > 0 {
		k := first.credits[0]
		if err := first.qp.PostSend(&iwarp.SendWR{Op: iwarp.OpWrite, Flags: iwarp.Unsignaled, STag: iwarp.STag(k.Slot.STag), TO: k.Slot.TO,
			SGL: []iwarp.SGE{{Addr: first.srcMR.Base(), Length: uint32(len(secret)), LKey: first.srcMR.STag()}}}); err != nil {
			t.Fatal(err)
		}
		first.returnLocked()
	}
	first.mu.Unlock()

	for _, gone := range []bool{false, true} {
		if gone {
			first.close()
		}
		second := dial(t, ts.addr, &job.Hello{Name: "second"})
		look := func(what string, b []byte) {
			t.Helper()
			if i := bytes.Index(b, []byte("poison")); i >= 0 {
				t.Fatalf("%s has %.60q at %d", what, b[i:], i)
			}
		}
		body := compileBody("cpp-output", "a.c")
		unwritten := request{body: body, raw: body.Append(nil), sink: 4 << 20, change: func(m *job.Job) { m.TextLen = 1 << 20 }}
		for range 12 {
			r := second.do(id, unwritten)
			if r.Status != job.StatusRan || r.Exit != 0 || r.Files[0].Len != 1<<20 {
				t.Fatalf("a text that was not written: %+v", r.Result)
			}
			look("the result", r.sink)
		}
		for range 4 {
			r := second.do(id, request{body: body, text: "short", sink: 4 << 20})
			look("a short result", r.sink)
			used := r.Files[0].Off + r.Files[0].Len
			for i, x := range r.sink {
				switch at := uint64(i); {
				case at < used && x != 0 && at%64 >= uint64(len("short")):
					t.Fatalf("between the segments there is %02x at %d", x, i)
				case at >= used && x != 0:
					t.Fatalf("behind the result there is %02x at %d", x, i)
				}
			}
		}
		offers := request{body: body, text: strings.Repeat("short", 40<<10), sink: 4096, fetch: 4 << 20}
		r := second.do(id, offers)
		look("a window", second.read(r.Window))
		second.post(&job.Release{ID: r.ID}, r.Window.STag)
		look("the load board", second.read(second.welcome.Board))
		look("what was received", second.recvs)
		second.close()
	}
}

// TestOnlyBoardAndOffersCanBeRead: of all memory that a daemon registers, a peer may
// read its load board, its tenant's shelf and a result that was offered to it, and write its slots; each
// is bound to the peer's own QP. Nothing is both.
func TestOnlyBoardAndOffersCanBeRead(t *testing.T) {
	var dev *watchedDevice
	ts := startServer(t, func(o *Options) {
		o.Source, o.Result, o.Large, o.Results = 8<<20, 8<<20, 32<<20, 8<<20
		dev = &watchedDevice{Device: o.Device}
		o.Device = dev
	})
	id := ts.fake("gcc-13", "cat a.c >$out\n")
	c := dial(t, ts.addr, &job.Hello{})
	body := compileBody("cpp-output", "a.c")
	text := strings.Repeat("x", 50_000)
	if r := c.do(id, request{body: body, text: text}); r.Exit != 0 || r.Status != job.StatusRan {
		t.Fatalf("%+v", r.Result)
	}
	r := c.do(id, request{body: body, text: text, offer: true, sink: 4096, fetch: 1 << 20})
	if r.Window.Len != uint64(len(text)) {
		t.Fatalf("%+v, want a window", r.Result)
	}
	dev.mu.Lock()
	defer dev.mu.Unlock()
	count := map[string]int{}
	for _, m := range dev.regs {
		const remote = iwarp.RemoteRead | iwarp.RemoteWrite | iwarp.RemoteAtomic
		what := ""
		switch m.access & remote {
		case 0:
			what = "private"
		case iwarp.RemoteWrite:
			if m.n == int(ts.slots.Size()) {
				what = "slot"
			}
		case iwarp.RemoteRead:
			switch uint64(m.n) {
			case job.BoardLen:
				what = "board"
			case r.Window.Len:
				what = "offer"
			case c.welcome.Shelf.Len:
				what = "shelf"
			}
		}
		if what == "" || what != "private" && !m.bound {
			t.Errorf("%d bytes were registered with rights %v, bound to a QP: %v", m.n, m.access, m.bound)
		}
		count[what]++
	}
	if count["slot"] == 0 || count["board"] != 1 || count["shelf"] != 1 || count["offer"] != 1 || count["private"] == 0 {
		t.Errorf("registered were %v", count)
	}
}

// watchedDevice records what is registered.
type watchedDevice struct {
	iwarp.Device
	mu   sync.Mutex
	regs []registered
}

type registered struct {
	access iwarp.Access
	n      int
	bound  bool
}

type watchedPD struct {
	iwarp.PD
	d *watchedDevice
}

func (d *watchedDevice) AllocPD() (iwarp.PD, error) {
	pd, err := d.Device.AllocPD()
	return &watchedPD{pd, d}, err
}

func (p *watchedPD) RegMR(b []byte, a iwarp.Access, o *iwarp.MROptions) (iwarp.MR, error) {
	p.d.mu.Lock()
	p.d.regs = append(p.d.regs, registered{a, len(b), o != nil && o.QP != nil})
	p.d.mu.Unlock()
	return p.PD.RegMR(b, a, o)
}
