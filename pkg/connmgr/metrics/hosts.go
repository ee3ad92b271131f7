package metrics

import "sync"

// maxHostLabels bounds the number of values of the label host, because users of the manager can name any
// number of hosts. A thousand hosts are a large farm.
const maxHostLabels = 1024

// otherHosts is the label's value for all further hosts.
const otherHosts = "other"

// hostLabels holds the hosts that have time series of their own: the first maxHostLabels.
type hostLabels struct {
	mu   sync.Mutex
	seen map[string]bool
}

// of returns the label's value for a host, its address or otherHosts.
func (l *hostLabels) of(addr string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.seen[addr] {
		if len(l.seen) >= maxHostLabels {
			return otherHosts
		}
		if l.seen == nil {
			l.seen = make(map[string]bool)
		}
		l.seen[addr] = true
	}
	return addr
}
