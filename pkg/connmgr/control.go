package connmgr

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/lists"
	"github.com/rdistcc/rdistcc/pkg/connmgr/machine"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// onControl answers a subcommand of rdistcc, with JSON or, if the code is not 0, with one line of text. The
// types are those of package report.
//
//	status            Status
//	hosts             []HostStatus of the asking side's host list
//	places            Places of that list
//	stats             Stats
//	why NAME...       Why of a file, by its absolute name and as it was typed
//	build NAME [FROM] BuildJobs of the asking user's build of that name; without FROM, from now on
//	costs             Journal, with all compiles so far in it
//	drain HOST        Drained; undrain HOST too
//	toolchains [ADDR] []Toolchain, with what is known of them at the hosts of that list, or at the one with an address
//	send HOST [PATH]  the same of one host, which is sent the compiler, or all that jobs have used, from now on
//	storage           no JSON: the connection goes on in the protocol of ccache's storage helpers (package crsh)
//	stop              ends the manager once what runs is finished
//
// If the manager serves the whole machine, every user that may use it may ask, but only its own user and root
// may change anything.
func (c *client) onControl(f *ipc.Control) error {
	verb, words := "", 0
	if len(f.Args) > 0 {
		verb, words = f.Args[0], len(f.Args)-1
	}
	switch verb {
	case "drain", "undrain", "send", "stop", "replace", "reload":
		if c.uid != 0 && c.uid != c.m.uid {
			return c.refuse(reason.ExitDenied, fmt.Sprintf("the connection manager is user %d's: only that user and root may %s", c.m.uid, verb))
		}
	}
	c.m.underway.Settle(settled)
	switch verb {
	case "status":
		return c.reply(c.m.Status())
	case "stats":
		return c.reply(c.m.Stats())
	case "hosts", "places":
		list := c.m.lists.Of(f.Hosts)
		switch {
		case list.Err != nil:
			return c.refuse(reason.ExitHostList, list.Err.Error())
		case verb == "places":
			return c.reply(c.m.room(list))
		}
		return c.reply(c.m.hostStatus(list))
	case "why":
		if words == 0 {
			return c.refuse(reason.ExitArguments, "name a file")
		}
		return c.reply(c.m.Why(f.Args[1:]))
	case "build":
		return c.onBuild(f.Args[1:])
	case "costs":
		c.m.costs.flush()
		return c.reply(report.Journal{Dir: c.m.o.Costs})
	case "drain", "undrain":
		return c.onDrain(f, verb == "drain")
	case "toolchains":
		return c.onToolchains(f)
	case "send":
		return c.onSend(f)
	case "storage":
		return c.onStorage(f)
	case "stop":
		c.m.o.Log.Info("asked to stop")
		c.m.Stop()
		return c.reply(struct{}{})
	}
	if answer, ok := c.m.o.Control[verb]; ok {
		v, err := answer()
		if err != nil {
			return c.refuse(reason.ExitGeneral, err.Error())
		}
		return c.reply(v)
	}
	return c.refuse(reason.ExitArguments, fmt.Sprintf("the connection manager knows no %q", verb))
}

// settled bounds how long a question waits for commands that have just ended: a wrapper is gone a moment before its command is
// recorded, and on a busy machine who runs `rdistcc why` next is sooner.
const settled = 250 * time.Millisecond

// hostStatus returns the state of the hosts of a list, in its order. A host that no job has asked for yet is
// "unused".
func (m *Manager) hostStatus(list *lists.List) []report.HostStatus {
	out := m.farm.Status(list.Sched)
	m.outfits(out)
	for i := range list.Sources { // those that have found nothing, or nothing newer
		if s := &list.Sources[i]; !s.Down && (s.Found == 0 || s.Problem != "") {
			out = append(out, report.HostStatus{Addr: s.Text, State: "source", Error: cmp.Or(s.Problem, "nobody is there")})
		}
	}
	return out
}

// room counts the places of a list, and of this machine.
func (m *Manager) room(list *lists.List) report.Places {
	p := m.farm.Places(list.Sched)
	p.Local = list.Share
	if m.live().LocalShare && !list.Empty() {
		p.Local = max(p.Local, list.LocalJobs(m.live().LocalJobs))
	}
	return p
}

// onBuild answers what became of the commands of a build.
func (c *client) onBuild(words []string) error {
	if len(words) < 1 || len(words) > 2 || words[0] == "" {
		return c.refuse(reason.ExitArguments, "name one build")
	}
	build := machine.NamedBuild(c.uid, words[0])
	from := c.m.account.noted()
	if len(words) == 2 {
		var err error
		if from, err = strconv.ParseUint(words[1], 10, 64); err != nil {
			return c.refuse(reason.ExitArguments, fmt.Sprintf("%q is no number of commands", words[1]))
		}
	}
	b := c.m.account.ofBuild(build, from)
	b.PID, b.Since, b.Running = os.Getpid(), c.m.started, c.m.underway.CountBuild(build)
	return c.reply(b)
}

// onDrain answers drain and undrain, which only the manager's own user and root may use.
func (c *client) onDrain(f *ipc.Control, on bool) error {
	if len(f.Args) != 2 {
		return c.refuse(reason.ExitArguments, "name one host")
	}
	list := c.m.lists.Of(f.Hosts)
	if list.Err != nil {
		return c.refuse(reason.ExitHostList, list.Err.Error())
	}
	d, err := c.m.farm.Drain(f.Args[1], on, list.Sched, c.m.lists.Of("").Sched)
	if err != nil {
		return c.refuse(reason.ExitArguments, err.Error())
	}
	return c.reply(d)
}
