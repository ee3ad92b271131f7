package connmgr

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/rdistcc/rdistcc/internal/hostlist"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// HostList is a host list and where it came from.
type HostList struct {
	List  hostlist.List
	Where string // a file or flag, or empty without any
	// Distcc says that it stands in a file of distcc's, which is for those that have
	// nothing better.
	Distcc bool
	Err    error // why the list cannot be used
	// Stale says why List is still what the file had before: what it has now cannot be
	// used.
	Stale error
}

// parsedList is a host list in the form that jobs need; it is never changed.
type parsedList struct {
	hostlist.List
	err   error
	sched []scheduler.Host // what may be used

	compress map[string]hostlist.Compression // by address, where it asks for one

	// With what its sources found, for a list that has some; guarded by listCache.mu.
	found *parsedList
	stamp uint64
}

func newParsedList(l hostlist.List, err error) *parsedList {
	p := &parsedList{List: l, err: err, compress: make(map[string]hostlist.Compression)}
	for i := range l.Hosts {
		if h := &l.Hosts[i]; !h.Down {
			p.sched = append(p.sched, scheduler.Host{Addr: h.Addr(), Slots: h.Slots})
			if h.Compress != hostlist.CompressAuto {
				p.compress[h.Addr()] = h.Compress
			}
		}
	}
	return p
}

func (p *parsedList) empty() bool { return len(p.sched) == 0 }

// whyEmpty is one line for a person about a list without hosts.
func (p *parsedList) whyEmpty() string {
	for i := range p.Sources {
		if s := &p.Sources[i]; !s.Down {
			return "no host is found by " + s.Text + ": " + cmp.Or(s.Problem, "nobody is there")
		}
	}
	return "no hosts are configured; set RDISTCC_HOSTS"
}

// preprocessors is how many may run at a time for a job of this list.
func (p *parsedList) preprocessors(m *Manager) int {
	if p.LocalCPP > 0 {
		return p.LocalCPP
	}
	return m.live().Preprocessors
}

// localJobs is how many commands may run here at a time for a job of this list.
func (p *parsedList) localJobs(m *Manager) int {
	if p.Local > 0 {
		return p.Local
	}
	return m.live().LocalJobs
}

// maxLists bounds the cache; builds bring one or two.
const maxLists = 64

// listCache keeps the manager's own list and the parsed ones of wrappers'
// environments: the scheduler knows a list by its array.
type listCache struct {
	mu     sync.Mutex
	own    *parsedList
	parsed map[string]*parsedList
}

// ownLocked is the manager's own list, parsed anew when it is another one.
func (c *listCache) ownLocked(l HostList) *parsedList {
	if p := c.own; p != nil && l.Err == nil && p.err == nil && sameList(&p.List, &l.List) {
		return p
	}
	c.own = newParsedList(l.List, l.Err)
	return c.own
}

// sameList says that a and b are one list: whoever changes one makes another array.
func sameList(a, b *hostlist.List) bool {
	return len(a.Hosts) == len(b.Hosts) && (len(a.Hosts) == 0 || &a.Hosts[0] == &b.Hosts[0]) &&
		len(a.Sources) == len(b.Sources) && (len(a.Sources) == 0 || &a.Sources[0] == &b.Sources[0]) &&
		a.Share == b.Share && a.Local == b.Local && a.LocalCPP == b.LocalCPP && a.Randomize == b.Randomize
}

// listOf is the list for a job whose environment has text, with all hosts that are
// known now. The first job that names a source of hosts may wait for it, a second.
func (m *Manager) listOf(text string) *parsedList {
	raw := m.written(text)
	if raw.err != nil || len(raw.Sources) == 0 || m.o.Find == nil {
		return raw
	}
	list, stamp := m.o.Find(raw.List)
	c := &m.lists
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case raw.found == nil || stamp > raw.stamp && !slices.Equal(list.Hosts, raw.found.Hosts):
		raw.found, raw.stamp = newParsedList(list, nil), stamp
	case stamp > raw.stamp: // the same array, other words about it
		same := *raw.found
		same.Notes, same.Sources = list.Notes, list.Sources
		raw.found, raw.stamp = &same, stamp
	}
	return raw.found
}

// ownNow is the manager's own list, with the hosts that its sources have found so far: it
// waits for nothing.
func (m *Manager) ownNow() *parsedList {
	list := m.written("")
	m.lists.mu.Lock()
	defer m.lists.mu.Unlock()
	if list.found != nil {
		return list.found
	}
	return list
}

// written is a list as it was written, without what its sources find.
func (m *Manager) written(text string) *parsedList {
	c := &m.lists
	c.mu.Lock()
	defer c.mu.Unlock()
	if text == "" {
		return c.ownLocked(m.o.Hosts())
	}
	content, distcc := strings.CutPrefix(text, ipc.DistccList)
	if distcc {
		if own := m.o.Hosts(); own.Where != "" && !own.Distcc {
			return c.ownLocked(own)
		}
	}
	if p := c.parsed[text]; p != nil {
		return p
	}
	list, err := hostlist.Parse(text)
	if distcc {
		list, err = hostlist.Foreign("$DISTCC_DIR/hosts", content)
	}
	if err == nil && m.o.AnyUser {
		err = noFiles(&list)
	}
	p := newParsedList(list, err)
	if c.parsed == nil || len(c.parsed) >= maxLists {
		c.parsed = make(map[string]*parsedList)
	}
	c.parsed[text] = p
	return p
}

// noFiles refuses files in the list of any user's: what the manager may read and says
// of it, that user may not.
func noFiles(l *hostlist.List) error {
	for i := range l.Sources {
		if s := &l.Sources[i]; s.Kind == hostlist.ByFile {
			return &hostlist.Error{Entry: s.Text, Problem: "this connection manager serves several users and reads no files for them",
				Remedy: "name the file in the manager's own list, or the hosts in yours"}
		}
	}
	return nil
}
