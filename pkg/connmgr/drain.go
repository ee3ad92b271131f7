package connmgr

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/hostlist"
	"github.com/rdistcc/rdistcc/pkg/reason"
)

// drains are the hosts that somebody has drained by hand: nothing new goes there until
// they are undrained, whatever manager serves then.
type drains struct {
	mu   sync.Mutex      // one change at a time; before Manager.mu
	file string          // one address a line; empty: nothing outlives the manager
	on   map[string]bool // guarded by Manager.mu
}

// openDrains reads what earlier managers were told.
func (m *Manager) openDrains() {
	m.drains.on = make(map[string]bool)
	m.drains.file = m.o.Drains
	if m.o.Drains == "" {
		return
	}
	text, err := os.ReadFile(m.o.Drains)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.o.Log.Warn("which hosts were drained by hand", "file", m.o.Drains, "err", err)
	}
	for _, addr := range strings.Fields(string(text)) {
		m.drains.on[addr] = true
		m.sched.Drain(addr, true)
	}
}

// saveDrains writes a set of addresses; the file is always whole.
func saveDrains(file string, addrs []string) error {
	if file == "" {
		return nil
	}
	text := ""
	for _, a := range addrs {
		text += a + "\n"
	}
	return writeWhole(file, []byte(text))
}

// drain keeps new jobs away from the host that name means, or lets them go there again.
// The error names what is wrong for a person.
func (m *Manager) drain(name string, on bool, list *parsedList) (report.Drained, error) {
	addr, err := m.known(name, list)
	if err != nil {
		return report.Drained{}, err
	}
	m.drains.mu.Lock()
	defer m.drains.mu.Unlock()
	m.mu.Lock()
	d := report.Drained{Host: addr, Drained: on, Was: m.drains.on[addr] == on}
	var all []string
	for a := range m.drains.on {
		if a != addr {
			all = append(all, a)
		}
	}
	m.mu.Unlock()
	if on {
		all = append(all, addr)
	}
	slices.Sort(all)
	// First, as what is not written down would end with this manager.
	if err := saveDrains(m.drains.file, all); err != nil {
		return report.Drained{}, fmt.Errorf("remember that %s is drained: %w", addr, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if on {
		m.drains.on[addr] = true
	} else {
		delete(m.drains.on, addr)
	}
	m.sched.Drain(addr, on)
	m.dispatchLocked()
	if h := m.hosts[addr]; h != nil && h.link != nil {
		d.Running = h.runningLocked()
		if on {
			h.spareLocked()
		}
	}
	m.demandsLocked(time.Now())
	m.o.Log.Info("told by hand", "host", addr, "drained", on)
	return d, nil
}

// spareLocked gives the credits of a drained host back. It hears first that there is no
// use for more than what runs there: what it lends us from then on is what nobody else
// wants, and it asks for that back when somebody does.
func (h *host) spareLocked() {
	u := new(use)
	for _, l := range h.links {
		for _, build := range l.Builds() {
			u.add(1, build)
		}
	}
	h.link.NoMore(time.Now(), u.jobs, len(u.builds))
	for _, l := range h.links {
		l.returnLocked(len(l.credits))
	}
}

// known is the address of a host that some list has: name is one, without a port if
// that leaves no doubt.
func (m *Manager) known(name string, list *parsedList) (string, error) {
	addrs := make(map[string]bool)
	for _, l := range []*parsedList{list, m.listOf("")} {
		for i := range l.sched {
			addrs[l.sched[i].Addr] = true
		}
	}
	m.mu.Lock()
	for a := range m.hosts {
		addrs[a] = true
	}
	for a := range m.drains.on { // one that is on no list any more can be undrained
		addrs[a] = true
	}
	m.mu.Unlock()
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

// maxNamed is how many hosts an error lists.
const maxNamed = 12

// onDrain answers drain and undrain. It is for those whose manager this is.
func (c *client) onDrain(f *ipc.Control, on bool) error {
	if len(f.Args) != 2 {
		return c.refuse(reason.ExitArguments, "name one host")
	}
	list := c.m.listOf(f.Hosts)
	if list.err != nil {
		return c.refuse(reason.ExitHostList, list.err.Error())
	}
	d, err := c.m.drain(f.Args[1], on, list)
	if err != nil {
		return c.refuse(reason.ExitArguments, err.Error())
	}
	return c.reply(d)
}
