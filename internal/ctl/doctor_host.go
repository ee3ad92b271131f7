package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/internal/hostlist"
	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rawjob"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/toolchain/parcel"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Clock differences: beyond the first one, tools that compare file times may go wrong; beyond the second one, new
// certificates are not valid yet.
const (
	clockWarn = 5 * time.Second
	clockFail = 5 * time.Minute
)

// slowRTT is a round trip that slows a compile noticeably.
const slowRTT = 100 * time.Millisecond

// host checks one host, until something prevents the rest.
func (d *doctor) host(f *findings, h hostlist.Host) {
	ctx := context.Background()
	if !d.resolves(ctx, f, h) || d.id == nil {
		return
	}
	x := &doctorDial{d: d, host: h}
	dev, err := iwarp.Open(iwarp.Config{Dial: x.dial})
	if err != nil {
		f.fail("connection", err.Error(), "see the message")
		return
	}
	defer dev.Close()
	step, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	c, err := rawjob.DialWith(step, dev, h.Addr(), rawjob.Options{Key: d.id.Key()})
	if err != nil {
		d.notConnected(f, x, err)
		return
	}
	defer c.Close()
	sent := time.Now()
	w, ids, err := c.Introduced(step)
	took := time.Since(sent)
	if err != nil {
		d.notConnected(f, x, err)
		return
	}
	f.ok("tcp", "%s answers", x.remote())
	d.identityOK(f, x)
	d.wire(f, x)
	d.versionOf(f, w, c.Version())
	d.clock(f, x, int64(w.Clock), sent.Add(took/2))
	if w.Identifying {
		if ids, err = c.Identified(step); err != nil {
			f.warn("toolchains", "the host has just started, and is still finding out which compilers it has", "ask again in a moment")
			return
		}
	}
	var found, coming *localTool
	var id unit.ToolchainID
	d.alongside(ctx, c, beat, func() {
		found, coming, id = d.toolchains(ctx, f, ids, func() (*parcel.About, error) { return d.takes(ctx, dev, h.Addr()) })
	})
	d.places(f, w)
	d.confinement(f, w)
	d.roundTrip(ctx, f, c)
	switch {
	case found != nil:
		d.compile(ctx, f, c, found, id, w.Tree)
	case coming != nil:
		f.warn("compile", "not tried: the host has none of the compilers here yet", fmt.Sprintf("rdistcc toolchain send %s %s, then ask again; or just compile", h.Addr(), coming.names[0]))
	}
}

// beat is the time between two signs of life. A host drops a client that is silent for some seconds.
const beat = time.Second

// alongside calls do, which may take long, and meanwhile shows the host that this client is alive. It leaves a connection that breaks
// to the next check.
func (d *doctor) alongside(ctx context.Context, c *rawjob.Client, every time.Duration, do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		step, cancel := context.WithTimeout(ctx, d.timeout)
		err := c.Echo(step)
		cancel()
		if err != nil {
			<-done
			return
		}
	}
}

