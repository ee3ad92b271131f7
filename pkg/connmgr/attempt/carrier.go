package attempt

import (
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Choice is the setting for how sources travel.
type Choice struct {
	Auto    bool
	Carrier job.Carrier // used wherever the host takes it, unless Auto is set
	Eager   int64       // bytes of a source that travels eager at most, if Auto is set
}

// choose returns how a source of n bytes travels to a host whose credit has a slot of that many bytes. Auto
// sends small ones eager, writes others where there is a slot, and lets the host pull the rest. A source is
// written only into a slot that it fits, and is otherwise offered, which is the only way for very long ones.
func (a *Attempt) choose(n, slot uint64) job.Carrier {
	w, pulls := a.link.Welcome(), n <= a.link.MaxSource()
	eager := n <= uint64(w.Eager)
	switch c := a.Carriers; {
	case c.Auto && eager && n <= uint64(max(c.Eager, 0)), !c.Auto && c.Carrier == job.Eager && eager:
		return job.Eager
	case !c.Auto && c.Carrier == job.Pull && pulls:
		return job.Pull
	case n <= slot:
		return job.Write
	case pulls:
		return job.Pull
	}
	return job.Eager // the host takes no other
}

// show registers the source for the host, if carrier needs that, and returns the window to offer. The daemon's
// Reads of it are over when the Result comes, or the QP is gone.
func (a *Attempt) show(load *cargo, carrier job.Carrier) (source job.Window, err error) {
	fl := a.fl
	fl.Length = uint64(len(load.mem))
	switch carrier {
	case job.Write:
		fl.Source, err = a.Memory.Register(load.mem, 0, nil)
	case job.Pull:
		fl.Length = 0
		// The bounds are those of the source, and only this connection may read it.
		if fl.Source, err = a.Memory.Register(load.mem, iwarp.RemoteRead, a.link.QP()); err == nil {
			source = job.Window{STag: uint32(fl.Source.STag()), TO: fl.Source.Base(), Len: uint64(len(load.mem))}
		}
		if len(load.mem) > int(min(a.link.Welcome().MaxBody, uint64(a.Memory.Sizes.Slot))) {
			a.Metrics.Fetched("source")
		}
	case job.Eager:
		fl.Eager = true
	}
	return source, err
}

// pack encodes the Job, with its source if that travels eager.
func (a *Attempt) pack(m *job.Job, load *cargo, carrier job.Carrier) (err error) {
	fl := a.fl
	if carrier != job.Eager {
		fl.Msg = job.Append(nil, m)
		return nil
	}
	if a.message, err = a.Memory.Message(job.MaxMessage + len(load.mem)); err != nil {
		return err
	}
	m.Carried = load.mem
	fl.Msg, fl.Source, fl.At = job.Append(a.message.Mem[:0], m), a.message.MR, a.message.At
	return nil
}

// hide undoes show and pack, once the host cannot read the source any more.
func (a *Attempt) hide() {
	switch {
	case a.message != nil:
		a.Memory.Give(a.message)
	case a.fl.Source != nil:
		a.Memory.Dereg(a.fl.Source)
	}
	a.message, a.fl.Source = nil, nil
}
