package metrics

import (
	"fmt"
	"testing"
)

// TestHostLabelsAreBounded: users of the manager can name any number of hosts.
//
// metrics-exposed
func TestHostLabelsAreBounded(t *testing.T) {
	var l hostLabels
	values := make(map[string]bool)
	for i := range 10_000 {
		values[l.of(fmt.Sprintf("host%d:7632", i))] = true
	}
	if len(values) != maxHostLabels+1 || !values[otherHosts] {
		t.Errorf("10,000 hosts have %d values", len(values))
	}
	if got := l.of("host3:7632"); got != "host3:7632" {
		t.Errorf("a host that had its own label has %s now", got)
	}
}