func (d *doctor) resolves(ctx context.Context, f *findings, h hostlist.Host) bool {
	if _, err := netip.ParseAddr(h.Name); err == nil {
		return true // nothing to look up
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", h.Name)
	if err != nil {
		text := err.Error()
		if e := new(net.DNSError); errors.As(err, &e) {
			text = e.Err
		}
		f.fail("name", fmt.Sprintf("%s cannot be resolved: %s", h.Name, text), "correct the name in the host list, or in DNS or /etc/hosts")
		return false
	}
	var text []string
	for _, a := range addrs {
		text = append(text, a.Unmap().String())
	}
	f.ok("name", "%s is %s", h.Name, strings.Join(text, ", "))
	return true
}

// doctorDial connects, and records how far it got.
type doctorDial struct {
	d    *doctor
	host hostlist.Host
	tcp  atomic.Pointer[net.Addr]      // address of the TCP connection, once established
	tls  atomic.Pointer[identity.Conn] // and TLS
}

func (x *doctorDial) dial(ctx context.Context, addr string) (net.Conn, error) {
	c, err := x.d.id.Dial(identity.WithHost(ctx, x.host.Name), addr)
	if err != nil {
		return nil, err
	}
	to := c.RemoteAddr()
	x.tcp.Store(&to)
	if t, ok := c.(*identity.Conn); ok {
		x.tls.Store(t)
	}
	return c, nil
}

func (x *doctorDial) remote() string {
	if a := x.tcp.Load(); a != nil {
		return (*a).String()
	}
	return x.host.Addr()
}

// notConnected reports why connecting failed.
func (d *doctor) notConnected(f *findings, x *doctorDial, err error) {
	var who *identity.Error
	var rejected *rawjob.Rejected
	late := isLate(err)
	switch {
	case errors.As(err, &who) && who.Cause == identity.CauseClosed && x.host.Port == hostlist.DistccPort:
		f.fail("service", "hangs up on TLS: "+hostlist.DistccPortNote, distccPortRemedy)
		return
	case errors.As(err, &who):
		f.ok("tcp", "%s answers", x.remote())
		f.fail("identity", who.Text, d.identityRemedy(who))
		return
	case x.tcp.Load() == nil:
		d.unreachable(f, x, err, late)
		return
	}
	f.ok("tcp", "%s answers", x.remote())
	switch {
	case errors.As(err, &rejected):
		d.rejected(f, &rejected.Rejection)
	case errors.Is(err, psk.ErrMissing), errors.Is(err, psk.ErrWrong):
		f.fail("identity", err.Error(), "the host has another key, or is not one of yours: copy the key file to both")
	case errors.Is(err, rawjob.ErrProtocol) && strings.Contains(err.Error(), "version"):
		f.fail("version", err.Error(), "install the same rdistcc on both")
	case late:
		f.fail("service", fmt.Sprintf("accepts connections and says nothing within %v", d.timeout), "is it rdistccd that listens there? Under load, try a longer --timeout")
	case x.host.Port == hostlist.DistccPort:
		f.fail("service", "closes the connection before it has begun: "+hostlist.DistccPortNote, distccPortRemedy)
	default:
		f.fail("service", "closes the connection before it has begun: "+lastWord(err),
			"it may want another identity than "+d.id.Mode().String()+" (auth in its configuration), or it is not rdistccd")
	}
}

const distccPortRemedy = "leave the port out of the host list, and start rdistccd on the host"

// isLate reports whether err means that time was up, in any form.
func isLate(err error) bool {
	var e net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &e) && e.Timeout()
}

// lastWord returns the end of a chain of errors: the underlying cause.
func lastWord(err error) string {
	s := err.Error()
	if i := strings.LastIndex(s, ": "); i >= 0 {
		return s[i+2:]
	}
	return s
}

func (d *doctor) unreachable(f *findings, x *doctorDial, err error, late bool) {
	addr := x.host.Addr()
	switch {
	case errors.Is(err, syscall.ECONNREFUSED) && x.host.Port == hostlist.DistccPort:
		f.fail("tcp", addr+" refuses: "+hostlist.DistccPortNote, distccPortRemedy)
	case errors.Is(err, syscall.ECONNREFUSED):
		f.fail("tcp", addr+" refuses: nothing listens there", "start rdistccd on it, with --listen for an address of the network; or correct the port")
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		f.fail("tcp", fmt.Sprintf("no route to %s (%s)", addr, lastWord(err)), "is it on, and in a network that this machine reaches?")
	case late:
		f.fail("tcp", fmt.Sprintf("no answer from %s within %v", addr, d.timeout), "is it on? Else a firewall on the way drops port "+fmt.Sprint(x.host.Port))
	default:
		f.fail("tcp", addr+": "+lastWord(err), "see the message")
	}
}

// identityRemedy returns what to do about a failed handshake.
func (d *doctor) identityRemedy(e *identity.Error) string {
	switch e.Cause {
	case identity.CauseExpired:
		return "rdistcc certs makes a new certificate; restart the side that has it, or let it reload"
	case identity.CauseNotYet:
		return "set the clocks of both machines right"
	case identity.CauseUnknownCA, identity.CauseNoCertificate, identity.CauseRefused:
		return "give both sides certificates of one CA: auth.tls in both configurations"
	case identity.CauseWrongName, identity.CauseWrongRole:
		return "make the host a certificate for the name that the list calls it by, and for a daemon"
	}
	return "set the same kind of identity on both sides: auth in both configurations (here: " + d.id.Mode().String() + ")"
}

