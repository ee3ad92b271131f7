package metrics

import "sync"

// maxHostLabels bounds the values of the label host: whoever may use the manager can
// name hosts without end. A thousand is a large farm.
const maxHostLabels = 1024

// otherHosts is the label of the hosts beyond.
const otherHosts = "other"

// hostLabels are the hosts that have time series of their own: the first ones.
type hostLabels struct {
	mu   sync.Mutex
	seen map[string]bool
}

// of returns the label's value for a host.
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
