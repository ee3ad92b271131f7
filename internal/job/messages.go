package job

import "github.com/rdistcc/rdistcc/internal/wire"

// Kind of each message.

func (*Hello) Kind() Kind      { return KindHello }
func (*Welcome) Kind() Kind    { return KindWelcome }
func (*Toolchains) Kind() Kind { return KindToolchains }
func (*Grant) Kind() Kind      { return KindGrant }
func (*Recall) Kind() Kind     { return KindRecall }
func (*Return) Kind() Kind     { return KindReturn }
func (*Job) Kind() Kind        { return KindJob }
func (*Result) Kind() Kind     { return KindResult }
func (*Cancel) Kind() Kind     { return KindCancel }
func (*Heartbeat) Kind() Kind  { return KindHeartbeat }
func (*Drain) Kind() Kind      { return KindDrain }
func (*Ack) Kind() Kind        { return KindAck }
func (*Release) Kind() Kind    { return KindRelease }
func (*Demand) Kind() Kind     { return KindDemand }
func (*Proof) Kind() Kind      { return KindProof }
func (*Compilers) Kind() Kind  { return KindCompilers }
func (*Keep) Kind() Kind       { return KindKeep }

// Fields follow the kind byte in the order of the types' declarations;
// docs/protocol.md has the tables.

func (m *Hello) appendTo(b []byte) []byte {
	b = appendShort(b, m.Name, MaxName)
	b = wire.AppendBool(wire.AppendUint16(wire.AppendUint16(b, m.Want), m.Weight), m.Bare)
	if m.Program == "" {
		return b // as in version 11
	}
	return appendShort(b, m.Program, MaxName)
}

func (m *Hello) parse(r *reader) {
	m.Name = r.short(MaxName)
	m.Want = r.Uint16()
	m.Weight = r.Uint16()
	m.Bare = r.Bool()
	if len(r.Rest) > 0 {
		if m.Program = r.short(MaxName); m.Program == "" {
			r.Fail("empty version")
		}
	}
}

func (m *Welcome) appendTo(b []byte) []byte {
	b = append(b, m.Boot[:]...)
	b = wire.AppendUint16(b, m.Jobs)
	b = wire.AppendUint64(b, m.MaxBody)
	b = wire.AppendUint64(b, m.MaxSource)
	b = wire.AppendUint32(b, m.Eager)
	b = wire.AppendUint64(b, m.MaxResult)
	b = wire.AppendBool(wire.AppendUint16(b, m.Toolchains), m.Identifying)
	b = m.Board.appendTo(b)
	b = wire.AppendBool(wire.AppendBool(wire.AppendBool(b, m.Tree), m.Zstd), m.SlotsKept)
	b = wire.AppendUint16(b, m.Sandbox)
	b = wire.AppendUint64(b, m.Clock)
	b = appendShort(b, m.Program, MaxName)
	b = wire.AppendUint64(b, m.Store)
	b = wire.AppendUint64(b, m.StoreEpoch)
	b = m.Shelf.appendTo(b)
	b = appendShort(b, m.Group, MaxName)
	return m.Load.appendTo(b)
}

func (m *Welcome) parse(r *reader) {
	m.Boot = r.array16()
	m.Jobs = r.Uint16()
	m.MaxBody = r.Uint64()
	m.MaxSource = r.Uint64()
	if m.Eager = r.Uint32(); m.Eager > MaxEager {
		r.Fail("eager jobs past their limit")
	}
	m.MaxResult = r.Uint64()
	m.Toolchains = r.Uint16()
	m.Identifying = r.Bool()
	m.Board.parse(r)
	m.Tree = r.Bool()
	m.Zstd = r.Bool()
	m.SlotsKept = r.Bool()
	m.Sandbox = r.Uint16()
	m.Clock = r.Uint64()
	m.Program = r.short(MaxName)
	m.Store = r.Uint64()
	m.StoreEpoch = r.Uint64()
	m.Shelf.parse(r)
	m.Group = r.short(MaxName)
	m.Load.parse(r)
}

