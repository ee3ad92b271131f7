package job

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

// Fields follow the kind byte in the order of the types' declarations;
// docs/protocol.md has the tables.

func (m *Hello) appendTo(b []byte) []byte {
	b = appendShort(b, m.Name, MaxName)
	return le.AppendUint16(le.AppendUint16(b, m.Want), m.Weight)
}

func (m *Hello) parse(r *reader) {
	m.Name = r.short(MaxName)
	m.Want = r.u16()
	m.Weight = r.u16()
}

func (m *Welcome) appendTo(b []byte) []byte {
	b = append(b, m.Boot[:]...)
	b = le.AppendUint16(b, m.Jobs)
	b = le.AppendUint64(b, m.MaxBody)
	b = le.AppendUint64(b, m.MaxSource)
	b = le.AppendUint64(b, m.MaxResult)
	b = appendBool(le.AppendUint16(b, m.Toolchains), m.Identifying)
	b = m.Board.appendTo(b)
	b = appendBool(appendBool(b, m.Tree), m.Zstd)
	b = le.AppendUint16(b, m.Sandbox)
	b = le.AppendUint64(b, m.Clock)
	b = appendShort(b, m.Program, MaxName)
	b = le.AppendUint64(b, m.Store)
	b = le.AppendUint64(b, m.StoreEpoch)
	return m.Load.appendTo(b)
}

func (m *Welcome) parse(r *reader) {
	m.Boot = r.array16()
	m.Jobs = r.u16()
	m.MaxBody = r.u64()
	m.MaxSource = r.u64()
	m.MaxResult = r.u64()
	m.Toolchains = r.u16()
	m.Identifying = r.bool()
	m.Board.parse(r)
	m.Tree = r.bool()
	m.Zstd = r.bool()
	m.Sandbox = r.u16()
	m.Clock = r.u64()
	m.Program = r.short(MaxName)
	m.Store = r.u64()
	m.StoreEpoch = r.u64()
	m.Load.parse(r)
}

func (m *Toolchains) appendTo(b []byte) []byte {
	b = le.AppendUint32(b, m.Seq)
	b = le.AppendUint16(b, m.First)
	b = appendBool(le.AppendUint16(b, m.Total), m.More)
	b = appendCount(b, len(m.IDs), MaxIDs)
	for i := range m.IDs {
		b = append(b, m.IDs[i][:]...)
	}
	return b
}

func (m *Toolchains) parse(r *reader) {
	m.Seq = r.u32()
	m.First = r.u16()
	m.Total = r.u16()
	m.More = r.bool()
	n := r.count(MaxIDs)
	if int(m.First)+n > int(m.Total) {
		r.fail("toolchains past their total")
		return
	}
	for range n {
		m.IDs = append(m.IDs, r.array16())
	}
}

func (m *Compilers) appendTo(b []byte) []byte {
	b = le.AppendUint32(b, m.Seq)
	b = appendCount(b, len(m.Names), MaxNames)
	for _, name := range m.Names {
		b = appendShort(b, name, MaxVersion)
	}
	return b
}

func (m *Compilers) parse(r *reader) {
	m.Seq = r.u32()
	for range r.count(MaxNames) {
		m.Names = append(m.Names, r.short(MaxVersion))
	}
}

func (m *Grant) appendTo(b []byte) []byte {
	b = le.AppendUint32(b, m.Seq)
	b = appendCount(b, len(m.Credits), MaxCredits)
	for i := range m.Credits {
		b = m.Credits[i].appendTo(b)
	}
	return b
}

func (m *Grant) parse(r *reader) {
	m.Seq = r.u32()
	for range r.count(MaxCredits) {
		var c Credit
		c.parse(r)
		m.Credits = append(m.Credits, c)
	}
}

func (m *Recall) appendTo(b []byte) []byte {
	return le.AppendUint16(le.AppendUint32(b, m.Seq), m.Count)
}