// rejected reports why a daemon rejects the connection.
func (d *doctor) rejected(f *findings, r *job.Rejection) {
	switch r.Cause {
	case job.CauseDenied:
		remedy := "allow this machine's network there (--allow), and give both sides the same identity (auth)"
		if strings.Contains(r.Detail, "key") {
			remedy = "give both sides a copy of one key file: auth.psk-file in both configurations"
		}
		f.fail("identity", "turned away: "+r.Detail, remedy)
	case job.CauseVersion:
		f.fail("version", r.Detail, "install the same rdistcc on both")
	case job.CauseDraining:
		f.warn("places", "going down: it takes nothing new", "start it again when its maintenance is over")
	case job.CauseFull:
		f.warn("places", r.Detail, "raise limits.clients there, or wait")
	default:
		f.fail("service", fmt.Sprintf("turned away (%v): %s", r.Cause, r.Detail), "see its log")
	}
}

// identityOK reports what each side has proven.
func (d *doctor) identityOK(f *findings, x *doctorDial) {
	a := x.tcp.Load()
	t, isTCP := (*a).(*net.TCPAddr)
	switch tls := x.tls.Load(); {
	case tls != nil:
		leaf := tls.ConnectionState().PeerCertificates[0] // has been verified
		d.expiry(f, "certificate of "+tls.PeerName(), leaf.NotAfter, time.Now())
	case d.id.Mode() == identity.PSK:
		f.ok("identity", "both sides have the pre-shared key")
	case isTCP && t.IP.IsLoopback():
		f.ok("identity", "none, on this machine")
	default:
		f.warn("identity", "none: anyone who is at that address can be the host", "rdistcc certs sets TLS up; or auth.psk-file on both sides")
	}
}

// belowTLS is what protects a connection that cannot have TLS.
const belowTLS = "rdistcc certs sets TLS up; where the host has an RDMA device (--provider ibverbs) there is none: keep to a network of your own, or protect it below TCP (SECURITY.md, RDMA devices)"

// wire reports what protects the connection on its way.
func (d *doctor) wire(f *findings, x *doctorDial) {
	t, isTCP := (*x.tcp.Load()).(*net.TCPAddr)
	near := isTCP && t.IP.IsLoopback()
	switch {
	case d.id.Mode() == identity.TLS:
		f.ok("wire", "encrypted and authenticated (TLS 1.3)")
	case d.id.Mode() == identity.PSK && near:
		f.ok("wire", "authenticated at its start only, not encrypted; it does not leave this machine")
	case d.id.Mode() == identity.PSK:
		f.warn("wire", "authenticated at its start only, not encrypted: after that, anyone on the path can read and change what is compiled, unless something below TCP prevents it", belowTLS)
	case near:
		f.ok("wire", "neither authenticated nor encrypted; it does not leave this machine")
	default:
		f.warn("wire", "neither authenticated nor encrypted: anyone on the path can read and change what is compiled, unless something below TCP prevents it", belowTLS)
	}
}

func (d *doctor) versionOf(f *findings, w *job.Welcome, version uint16) {
	if w.Program != d.c.version {
		f.warn("version", fmt.Sprintf("%s there, %s here; both speak job protocol %d", cmp.Or(w.Program, "not told"), d.c.version, version), "install the same version on both when it suits")
		return
	}
	f.ok("version", "%s, job protocol %d", w.Program, version)
}

// clock compares the host's clock with ours; at is when the host read its own.
func (d *doctor) clock(f *findings, x *doctorDial, theirs int64, at time.Time) {
	if theirs == 0 {
		f.warn("clock", "not told", "")
		return
	}
	there := time.UnixMilli(theirs)
	diff := there.Sub(at)
	way := "ahead of"
	if diff < 0 {
		way = "behind"
	}
	size := diff.Abs().Round(time.Millisecond)
	text := fmt.Sprintf("%v %s this machine's", size, way)
	const remedy = "let both follow a time server (systemd-timesyncd, chrony)"
	tls := x.tls.Load()
	end := d.id.Expires()
	switch {
	case tls != nil && (size >= clockFail || !end.IsZero() && there.After(end) || at.After(tls.ConnectionState().PeerCertificates[0].NotAfter.Add(-size))):
		f.fail("clock", text+": certificates may count as expired, or as not valid yet", remedy)
	case size >= clockWarn:
		f.warn("clock", text, remedy)
	default:
		f.ok("clock", "within %v of this machine's", max(size, time.Millisecond))
	}
}