func (m *Toolchains) appendTo(b []byte) []byte {
	b = wire.AppendUint32(b, m.Seq)
	b = wire.AppendUint16(b, m.First)
	b = wire.AppendBool(wire.AppendUint16(b, m.Total), m.More)
	b = appendCount(b, len(m.IDs), MaxIDs)
	for i := range m.IDs {
		b = append(b, m.IDs[i][:]...)
	}
	return b
}

func (m *Toolchains) parse(r *reader) {
	m.Seq = r.Uint32()
	m.First = r.Uint16()
	m.Total = r.Uint16()
	m.More = r.Bool()
	n := r.count(MaxIDs)
	if int(m.First)+n > int(m.Total) {
		r.Fail("toolchains past their total")
		return
	}
	for range n {
		m.IDs = append(m.IDs, r.array16())
	}
}

func (m *Compilers) appendTo(b []byte) []byte {
	b = wire.AppendUint32(b, m.Seq)
	b = appendCount(b, len(m.Names), MaxNames)
	for _, name := range m.Names {
		b = appendShort(b, name, MaxVersion)
	}
	return b
}

func (m *Compilers) parse(r *reader) {
	m.Seq = r.Uint32()
	for range r.count(MaxNames) {
		m.Names = append(m.Names, r.short(MaxVersion))
	}
}

func (m *Grant) appendTo(b []byte) []byte {
	b = wire.AppendUint32(b, m.Seq)
	b = appendCount(b, len(m.Credits), MaxCredits)
	for i := range m.Credits {
		b = m.Credits[i].appendTo(b)
	}
	return b
}

func (m *Grant) parse(r *reader) {
	m.Seq = r.Uint32()
	for range r.count(MaxCredits) {
		var c Credit
		c.parse(r)
		m.Credits = append(m.Credits, c)
	}
}

func (m *Recall) appendTo(b []byte) []byte {
	return wire.AppendUint16(wire.AppendUint32(b, m.Seq), m.Count)
}

func (m *Recall) parse(r *reader) {
	m.Seq = r.Uint32()
	m.Count = r.Uint16()
}

func (m *Return) appendTo(b []byte) []byte { return wire.AppendUint64(b, m.Credit) }

func (m *Return) parse(r *reader) { m.Credit = r.Uint64() }

func (m *Job) appendTo(b []byte) []byte {
	b = wire.AppendUint64(b, m.ID)
	b = wire.AppendUint64(b, m.Credit)
	b = append(b, m.Toolchain[:]...)
	b = wire.AppendUint32(b, m.BodyLen)
	b = wire.AppendUint32(b, m.TextOff)
	b = wire.AppendUint64(b, m.TextLen)
	b = m.Sink.appendTo(b)
	b = m.Source.appendTo(b)
	b = wire.AppendUint64(b, m.Fetch)
	b = wire.AppendUint32(b, m.Timeout)
	b = append(b, m.Digest[:]...)
	b = wire.AppendUint64(b, m.Packed)
	b = wire.AppendUint64(b, m.Memory)
	b = wire.AppendUint32(b, m.Expect)
	b = wire.AppendBool(wire.AppendBool(b, m.Zstd), m.Store)
	b = wire.AppendBool(append(b, m.Key[:]...), m.Join)
	if b = appendShort(b, m.Base, MaxBase); m.Base != "" {
		b = append(b, m.Moved[:]...)
	}
	return append(wire.AppendUint32(b, uint32(len(m.Carried))), m.Carried...)
}

