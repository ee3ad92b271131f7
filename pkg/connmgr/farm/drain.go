package farm

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/hostlist"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// Drain keeps new jobs away from a host (on), or allows them again. name is the name of a host on one of the
// lists, or of one that jobs have asked for. The error is a line for the user.
func (f *Farm) Drain(name string, on bool, lists ...[]scheduler.Host) (report.Drained, error) {
	addr, err := f.Named(name, lists...)
	if err != nil {
		return report.Drained{}, err
	}
	f.drains.change.Lock()
	defer f.drains.change.Unlock()
	f.mu.Lock()
	d := report.Drained{Host: addr, Drained: on, Was: f.drains.on[addr] == on}
	var all []string
	for a := range f.drains.on {
		if a != addr {
			all = append(all, a)
		}
	}
	f.mu.Unlock()
	if on {
		all = append(all, addr)
	}
	slices.Sort(all)
	// Save first: a drain that is not on disk would end with this manager.
	if err := f.o.SaveDrained(all); err != nil {
		return report.Drained{}, fmt.Errorf("remember that %s is drained: %w", addr, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if on {
		f.drains.on[addr] = true
	} else {
		delete(f.drains.on, addr)
	}
	f.sched.Drain(addr, on)
	f.dispatchLocked()
	if h := f.hosts[addr]; h != nil && h.link != nil {
		d.Running = h.runningLocked()
		if on {
			h.spareLocked()
		}
	}
	f.demandsLocked(time.Now())
	f.o.Log.Info("told by hand", "host", addr, "drained", on)
	return d, nil
}

// spareLocked returns the credits of a drained host. Before that, it tells the host that this manager can use
// no more than what runs there. The host then lends us only credits that no other manager wants, and recalls
// them when one does.
func (h *Host) spareLocked() {
	u := new(use)
	for _, l := range h.links {
		for _, build := range l.Builds() {
			u.add(1, build)
		}
	}
	h.link.NoMore(time.Now(), u.jobs, len(u.builds))
	for _, l := range h.links {
		l.returnLocked(l.credits.Len())
	}
}

// Named returns the address of a host that is on one of the lists, or that jobs have asked for. name is its address, without
// the port if that is unambiguous. The error is a line for the user.
func (f *Farm) Named(name string, lists ...[]scheduler.Host) (string, error) {
	addrs := make(map[string]bool)
	for _, l := range lists {
		for i := range l {
			addrs[l[i].Addr] = true
		}
	}
	f.mu.Lock()
	for a := range f.hosts {
		addrs[a] = true
	}
	for a := range f.drains.on { // a host that is on no list any more can still be undrained
		addrs[a] = true
	}
	f.mu.Unlock()
	if addrs[name] {
		return name, nil
	}
	one, err := hostlist.Parse(name)
	if err != nil || len(one.Hosts) != 1 {
		return "", fmt.Errorf("%q is not a host", name)
	}
	if a := one.Hosts[0].Addr(); addrs[a] {
		return a, nil
	}
	var all, same []string
	for a := range addrs {
		all = append(all, a)
		if i := strings.LastIndexByte(a, ':'); i >= 0 && strings.Trim(a[:i], "[]") == strings.Trim(name, "[]") {
			same = append(same, a)
		}
	}
	slices.Sort(all)
	slices.Sort(same)
	switch {
	case len(same) == 1:
		return same[0], nil
	case len(same) > 1:
		return "", fmt.Errorf("%s is %s: name the port", name, strings.Join(same, " or "))
	case len(all) == 0:
		return "", fmt.Errorf("no host %s: no hosts are configured here", name)
	}
	if more := len(all) - maxNamed; more > 0 {
		all = append(all[:maxNamed], fmt.Sprintf("%d more", more))
	}
	return "", fmt.Errorf("no host %s: the hosts are %s", name, strings.Join(all, ", "))
}

// maxNamed is how many hosts an error lists at most.
const maxNamed = 12
