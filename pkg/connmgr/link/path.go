package link

import (
	"net"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// path is what is known of the network between here and a host: from the transport if it measures it, as TCP
// does, otherwise from our own Writes and heartbeats.
type path struct {
	near   bool          // loopback, or this machine: compressing gains nothing
	told   bool          // the transport measures rtt, rate and window
	rtt    time.Duration // 0 = not known
	rate   float64       // bytes per second; 0 = not known
	floor  bool          // rate is only a lower bound
	window uint64        // the most bytes that may be under way at present; 0 = not known
}

// rateFade is the least part of the known rate that is left after a lower sample. A network that has become
// slow is noticed within seconds, and a single low sample, from a moment when our processors were busy, does
// little harm.
const rateFade = 0.8

// newPath returns the path of a new connection.
func newPath(info *iwarp.ConnInfo) path {
	local, _ := info.Local.(*net.TCPAddr)
	remote, _ := info.Remote.(*net.TCPAddr)
	return path{near: remote != nil && (remote.IP.IsLoopback() || local != nil && local.IP.Equal(remote.IP))}
}

// tell updates p with what the transport measured. It ignores s without an RTT.
func (p *path) tell(s iwarp.PathStats) {
	if s.RTT == 0 {
		return
	}
	p.told, p.rtt, p.window = true, s.RTT, s.Window
	rate := float64(s.Rate)
	switch {
	case rate >= p.rate:
		p.rate, p.floor = rate, s.Floor
	case !s.Floor: // otherwise it only shows that little was sent
		p.rate, p.floor = max(rate, p.rate*rateFade), false
	}
}

// measurable is how many bytes must have been written without a break to measure a rate.
const measurable = 128 << 10

// wrote updates the rate with our own measurement, n bytes in d, if the transport has none.
func (p *path) wrote(n uint64, d time.Duration) {
	if !p.told && n >= measurable && d > 0 {
		p.rate = max(float64(n)/d.Seconds(), p.rate*rateFade)
	}
}

// echoed updates the RTT with the round trip of a heartbeat, if the transport has none. The shortest counts,
// because a busy peer can only make it longer.
func (p *path) echoed(d time.Duration) {
	if !p.told && (p.rtt == 0 || d < p.rtt) {
		p.rtt = d
	}
}

// transfer returns how long n bytes take to arrive, beyond half a round trip. What limits them is the rate,
// or a window that is still small and doubles with each round trip.
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

// The cost of packing and unpacking in nanoseconds per byte, as measured with compilers' input on one core,
// and the part of a source or a result that is left.
const (
	packNS   = 1.2
	unpackNS = 0.35

	sourceLeft = 0.22
	resultLeft = 0.45
)

// packs reports whether to pack n bytes, of which the part left remains. What they gain must exceed the
// processor time of packing once more, because this machine has other uses for that time.
func (p *path) packs(n uint64, left float64) bool {
	if p.near {
		return false
	}
	cost := time.Duration(float64(n) * packNS)
	gain := p.transfer(n) - p.transfer(uint64(float64(n)*left)) - time.Duration(float64(n)*unpackNS) - cost
	return gain > cost+packLeast
}

// packLeast is how much more must be gained to be worth the trouble.
const packLeast = 200 * time.Microsecond
