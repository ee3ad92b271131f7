// Package lists is the host lists of one connection manager: its own, those that wrappers bring, and
// what the sources of each have found. A list that stays the same stays one array, by which the
// scheduler knows it.
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

// HostList is the manager's own host list, as it was written, and where it came from.
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

// List is a host list in the form that jobs need; it is never changed.
type List struct {
	hostlist.List
	Err   error
	Sched []scheduler.Host // what may be used

	Compress map[string]hostlist.Compression // by address, where it asks for one

	// With what its sources found, for a list that has some; guarded by Lists.mu.
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

// WhyEmpty returns one line for a person about a list without hosts.
func (p *List) WhyEmpty() string {
	for i := range p.Sources {
		if s := &p.Sources[i]; !s.Down {
			return "no host is found by " + s.Text + ": " + cmp.Or(s.Problem, "nobody is there")
		}
	}
	return "no hosts are configured; set RDISTCC_HOSTS"
}

// Preprocessors returns how many may run at a time for a job of this list; usual is how many do
// where the list does not say.
func (p *List) Preprocessors(usual int) int { return cmp.Or(max(p.LocalCPP, 0), usual) }

// LocalJobs returns how many commands may run here at a time for a job of this list; usual as above.
func (p *List) LocalJobs(usual int) int { return cmp.Or(max(p.Local, 0), usual) }

// maxLists bounds the cache; builds bring one or two.
const maxLists = 64

// Options say where lists come from.
type Options struct {
	// Own is the manager's own list, for jobs that bring none; it is asked for each job.
	Own func() HostList
	// Find adds the hosts that a list's sources stand for; nil: none. stamp grows with each change
	// of any source.
	Find func(hostlist.List) (list hostlist.List, stamp uint64)
	// AnyUser: wrappers of several users bring lists.
	AnyUser bool
}

// Lists keeps the manager's own list and the parsed ones of wrappers'
// environments: the scheduler knows a list by its array. It is safe for concurrent use.
type Lists struct {
	o Options

	mu     sync.Mutex
	own    *List
	parsed map[string]*List
}

// New returns a cache that is empty yet.
func New(o Options) *Lists { return &Lists{o: o} }

// ownLocked returns the manager's own list, parsed anew when it is another one.
func (c *Lists) ownLocked(l HostList) *List {
	if p := c.own; p != nil && l.Err == nil && p.Err == nil && sameList(&p.List, &l.List) {
		return p
	}
	c.own = parsed(l.List, l.Err)
	return c.own
}

// sameList reports whether a and b are one list: a change makes another array.
func sameList(a, b *hostlist.List) bool {
	return len(a.Hosts) == len(b.Hosts) && (len(a.Hosts) == 0 || &a.Hosts[0] == &b.Hosts[0]) &&
		len(a.Sources) == len(b.Sources) && (len(a.Sources) == 0 || &a.Sources[0] == &b.Sources[0]) &&
		a.Share == b.Share && a.Local == b.Local && a.LocalCPP == b.LocalCPP && a.Randomize == b.Randomize
}

// Of returns the list for a job whose environment has text, with all hosts that are
// known now. The first job that names a source of hosts may wait for it, a second.
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
	case stamp > raw.stamp: // the same array, other words about it
		same := *raw.found
		same.Notes, same.Sources = list.Notes, list.Sources
		raw.found, raw.stamp = &same, stamp
	}
	return raw.found
}

// Own returns the manager's own list, with the hosts that its sources have found so far: it
// waits for nothing.
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