func (m *Job) parse(r *reader) {
	m.ID = r.Uint64()
	m.Credit = r.Uint64()
	m.Toolchain = r.array16()
	m.BodyLen = r.Uint32()
	m.TextOff = r.Uint32()
	m.TextLen = r.Uint64()
	m.Sink.parse(r)
	m.Source.parse(r)
	m.Fetch = r.Uint64()
	m.Timeout = r.Uint32()
	m.Digest = r.array16()
	m.Packed = r.Uint64()
	m.Memory = r.Uint64()
	m.Expect = r.Uint32()
	m.Zstd = r.Bool()
	m.Store = r.Bool()
	copy(m.Key[:], r.Take(len(m.Key)))
	m.Join = r.Bool()
	if m.Base = r.short(MaxBase); m.Base != "" {
		copy(m.Moved[:], r.Take(len(m.Moved)))
	}
	n := r.Uint32()
	if int64(n) != int64(len(r.Rest)) {
		r.Fail("another length than the message carries")
		return
	}
	if n > 0 {
		m.Carried = r.Take(int(n))
	}
}

func (m *Result) appendTo(b []byte) []byte {
	b = wire.AppendUint64(b, m.ID)
	b = append(b, byte(m.Status), byte(m.Cause), m.Exit, m.Signal)
	b = m.Stdout.appendTo(b)
	b = m.Stderr.appendTo(b)
	b = appendCount(b, len(m.Files), MaxOutputs)
	for i := range m.Files {
		f := &m.Files[i]
		b = wire.AppendBool(append(b, f.Index), f.Exec)
		b = f.Segment.appendTo(b)
	}
	b = wire.AppendUint32(b, m.Queue)
	b = wire.AppendUint32(b, m.Wall)
	b = wire.AppendUint32(b, m.CPU)
	b = wire.AppendUint64(b, m.MaxRSS)
	b = m.Window.appendTo(b)
	b = m.Load.appendTo(b)
	b = wire.AppendBool(b, m.Next != nil)
	if m.Next != nil {
		b = m.Next.appendTo(b)
	}
	b = append(b, m.Digest[:]...)
	b = wire.AppendBool(wire.AppendUint64(b, m.Packed), m.Joined)
	return appendShort(b, m.Detail, MaxDetail)
}

func (m *Result) parse(r *reader) {
	m.ID = r.Uint64()
	m.Status = Status(r.Uint8())
	if m.Status > StatusFailed {
		r.Fail("unknown status")
	}
	m.Cause = Cause(r.Uint8())
	if m.Cause >= numCauses {
		r.Fail("unknown cause")
	}
	m.Exit = r.Uint8()
	m.Signal = r.Uint8()
	m.Stdout.parse(r)
	m.Stderr.parse(r)
	for range r.count(MaxOutputs) {
		var f File
		f.Index = r.Uint8()
		if f.Index >= MaxOutputs {
			r.Fail("no such output")
		}
		f.Exec = r.Bool()
		f.Segment.parse(r)
		m.Files = append(m.Files, f)
	}
	m.Queue = r.Uint32()
	m.Wall = r.Uint32()
	m.CPU = r.Uint32()
	m.MaxRSS = r.Uint64()
	m.Window.parse(r)
	m.Load.parse(r)
	if r.Bool() {
		m.Next = new(Credit)
		m.Next.parse(r)
	}
	m.Digest = r.array16()
	m.Packed = r.Uint64()
	m.Joined = r.Bool()
	m.Detail = r.short(MaxDetail)
}

func (m *Cancel) appendTo(b []byte) []byte {
	b = wire.AppendUint32(b, m.Seq)
	b = appendCount(b, len(m.Jobs), MaxCancels)
	for _, id := range m.Jobs {
		b = wire.AppendUint64(b, id)
	}
	return b
}

func (m *Cancel) parse(r *reader) {
	m.Seq = r.Uint32()
	for range r.count(MaxCancels) {
		m.Jobs = append(m.Jobs, r.Uint64())
	}
}

func (m *Heartbeat) appendTo(b []byte) []byte { return wire.AppendUint32(b, m.Seq) }

func (m *Heartbeat) parse(r *reader) { m.Seq = r.Uint32() }

