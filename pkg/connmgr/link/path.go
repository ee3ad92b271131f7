package link

import (
	"net"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// path is what is known of the network between here and a host: from the transport
// where that tells, as TCP does, otherwise from our own Writes and heartbeats.
type path struct {
	near   bool          // loopback: nothing gains by being smaller
	told   bool          // the transport tells
	rtt    time.Duration // 0 = not known
	rate   float64       // bytes a second; 0 = not known
	floor  bool          // it can do more than rate
	window uint64        // bytes under way at most, for now; 0 = not known
}

// What the measured rate becomes when nothing better is heard: a network that has
// become slow is noticed within seconds, and one bad moment of ours, when the
// processors had other things to do, is soon outdone.
const rateFade = 0.8

// newPath is the path of a new connection.
func newPath(info *iwarp.ConnInfo) path {
	local, _ := info.Local.(*net.TCPAddr)
	remote, _ := info.Remote.(*net.TCPAddr)
	return path{near: remote != nil && (remote.IP.IsLoopback() || local != nil && local.IP.Equal(remote.IP))}
}

// tell takes what the transport knows.
func (p *path) tell(s iwarp.PathStats) {
	if s.RTT == 0 {
		return
	}
	p.told, p.rtt, p.window = true, s.RTT, s.Window
	rate := float64(s.Rate)
	switch {
	case rate >= p.rate:
		p.rate, p.floor = rate, s.Floor
	case !s.Floor: // else it says no more than that little was sent
		p.rate, p.floor = max(rate, p.rate*rateFade), false
	}
}

// measurable is how many bytes must have been written in one go to tell a rate.
const measurable = 128 << 10

// wrote takes our own measurement, where the transport has none: n bytes in d.
func (p *path) wrote(n uint64, d time.Duration) {
	if !p.told && n >= measurable && d > 0 {
		p.rate = max(float64(n)/d.Seconds(), p.rate*rateFade)
	}
}

// echoed takes a heartbeat's round trip, which a busy peer can only make longer.
func (p *path) echoed(d time.Duration) {
	if !p.told && (p.rtt == 0 || d < p.rtt) {
		p.rtt = d
	}
}

// transfer is how long n bytes take until the last one is there, beyond half a round trip: by
// the rate, or because a window that was small has to grow, by doubling in each
// round trip.
func (p *path) transfer(n uint64) time.Duration {
	var d time.Duration
	if p.rate > 0 && !p.floor {
		d = time.Duration(float64(n) / p.rate * float64(time.Second))
	}
	if p.window == 0 {
		return d
	}
	var grow time.Duration
	for w := p.window; n > w; w *= 2 {
		n -= w
		grow += p.rtt
	}
	return max(d, grow)
}

// Packing in nanoseconds a byte, as measured with compilers' input on one core, and
// what is left of a byte.
const (
	packNS   = 1.2
	unpackNS = 0.35

	sourceLeft = 0.22
	resultLeft = 0.45
)

// packs says whether n bytes, of which left remain when they are packed, are there
// sooner if they are: by at least the processor time that packing takes, which
// this machine could spend otherwise.
func (p *path) packs(n uint64, left float64) bool {
	if p.near {
		return false
	}
	cost := time.Duration(float64(n) * packNS)
	gain := p.transfer(n) - p.transfer(uint64(float64(n)*left)) - time.Duration(float64(n)*unpackNS) - cost
	return gain > cost+packLeast
}

// packLeast is what must be gained at least, for the trouble.
const packLeast = 200 * time.Microsecond