func (m *Recall) parse(r *reader) {
	m.Seq = r.u32()
	m.Count = r.u16()
}

func (m *Return) appendTo(b []byte) []byte { return le.AppendUint64(b, m.Credit) }

func (m *Return) parse(r *reader) { m.Credit = r.u64() }

func (m *Job) appendTo(b []byte) []byte {
	b = le.AppendUint64(b, m.ID)
	b = le.AppendUint64(b, m.Credit)
	b = append(b, m.Toolchain[:]...)
	b = le.AppendUint32(b, m.BodyLen)
	b = le.AppendUint32(b, m.TextOff)
	b = le.AppendUint64(b, m.TextLen)
	b = m.Sink.appendTo(b)
	b = m.Source.appendTo(b)
	b = le.AppendUint64(b, m.Fetch)
	b = le.AppendUint32(b, m.Timeout)
	b = append(b, m.Digest[:]...)
	b = le.AppendUint64(b, m.Packed)
	b = le.AppendUint64(b, m.Memory)
	b = le.AppendUint32(b, m.Expect)
	return appendBool(appendBool(b, m.Zstd), m.Store)
}

func (m *Job) parse(r *reader) {
	m.ID = r.u64()
	m.Credit = r.u64()
	m.Toolchain = r.array16()
	m.BodyLen = r.u32()
	m.TextOff = r.u32()
	m.TextLen = r.u64()
	m.Sink.parse(r)
	m.Source.parse(r)
	m.Fetch = r.u64()
	m.Timeout = r.u32()
	m.Digest = r.array16()
	m.Packed = r.u64()
	m.Memory = r.u64()
	m.Expect = r.u32()
	m.Zstd = r.bool()
	m.Store = r.bool()
}

func (m *Result) appendTo(b []byte) []byte {
	b = le.AppendUint64(b, m.ID)
	b = append(b, byte(m.Status), byte(m.Cause), m.Exit, m.Signal)
	b = m.Stdout.appendTo(b)
	b = m.Stderr.appendTo(b)
	b = appendCount(b, len(m.Files), MaxOutputs)
	for i := range m.Files {
		f := &m.Files[i]
		b = appendBool(append(b, f.Index), f.Exec)
		b = f.Segment.appendTo(b)
	}
	b = le.AppendUint32(b, m.Queue)
	b = le.AppendUint32(b, m.Wall)
	b = le.AppendUint32(b, m.CPU)
	b = le.AppendUint64(b, m.MaxRSS)
	b = m.Window.appendTo(b)
	b = m.Load.appendTo(b)
	b = appendBool(b, m.Next != nil)
	if m.Next != nil {
		b = m.Next.appendTo(b)
	}
	b = append(b, m.Digest[:]...)
	b = le.AppendUint64(b, m.Packed)
	return appendShort(b, m.Detail, MaxDetail)
}

func (m *Result) parse(r *reader) {
	m.ID = r.u64()
	m.Status = Status(r.u8())
	if m.Status > StatusFailed {
		r.fail("unknown status")
	}
	m.Cause = Cause(r.u8())
	if m.Cause >= numCauses {
		r.fail("unknown cause")
	}
	m.Exit = r.u8()
	m.Signal = r.u8()
	m.Stdout.parse(r)
	m.Stderr.parse(r)
	for range r.count(MaxOutputs) {
		var f File
		f.Index = r.u8()
		if f.Index >= MaxOutputs {
			r.fail("no such output")
		}
		f.Exec = r.bool()
		f.Segment.parse(r)
		m.Files = append(m.Files, f)
	}
	m.Queue = r.u32()
	m.Wall = r.u32()
	m.CPU = r.u32()
	m.MaxRSS = r.u64()
	m.Window.parse(r)
	m.Load.parse(r)
	if r.bool() {
		m.Next = new(Credit)
		m.Next.parse(r)
	}
	m.Digest = r.array16()
	m.Packed = r.u64()
	m.Detail = r.short(MaxDetail)
}

