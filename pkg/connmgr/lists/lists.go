// Package lists holds the host lists of one connection manager: its own, those that wrappers bring, and what
// the sources of each have found. A list that does not change keeps its array, by which the scheduler
// recognizes it.
package lists

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/rdistcc/rdistcc/internal/hostlist"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// HostList is the manager's own host list as it was written, and where it came from.
type HostList struct {
	List  hostlist.List
	Where string // a file or flag, or empty without any
	// Distcc is set if it comes from a file of distcc's, which counts only if there is nothing better.
	Distcc bool
	Err    error // why the list cannot be used
	// Stale is why List is still the file's previous content: the current one cannot be used.
	Stale error
}

// List is a host list in the form that jobs need. It never changes.
type List struct {
	hostlist.List
	Err   error
	Sched []scheduler.Host // hosts that may be used

	Compress map[string]hostlist.Compression // by address, for hosts for which it sets one

	// found is the list with the hosts that its sources have found, if it has sources; guarded by Lists.mu.
	found *List
	stamp uint64
}

func parsed(l hostlist.List, err error) *List {
	p := &List{List: l, Err: err, Compress: make(map[string]hostlist.Compression)}
	for i := range l.Hosts {
		if h := &l.Hosts[i]; !h.Down {
			p.Sched = append(p.Sched, scheduler.Host{Addr: h.Addr(), Slots: h.Slots})
			if h.Compress != hostlist.CompressAuto {
				p.Compress[h.Addr()] = h.Compress
			}
		}
	}
	return p
}

// Empty reports whether no host of the list may be used.
func (p *List) Empty() bool { return len(p.Sched) == 0 }

// WhyEmpty returns a line for the user about a list without hosts.
func (p *List) WhyEmpty() string {
	for i := range p.Sources {
		if s := &p.Sources[i]; !s.Down {
			return "no host is found by " + s.Text + ": " + cmp.Or(s.Problem, "nobody is there")
		}
	}
	return "no hosts are configured; set RDISTCC_HOSTS"
}

// Preprocessors returns how many preprocessors may run at a time for a job of this list. usual is the number
// if the list does not say.
func (p *List) Preprocessors(usual int) int { return cmp.Or(max(p.LocalCPP, 0), usual) }

// LocalJobs returns how many local commands may run at a time for a job of this list. usual is the number if
// the list does not say.
func (p *List) LocalJobs(usual int) int { return cmp.Or(max(p.Local, 0), usual) }

// maxLists bounds the cache. Builds bring one or two lists.
const maxLists = 64

// Options say where lists come from.
type Options struct {
	// Own returns the manager's own list, for jobs that bring none. It is called for each job.
	Own func() HostList
	// Find returns a list with the hosts added that its sources stand for; nil: none are added. stamp grows
	// with each change of any source.
	Find func(hostlist.List) (list hostlist.List, stamp uint64)
	// AnyUser is set if wrappers of several users bring lists.
	AnyUser bool
}

// Lists caches the manager's own list and the parsed lists from wrappers' environments, because the scheduler
// recognizes a list by its array. It is safe for concurrent use.
type Lists struct {
	o Options

	mu     sync.Mutex
	own    *List
	parsed map[string]*List
}

// New returns an empty cache.
func New(o Options) *Lists { return &Lists{o: o} }

// ownLocked returns the manager's own list, prepared again if it has changed.
func (c *Lists) ownLocked(l HostList) *List {
	if p := c.own; p != nil && l.Err == nil && p.Err == nil && sameList(&p.List, &l.List) {
		return p
	}
	c.own = parsed(l.List, l.Err)
	return c.own
}

// sameList reports whether a and b are the same list: a change makes a new array.
func sameList(a, b *hostlist.List) bool {
	return len(a.Hosts) == len(b.Hosts) && (len(a.Hosts) == 0 || &a.Hosts[0] == &b.Hosts[0]) &&
		len(a.Sources) == len(b.Sources) && (len(a.Sources) == 0 || &a.Sources[0] == &b.Sources[0]) &&
		a.Share == b.Share && a.Local == b.Local && a.LocalCPP == b.LocalCPP && a.Randomize == b.Randomize
}

// Of returns the list for a job whose environment has text, with all hosts that are known now. The first job
// that names a source of hosts may wait a second for it.
func (c *Lists) Of(text string) *List {
	raw := c.written(text)
	if raw.Err != nil || len(raw.Sources) == 0 || c.o.Find == nil {
		return raw
	}
	list, stamp := c.o.Find(raw.List)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case raw.found == nil || stamp > raw.stamp && !slices.Equal(list.Hosts, raw.found.Hosts):
		raw.found, raw.stamp = parsed(list, nil), stamp
	case stamp > raw.stamp: // the same array, but other messages
		same := *raw.found
		same.Notes, same.Sources = list.Notes, list.Sources
		raw.found, raw.stamp = &same, stamp
	}
	return raw.found
}

// Own returns the manager's own list, with the hosts that its sources have found so far. It does not wait.
func (c *Lists) Own() *List {
	list := c.written("")
	c.mu.Lock()
	defer c.mu.Unlock()
	if list.found != nil {
		return list.found
	}
	return list
}

// written returns a list as it was written, without what its sources find.
func (c *Lists) written(text string) *List {
	c.mu.Lock()
	defer c.mu.Unlock()
	if text == "" {
		return c.ownLocked(c.o.Own())
	}
	content, distcc := strings.CutPrefix(text, ipc.DistccList)
	if distcc {
		if own := c.o.Own(); own.Where != "" && !own.Distcc {
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
	if err == nil && c.o.AnyUser {
		err = noFiles(&list)
	}
	p := parsed(list, err)
	if c.parsed == nil || len(c.parsed) >= maxLists {
		c.parsed = make(map[string]*List)
	}
	c.parsed[text] = p
	return p
}

// noFiles refuses files in the list of another user: the manager may be able to read, and report on, files
// that the user may not.
func noFiles(l *hostlist.List) error {
	for i := range l.Sources {
		if s := &l.Sources[i]; s.Kind == hostlist.ByFile {
			return &hostlist.Error{Entry: s.Text, Problem: "this connection manager serves several users and reads no files for them",
				Remedy: "name the file in the manager's own list, or the hosts in yours"}
		}
	}
	return nil
}
