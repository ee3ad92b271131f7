package outfit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rdistcc/rdistcc/internal/compress"
	"github.com/rdistcc/rdistcc/internal/toolchain/parcel"
)

// ErrUnfit is wrapped by the error about a host that could not run a toolchain.
var ErrUnfit = errors.New("the host cannot run it")

// ErrQuota is wrapped by the error about a host that has no room for a toolchain.
var ErrQuota = errors.New("the host has no room for it")

// What a delivery may take. Then it fails, and is tried again later, so that a host that is never content does not keep others from
// theirs.
const (
	patience  = 10 * time.Minute // one request
	dialTime  = 5 * time.Second
	wait      = time.Second // before the host is asked again whether another client has sent the same content
	mostWaits = 180         // hosts let clients wait no longer for a slow one, for 150 MB
	mostSends = 3           // times that a host may take a file and want it again, because it had to make room
)

// send sends k to a host. bytes is how many went there.
func (x *Outfitter) send(p pair, d *delivery, k *kit) (sent uint64, err error) {
	packed, err := x.pack(k)
	if err != nil {
		return 0, err
	}
	var out atomic.Uint64
	t := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTime)
		defer cancel()
		c, err := x.o.Dial(ctx, p.addr)
		if err != nil {
			return nil, err
		}
		return &counted{c, &out}, nil
	}, MaxConnsPerHost: 1, DisableCompression: true, ExpectContinueTimeout: 5 * time.Second}
	defer t.CloseIdleConnections()
	s := &sender{x: x, http: &http.Client{Transport: t, Timeout: patience}, packed: packed, progress: x.progress(p, d), taken: map[string]int{}}
	if err := s.fits(); err != nil {
		return out.Load(), err
	}
	for waits := 0; ; {
		o, err := s.offer()
		if err != nil || len(o.Missing) == 0 {
			return out.Load(), err
		}
		if n := len(s.parcel.Entries); len(o.Missing) > n {
			return out.Load(), fmt.Errorf("the host wants %d files, and the toolchain has %d", len(o.Missing), n)
		}
		x.mu.Lock()
		d.Done, d.All = s.sizes(o)
		x.mu.Unlock()
		busy := false
		for _, m := range o.Missing {
			err := s.content(o.ID, m)
			if errors.Is(err, errBusy) {
				busy = true
				continue
			}
			if err != nil {
				return out.Load(), err
			}
		}
		if !busy {
			continue // the next offer says that nothing is missing
		}
		if waits++; waits > mostWaits {
			return out.Load(), fmt.Errorf("%w, and has not ended in %v", errBusy, mostWaits*wait)
		}
		select {
		case <-time.After(wait):
		case <-x.ctx.Done():
			return out.Load(), x.ctx.Err()
		}
	}
}

// counted counts what is written to a connection.
type counted struct {
	net.Conn
	out *atomic.Uint64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.out.Add(uint64(n))
	return n, err
}

// sender sends one toolchain to one host.
type sender struct {
	x    *Outfitter
	http *http.Client
	*packed
	progress func(n uint64)
	taken    map[string]int // how many times the host has taken a file
}

// errSilent is the answer of a daemon that does not know the question.
var errSilent = errors.New("the host's rdistccd is too old")

var errBusy = errors.New("another client is sending it")

// do sends a request, and decodes the answer if into is not nil.
func (s *sender) do(method, path string, body io.Reader, packed bool, into any) error {
	r, err := http.NewRequestWithContext(s.x.ctx, method, "http://host"+path, body)
	if err != nil {
		return err
	}
	if packed {
		r.Header.Set("Content-Encoding", "zstd")
		r.Header.Set("Expect", "100-continue") // a refusal comes before the content
	}
	a, err := s.http.Do(r)
	if e := new(url.Error); errors.As(err, &e) {
		return e.Err // the address has no meaning for anybody
	}
	if err != nil {
		return err
	}
	defer a.Body.Close()
	answer := io.LimitReader(a.Body, 4<<20)
	if a.StatusCode >= 300 {
		var no parcel.Refusal
		if err := json.NewDecoder(answer).Decode(&no); err != nil {
			if a.StatusCode == http.StatusNotFound {
				return errSilent
			}
			return fmt.Errorf("the host answers with status %s", a.Status)
		}
		switch no.Cause {
		case parcel.CauseBusy:
			return errBusy
		case parcel.CauseQuota:
			return fmt.Errorf("%w: %s", ErrQuota, no.Text)
		}
		return errors.New(no.Text)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(answer).Decode(into)
}

// fits returns an error if the host could not run the toolchain. A daemon that says nothing of itself is offered it.
func (s *sender) fits() error {
	var h parcel.About
	if err := s.do(http.MethodGet, "/about", nil, false, &h); err != nil && !errors.Is(err, errSilent) {
		return err
	}
	if why := s.parcel.Needs.Missing(&h); why != "" {
		return fmt.Errorf("%w: it %s", ErrUnfit, why)
	}
	return nil
}

func (s *sender) offer() (o parcel.Offered, err error) {
	err = s.do(http.MethodPost, "/offer", bytes.NewReader(s.encoded), false, &o)
	return o, err
}

// sizes returns how many bytes of the contents the host has, and how many there are.
func (s *sender) sizes(o parcel.Offered) (have, all uint64) {
	_, all = s.parcel.Contents()
	have = all
	for _, m := range o.Missing {
		if e := s.entry(m.File); e != nil {
			have -= min(have, e.Len-min(m.Have, e.Len))
		}
	}
	return have, all
}

func (s *sender) entry(name string) *parcel.Entry {
	for i := range s.parcel.Entries {
		if e := &s.parcel.Entries[i]; e.Name == name && !e.Link() {
			return e
		}
	}
	return nil
}

// content sends what the host lacks of one content. Nothing reads the file any more when it returns.
func (s *sender) content(id string, m parcel.Wanted) error {
	e := s.entry(m.File)
	if e == nil || m.Have > e.Len {
		return fmt.Errorf("the host wants %.80q, which is not part of the toolchain", m.File)
	}
	if s.taken[e.Name] >= mostSends {
		return fmt.Errorf("the host has taken %s %d times and wants it again", e.Name, mostSends)
	}
	f, err := e.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.CopyN(io.Discard, f, int64(m.Have)); err != nil {
		return err
	}
	r, w := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.CloseWithError(compress.Copy(w, &telling{f, s.progress}))
	}()
	err = s.do(http.MethodPut, "/content/"+id+"/"+m.Name+"?at="+strconv.FormatUint(m.Have, 10), r, true, nil)
	r.Close() // ends the packing, if the host does not want everything
	<-ended
	if err == nil {
		s.taken[e.Name]++
	}
	return err
}

// telling tells how many bytes are read.
type telling struct {
	io.Reader
	tell func(n uint64)
}

func (t *telling) Read(b []byte) (int, error) {
	n, err := t.Reader.Read(b)
	t.tell(uint64(n))
	return n, err
}