func (m *Cancel) appendTo(b []byte) []byte {
	b = le.AppendUint32(b, m.Seq)
	b = appendCount(b, len(m.Jobs), MaxCancels)
	for _, id := range m.Jobs {
		b = le.AppendUint64(b, id)
	}
	return b
}

func (m *Cancel) parse(r *reader) {
	m.Seq = r.u32()
	for range r.count(MaxCancels) {
		m.Jobs = append(m.Jobs, r.u64())
	}
}

func (m *Heartbeat) appendTo(b []byte) []byte { return le.AppendUint32(b, m.Seq) }

func (m *Heartbeat) parse(r *reader) { m.Seq = r.u32() }

func (m *Drain) appendTo(b []byte) []byte { return le.AppendUint32(b, m.Seq) }

func (m *Drain) parse(r *reader) { m.Seq = r.u32() }

func (m *Release) appendTo(b []byte) []byte { return le.AppendUint64(b, m.ID) }

func (m *Release) parse(r *reader) { m.ID = r.u64() }

func (m *Demand) appendTo(b []byte) []byte {
	b = le.AppendUint32(b, m.Seq)
	return le.AppendUint16(le.AppendUint16(b, m.Jobs), m.Builds)
}

func (m *Demand) parse(r *reader) {
	m.Seq = r.u32()
	m.Jobs = r.u16()
	m.Builds = r.u16()
}

func (m *Proof) appendTo(b []byte) []byte { return append(b, m.MAC[:]...) }

func (m *Proof) parse(r *reader) { copy(m.MAC[:], r.take(ProofLen)) }

func (m *Ack) appendTo(b []byte) []byte {
	b = le.AppendUint32(append(b, byte(m.Of)), m.Seq)
	return m.Load.appendTo(b)
}

func (m *Ack) parse(r *reader) {
	m.Of = Kind(r.u8())
	switch m.Of {
	case KindToolchains, KindCompilers, KindGrant, KindRecall, KindCancel, KindHeartbeat, KindDrain, KindDemand:
	default:
		r.fail("acknowledges what needs none")
	}
	m.Seq = r.u32()
	m.Load.parse(r)
}

func (w *Window) appendTo(b []byte) []byte {
	b = le.AppendUint32(b, w.STag)
	b = le.AppendUint64(b, w.TO)
	return le.AppendUint64(b, w.Len)
}

func (w *Window) parse(r *reader) {
	w.STag = r.u32()
	w.TO = r.u64()
	w.Len = r.u64()
	if w.TO+w.Len < w.TO {
		r.fail("window wraps")
	}
}

func (c *Credit) appendTo(b []byte) []byte {
	return c.Slot.appendTo(le.AppendUint64(b, c.ID))
}

func (c *Credit) parse(r *reader) {
	c.ID = r.u64()
	c.Slot.parse(r)
}

func (s *Segment) appendTo(b []byte) []byte {
	return le.AppendUint64(le.AppendUint64(b, s.Off), s.Len)
}

func (s *Segment) parse(r *reader) {
	s.Off = r.u64()
	s.Len = r.u64()
	if s.Off+s.Len < s.Off {
		r.fail("segment wraps")
	}
}

func (l *Load) appendTo(b []byte) []byte {
	b = le.AppendUint16(b, l.Jobs)
	b = le.AppendUint16(b, l.Running)
	b = le.AppendUint16(b, l.Queued)
	b = le.AppendUint16(b, l.Free)
	b = appendBool(b, l.Draining)
	b = le.AppendUint32(b, l.LoadAvg)
	return le.AppendUint64(b, l.MemoryFree)
}

func (l *Load) parse(r *reader) {
	l.Jobs = r.u16()
	l.Running = r.u16()
	l.Queued = r.u16()
	l.Free = r.u16()
	l.Draining = r.bool()
	l.LoadAvg = r.u32()
	l.MemoryFree = r.u64()
}
