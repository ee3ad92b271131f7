package connmgr

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// tell makes the wrapper print no as one line if the reason concerns more than this command, because no host
// can take it, and the build has not been told yet.
func (c *client) tell(no *ipc.GoLocal) {
	about := no.Reason
	switch no.Reason {
	case reason.HostList:
		about = no.Detail
	case reason.NoHosts:
		about = no.Detail // a list may be empty now and wrong later
		// A list that names only this machine asks for exactly that.
		if c.list.Err == nil && c.list.Share > 0 && len(c.list.Sources) == 0 {
			return
		}
	case reason.Toolchain:
		if c.m.farm.Identifying(c.list.Sched) {
			about += ":starting" // what hosts lack is told separately, once it is known
		}
	case reason.HostLost, reason.Draining, reason.Full,
		reason.Memory, reason.Quarantine, reason.Denied:
	default:
		return
	}
	no.Trouble = c.m.told.news(time.Now(), c.record.Build, about)
}

// noHostsLine returns a line for the user about c's list, which has no hosts.
func (c *client) noHostsLine() string {
	for i := range c.list.Sources {
		if !c.list.Sources[i].Down {
			return c.list.WhyEmpty()
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

// lackLine returns a line that says which compiler no host of c's list has, and what they have instead.
func (c *client) lackLine() string {
	name := c.compiler.Name()
	have, up := c.m.farm.Compilers(c.list.Sched)
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
	if rest := len(c.list.Sched) - up; rest > 0 {
		line += fmt.Sprintf("; %d of %d not connected", rest, len(c.list.Sched))
	}
	for i := range c.list.Sched {
		for _, s := range c.m.outfit.States(c.list.Sched[i].Addr) {
			if s.ID == c.compiler.ID {
				return line + "; " + c.list.Sched[i].Addr + ": " + s.String()
			}
		}
	}
	return line
}

// localDecision returns the scheduler's refusal as the wrapper gets it, with what the scheduler does not know of it.
func (c *client) localDecision(d *scheduler.Decision) *ipc.GoLocal {
	no := &ipc.GoLocal{Reason: d.Reason, Detail: d.Detail, Host: d.Host}
	no.Code = reason.Status(d.Reason)
	no.Trouble = no.Code != 0 && d.Reason != reason.Toolchain // tell decides about that one, once per build
	if d.Reason == reason.Toolchain && !c.m.farm.Identifying(c.list.Sched) {
		no.Detail = c.lackLine()
		if d.Stalled > 0 {
			no.Detail += fmt.Sprintf("; no more of it has arrived there for %v (fallback.patience)", d.Stalled)
		}
	}
	return no
}
