package connmgr

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/reason"
)

const (
	// forgetBuild is how long a build is remembered that no command has come from. A
	// process group, which tells builds apart, can live on: a shell of a container is
	// one for all that is typed there.
	forgetBuild = 5 * time.Minute
	maxBuilds   = 1024 // remembered at a time
)

// told remembers what builds have been told, so that each hears a reason once and not
// with every command.
type told map[uint64]*toldBuild

type toldBuild struct {
	heard   time.Time // when a command of it was answered last
	reasons []string
}

// news reports whether build hears reason for the first time.
func (t told) news(now time.Time, build uint64, reason string) bool {
	b := t[build]
	if b == nil || now.Sub(b.heard) > forgetBuild {
		if len(t) >= maxBuilds {
			for k, old := range t {
				if now.Sub(old.heard) > forgetBuild {
					delete(t, k)
				}
			}
			if len(t) >= maxBuilds {
				clear(t)
			}
		}
		b = new(toldBuild)
		t[build] = b
	}
	b.heard = now
	if slices.Contains(b.reasons, reason) {
		return false
	}
	b.reasons = append(b.reasons, reason)
	return true
}

// tell makes the wrapper say no as one line if it concerns more than this command, as no
// host can take it, and its build has not heard that yet.
func (c *client) tell(no *ipc.GoLocal) {
	about := no.Reason
	switch no.Reason {
	case "no-hosts":
		about = no.Detail // one list can be empty and the next one wrong
		// Whoever names this machine alone has asked for just that.
		if c.list.err == nil && c.list.Share > 0 && len(c.list.Sources) == 0 {
			return
		}
	case reason.Toolchain:
		if c.identifying() {
			about += ":starting" // which hosts lack is said when that is known
		}
	case reason.HostLost, reason.Draining, reason.Full,
		reason.Memory, reason.Quarantine, reason.Denied:
	default:
		return
	}
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	no.Trouble = c.m.told.news(time.Now(), c.record.Build, about)
}

// explain says more of a refusal than the scheduler knows.
func (c *client) explain(no *ipc.GoLocal) {
	if no.Reason == reason.Toolchain && !c.identifying() {
		no.Detail = c.lackLine()
	}
}

// identifying reports whether a host of c's list is still finding out which compilers it
// has: then nobody knows yet what it lacks.
func (c *client) identifying() bool {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	for i := range c.list.sched {
		if h := c.m.hosts[c.list.sched[i].Addr]; h != nil && h.link != nil && h.link.Identifying() {
			return true
		}
	}
	return false
}

// noHostsLine is one line for a person about c's list, which has no hosts.
func (c *client) noHostsLine() string {
	for i := range c.list.Sources {
		if !c.list.Sources[i].Down {
			return c.list.whyEmpty()
		}
	}
	const none = "no hosts are configured: name them in RDISTCC_HOSTS or ~/.config/rdistcc/hosts"
	switch own := c.m.o.Hosts(); {
	case c.list.Share > 0:
		return "no hosts are configured but this machine"
	case c.lease.Hosts != "":
		return "RDISTCC_HOSTS is set and names no host"
	case own.Where != "":
		return none + " (" + own.Where + " names none)"
	}
	return none
}

// lackLine says which compiler no host of c's list has, and what they have instead.
func (c *client) lackLine() string {
	m, name := c.m, c.toolchain.Name()
	m.mu.Lock()
	defer m.mu.Unlock()
	var have []string
	up := 0
	for i := range c.list.sched {
		h := m.hosts[c.list.sched[i].Addr]
		if h == nil || h.link == nil {
			continue
		}
		up++
		for _, n := range h.link.Compilers() {
			if !slices.Contains(have, n) {
				have = append(have, n)
			}
		}
	}
	slices.Sort(have)
	line := fmt.Sprintf("no host has %s (%s): ", name, c.lease.Compiler)
	if i := slices.Index(have, name); i >= 0 {
		// The same version from elsewhere: files are compared.
		line = fmt.Sprintf("no host has this build of %s (%s): ", name, c.lease.Compiler)
		have[i] += " of another build"
	}
	if len(have) == 0 {
		line += "hosts have no compilers"
	} else {
		line += "hosts have " + strings.Join(have, ", ")
	}
	if rest := len(c.list.sched) - up; rest > 0 {
		line += fmt.Sprintf("; %d of %d not connected", rest, len(c.list.sched))
	}
	return line
}

// maxUsed bounds how many compilers of this machine are remembered.
const maxUsed = 16

// usedLocked remembers a compiler that a job has asked for.
func (m *Manager) usedLocked(id job.ToolchainID, name string) {
	if _, known := m.used[id]; known {
		return
	}
	if m.used == nil || len(m.used) >= maxUsed {
		m.used = make(map[job.ToolchainID]string)
	}
	m.used[id] = name
}

// lacksLocked names those that h lacks; common: it has another one of them, or nothing is
// known.
func (h *host) lacksLocked() (lacks []string, common bool) {
	if h.link == nil || len(h.m.used) == 0 {
		return nil, true
	}
	ids, _ := h.link.Toolchains()
	for id, name := range h.m.used {
		switch {
		case slices.Contains(ids, id):
			common = true
		case !slices.Contains(lacks, name):
			lacks = append(lacks, name)
		}
	}
	slices.Sort(lacks)
	return lacks, common
}