// toolchains reports which of the compilers here the host has, or can be sent; found is one that it has, and id its name for it;
// coming is one that it can be sent. takes asks what the host takes.
func (d *doctor) toolchains(ctx context.Context, f *findings, ids []unit.ToolchainID, takes func() (*parcel.About, error)) (found, coming *localTool, id unit.ToolchainID) {
	var have, come, lack, why []string
	var about *parcel.About
	var no error
	for i := range d.tools {
		t := &d.tools[i]
		name := fmt.Sprintf("%s (%s %s)", strings.Join(t.names, " "), t.Family, t.Version)
		if called, ok := t.called(ctx, ids); ok {
			have = append(have, name)
			if found == nil {
				found, id = t, called
			}
			continue
		}
		if about == nil && no == nil {
			about, no = takes()
		}
		w := ""
		if no != nil {
			w = no.Error()
		} else {
			w = d.unsendable(ctx, t, about)
		}
		switch {
		case w == "":
			come, coming = append(come, name), cmp.Or(coming, t)
			continue
		case !slices.Contains(why, w):
			why = append(why, w)
		}
		lack = append(lack, name)
	}
	var text []string
	if len(have) > 0 {
		text = append(text, "has "+strings.Join(have, ", "))
	}
	if len(come) > 0 {
		text = append(text, "is sent "+strings.Join(come, ", ")+" when a command uses it")
	}
	if len(lack) > 0 {
		text = append(text, fmt.Sprintf("lacks %s, and cannot be sent it: %s", strings.Join(lack, ", "), strings.Join(why, "; ")))
	}
	const remedy = "docs/farm.md says what hosts must be like to be sent compilers; or install there the very packages that are here"
	switch {
	case len(d.tools) == 0:
		f.warn("toolchains", fmt.Sprintf("no compiler here to compare; the host has %d", len(ids)), "")
	case len(have)+len(come) == 0:
		f.fail("toolchains", fmt.Sprintf("none of the compilers here: it %s; it has %d others", strings.Join(text, "; "), len(ids)), remedy)
	case len(lack) > 0:
		f.warn("toolchains", strings.Join(text, "; "), remedy)
	default:
		f.ok("toolchains", "%s", strings.Join(text, "; "))
	}
	return found, coming, id
}

func (d *doctor) places(f *findings, w *job.Welcome) {
	l := &w.Load
	text := fmt.Sprintf("%s at a time, %d running, %d waiting", figure.Count(int(w.Jobs), "job"), l.Running, l.Queued)
	switch {
	case l.Draining:
		f.warn("places", "going down: "+text, "start it again when its maintenance is over")
	case l.MemoryFree > 0 && l.MemoryFree < 256<<20:
		f.warn("places", fmt.Sprintf("%s; %s of memory left", text, figure.Bytes(l.MemoryFree)), "give it fewer jobs (--jobs), or more memory")
	default:
		f.ok("places", "%s", text)
	}
}

// confinement reports how well the host confines compiles, and whether it takes everything that can be
// compiled elsewhere.
func (d *doctor) confinement(f *findings, w *job.Welcome) {
	set := sandbox.Set(w.Sandbox)
	if level := set.Level(); set.Has(sandbox.Cluster) {
		f.ok("sandbox", "a cluster compiles: what keeps compiles apart is its isolation (docs/kubernetes.md)")
	} else if level < sandbox.Confined {
		f.warn("sandbox", fmt.Sprintf("%v: a hostile source could reach out of its compile; missing: %s", level, strings.Join(set.Missing(), ", ")), "the log of rdistccd there says why; a newer kernel, or its systemd unit, offers more")
	} else {
		f.ok("sandbox", "%v (%v)", level, set)
	}
	switch {
	case set.Has(sandbox.Names):
		f.ok("trees", "any command can be compiled there; without namespaces, so it can be sent no compilers")
	case w.Tree:
		f.ok("trees", "any command can be compiled there")
	default:
		f.warn("trees", "it shows no private trees: what depends on paths, and anything with debug information, is compiled elsewhere", "the log and the status page of rdistccd there name the right that it lacks and what gives it; for containers see docs/kubernetes.md")
	}
}

// roundTrip measures the shortest of a few round trips.
func (d *doctor) roundTrip(ctx context.Context, f *findings, c *rawjob.Client) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	best := time.Duration(0)
	for range 4 {
		begin := time.Now()
		if err := c.Echo(ctx); err != nil {
			f.fail("round trip", "the connection broke: "+lastWord(err), "see its log, and the network between")
			return
		}
		if took := time.Since(begin); best == 0 || took < best {
			best = took
		}
	}
	text := figure.Micros(uint64(max(best.Microseconds(), 1)))
	if best >= slowRTT {
		f.warn("round trip", text+": small compiles are sooner done here", "hosts that are nearer serve small files better")
		return
	}
	f.ok("round trip", "%s", text)
}
