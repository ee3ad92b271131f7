package connmgr

import (
	"context"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/outfit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// identifies returns what identifies a compiler again.
func (m *Manager) identifies(path string, env toolchain.Env) outfit.Identify {
	return func(ctx context.Context) (toolchain.Toolchain, error) { return m.o.Identify(ctx, path, env) }
}

// outfits adds to the states of hosts what is known of compilers that they are sent.
func (m *Manager) outfits(hosts []report.HostStatus) {
	for i := range hosts {
		for _, x := range m.outfit.States(hosts[i].Addr) {
			hosts[i].Outfit = append(hosts[i].Outfit, x.String())
		}
	}
}

// toolchains returns the compilers that jobs have used, and what is known of them at the hosts of a list.
func (m *Manager) toolchains(hosts []scheduler.Host, compilers []outfit.Compiler) []report.Toolchain {
	all := []report.Toolchain{}
	for i := range compilers {
		c := &compilers[i]
		t := report.Toolchain{ID: hex.EncodeToString(c.ID[:]), Compiler: c.Name(), Path: c.Exec, Used: c.Last, Bytes: c.Bytes, Hosts: []report.ToolchainHost{}}
		if c.Err != nil {
			t.Error = c.Err.Error()
		}
		for _, h := range m.farm.Equipped(hosts, c.ID) {
			t.Hosts = append(t.Hosts, m.atHost(h, c, t.Error))
		}
		all = append(all, t)
	}
	return all
}

// atHost returns what is known of a compiler at a host. none is why it can be sent nowhere.
func (m *Manager) atHost(h farm.Equipment, c *outfit.Compiler, none string) report.ToolchainHost {
	at := report.ToolchainHost{Host: h.Addr}
	states := m.outfit.States(h.Addr)
	i := slices.IndexFunc(states, func(s outfit.State) bool { return s.ID == c.ID })
	switch {
	case !h.Up:
		at.State, at.Error, at.Down = report.ToolchainUnknown, h.Note, h.Down
	case h.Installed:
		at.State = report.ToolchainInstalled
	case h.Sent:
		at.State = report.ToolchainReceived
	case m.outfit == nil:
		at.State, at.Error = report.ToolchainLacking, "this manager sends none (toolchains.send)"
	case !h.Tree:
		at.State, at.Error = report.ToolchainLacking, "the host shows no private trees"
	case !h.Takes:
		at.State, at.Error = report.ToolchainLacking, "the host's private trees are made without namespaces (docs/kubernetes.md)"
	case none != "":
		at.State, at.Error = report.ToolchainLacking, none
	case i < 0:
		at.State = report.ToolchainWaiting
	case states[i].Running, states[i].Err == "":
		at.State, at.Done, at.All = report.ToolchainSending, states[i].Done, states[i].All
	default:
		at.State, at.Error, at.Again = report.ToolchainLacking, states[i].Err, !states[i].Refused
	}
	return at
}

// onToolchains answers toolchains.
func (c *client) onToolchains(f *ipc.Control) error {
	if len(f.Args) == 2 {
		return c.reply(c.m.toolchains([]scheduler.Host{{Addr: f.Args[1]}}, c.m.outfit.Compilers()))
	}
	list := c.m.lists.Of(f.Hosts)
	if list.Err != nil {
		return c.refuse(reason.ExitHostList, list.Err.Error())
	}
	return c.reply(c.m.toolchains(list.Sched, c.m.outfit.Compilers()))
}

// onSend answers send: it makes the compiler with a name, or all that jobs have used, be sent to a host now.
func (c *client) onSend(f *ipc.Control) error {
	m := c.m
	if len(f.Args) < 2 || len(f.Args) > 3 || len(f.Args) == 3 && !filepath.IsAbs(f.Args[2]) {
		return c.refuse(reason.ExitArguments, "name a host, and at most one compiler")
	}
	if m.outfit == nil {
		return c.refuse(reason.ExitGeneral, "this connection manager sends no compilers (toolchains.send is false)")
	}
	list := m.lists.Of(f.Hosts)
	if list.Err != nil {
		return c.refuse(reason.ExitHostList, list.Err.Error())
	}
	addr, err := m.farm.Named(f.Args[1], list.Sched, m.lists.Of("").Sched)
	if err != nil {
		return c.refuse(reason.ExitArguments, err.Error())
	}
	compilers := m.outfit.Compilers()
	if len(f.Args) == 3 {
		again := m.identifies(f.Args[2], toolchain.Env{})
		tc, err := again(c.Context())
		if err != nil {
			return c.refuse(reason.ExitNoCompiler, err.Error())
		}
		m.farm.Use(tc.ID, tc.Name())
		compilers = []outfit.Compiler{{Toolchain: tc, Identify: again}}
	}
	if len(compilers) == 0 {
		return c.refuse(reason.ExitArguments, fmt.Sprintf("no compiler has been used yet: name one, as in: rdistcc toolchain send %s gcc", f.Args[1]))
	}
	asked := make(map[unit.ToolchainID]bool)
	for i := range compilers {
		asked[compilers[i].ID] = true
		m.outfit.Send(addr, &compilers[i].Toolchain, compilers[i].Identify)
	}
	compilers = slices.DeleteFunc(m.outfit.Compilers(), func(o outfit.Compiler) bool { return !asked[o.ID] }) // what is known of them
	host := []scheduler.Host{{Addr: addr}}
	if i := slices.IndexFunc(list.Sched, func(h scheduler.Host) bool { return h.Addr == addr }); i >= 0 {
		host = list.Sched[i : i+1]
	}
	m.farm.Want(host, nil)
	return c.reply(m.toolchains(host, compilers))
}
