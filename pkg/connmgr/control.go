package connmgr

import (
	"encoding/json"
	"fmt"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// onControl answers a subcommand of rdistcc, always with JSON or, with a code
// that is not 0, with one line.
//
//	status   Status
//	hosts    []HostStatus of the asking side's host list
//	stop     ends the manager once what runs is finished
func (c *client) onControl(f *ipc.Control) error {
	verb := ""
	if len(f.Args) > 0 {
		verb = f.Args[0]
	}
	switch verb {
	case "status":
		return c.reply(c.m.Status())
	case "hosts":
		list := c.m.listOf(f.Hosts)
		if list.err != nil {
			return c.send(&ipc.Reply{Code: ipc.ExitHostList, Data: []byte(list.err.Error())})
		}
		return c.reply(c.m.hostStatus(list))
	case "stop":
		c.m.o.Log.Info("asked to stop")
		c.m.Stop()
		return c.reply(struct{}{})
	}
	if answer, ok := c.m.o.Control[verb]; ok {
		v, err := answer()
		if err != nil {
			return c.send(&ipc.Reply{Code: ipc.ExitGeneral, Data: []byte(err.Error())})
		}
		return c.reply(v)
	}
	return c.send(&ipc.Reply{Code: ipc.ExitArguments, Data: fmt.Appendf(nil, "the connection manager knows no %q", verb)})
}

func (c *client) reply(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("answer a question: %w", err)
	}
	return c.send(&ipc.Reply{Data: data})
}

// hostStatus is the state of the hosts of a list, in its order; one that no job
// has asked for yet is "unused".
func (m *Manager) hostStatus(list *parsedList) []HostStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := []HostStatus{}
	for i := range list.sched {
		addr := list.sched[i].Addr
		if h := m.hosts[addr]; h != nil {
			out = append(out, h.statusLocked())
		} else {
			out = append(out, HostStatus{Addr: addr, State: "unused"})
		}
	}
	return out
}
