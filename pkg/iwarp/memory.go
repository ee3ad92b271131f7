package iwarp

// Requests of the SQ that send nothing: they change what STags name. tx executes them in
// their turn, after everything before them is complete.

// isMemory reports whether op is the opcode of such a request.
func (op Opcode) isMemory() bool { return op == OpLocalInv || op == OpFastReg || op == OpBindMW }

// prepareMemory checks and copies such a request when it is posted.
func (q *qp) prepareMemory(slot *sendSlot, wr *SendWR) (err error) {
	slot.wr.Reg, slot.wr.Bind = nil, nil
	switch wr.Op {
	case OpFastReg:
		slot.mem, err = q.prepareReg(wr.Reg)
	case OpBindMW:
		if slot.mem, err = q.prepareBind(wr.Bind); err == nil {
			bind := *wr.Bind
			slot.wr.Bind = &bind
		}
	}
	return err
}

// executeMemory executes such a request. It returns why that is impossible, or "".
func (q *qp) executeMemory(slot *sendSlot) (fault string) {
	m := slot.mem
	slot.mem = nil
	switch slot.wr.Op {
	case OpLocalInv:
		if !q.localInvalidate(slot.wr.InvSTag) {
			return "the STag of a local invalidate is not ours, or a window is open on it"
		}
	case OpFastReg:
		if !m.of.(*fastMR).register(m) {
			return "a fast registration of a region that is registered: invalidate it first"
		}
	case OpBindMW:
		if !m.of.(*mw).bind(m, slot.wr.Bind) {
			return "a bind to a region that is not there, or not as large, or not writable"
		}
	}
	return ""
}