func (m *Drain) appendTo(b []byte) []byte { return wire.AppendUint32(b, m.Seq) }

func (m *Drain) parse(r *reader) { m.Seq = r.Uint32() }

func (m *Release) appendTo(b []byte) []byte { return wire.AppendUint64(b, m.ID) }

func (m *Release) parse(r *reader) { m.ID = r.Uint64() }

func (m *Demand) appendTo(b []byte) []byte {
	b = wire.AppendUint32(b, m.Seq)
	return wire.AppendUint16(wire.AppendUint16(b, m.Jobs), m.Builds)
}

func (m *Demand) parse(r *reader) {
	m.Seq = r.Uint32()
	m.Jobs = r.Uint16()
	m.Builds = r.Uint16()
}

func (m *Keep) appendTo(b []byte) []byte {
	b = wire.AppendUint32(b, m.Seq)
	return m.Window.appendTo(append(b, m.Key[:]...))
}

func (m *Keep) parse(r *reader) {
	m.Seq = r.Uint32()
	copy(m.Key[:], r.Take(len(m.Key)))
	if m.Window.parse(r); m.Window.STag == 0 || m.Window.Len == 0 || m.Window.Len > MaxKeep {
		r.Fail("nothing to keep, or too much")
	}
}

func (m *Proof) appendTo(b []byte) []byte { return append(b, m.MAC[:]...) }

func (m *Proof) parse(r *reader) { copy(m.MAC[:], r.Take(ProofLen)) }

func (m *Ack) appendTo(b []byte) []byte {
	b = wire.AppendUint32(append(b, byte(m.Of)), m.Seq)
	return m.Load.appendTo(b)
}

func (m *Ack) parse(r *reader) {
	m.Of = Kind(r.Uint8())
	switch m.Of {
	case KindToolchains, KindCompilers, KindGrant, KindRecall, KindCancel, KindHeartbeat, KindDrain, KindDemand, KindKeep:
	default:
		r.Fail("acknowledges what needs none")
	}
	m.Seq = r.Uint32()
	m.Load.parse(r)
}

func (w *Window) appendTo(b []byte) []byte {
	b = wire.AppendUint32(b, w.STag)
	b = wire.AppendUint64(b, w.TO)
	return wire.AppendUint64(b, w.Len)
}

func (w *Window) parse(r *reader) {
	w.STag = r.Uint32()
	w.TO = r.Uint64()
	w.Len = r.Uint64()
	if w.TO+w.Len < w.TO {
		r.Fail("window wraps")
	}
}

func (c *Credit) appendTo(b []byte) []byte {
	return c.Slot.appendTo(wire.AppendUint64(b, c.ID))
}

func (c *Credit) parse(r *reader) {
	c.ID = r.Uint64()
	c.Slot.parse(r)
}

func (s *Segment) appendTo(b []byte) []byte {
	return wire.AppendUint64(wire.AppendUint64(b, s.Off), s.Len)
}

func (s *Segment) parse(r *reader) {
	s.Off = r.Uint64()
	s.Len = r.Uint64()
	if s.Off+s.Len < s.Off {
		r.Fail("segment wraps")
	}
}

func (l *Load) appendTo(b []byte) []byte {
	b = wire.AppendUint16(b, l.Jobs)
	b = wire.AppendUint16(b, l.Running)
	b = wire.AppendUint16(b, l.Queued)
	b = wire.AppendUint16(b, l.Free)
	b = wire.AppendBool(b, l.Draining)
	b = wire.AppendUint32(b, l.LoadAvg)
	return wire.AppendUint64(b, l.MemoryFree)
}

func (l *Load) parse(r *reader) {
	l.Jobs = r.Uint16()
	l.Running = r.Uint16()
	l.Queued = r.Uint16()
	l.Free = r.Uint16()
	l.Draining = r.Bool()
	l.LoadAvg = r.Uint32()
	l.MemoryFree = r.Uint64()
}
