package iwarp_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/ddp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

// What memory holds before an attack: the attacker's window, and all that he must
// neither see nor change.
const (
	windowByte = 0xa5
	secretByte = 0x5c
	windowSize = 4096
	guardSize  = 4096
)

// siege is a device with an attacker, which has a raw connection to one of its QPs, and an honest peer on
// another one.
type siege struct {
	*testing.T
	dev    iwarp.Device
	victim *iwarptest.End // the attacker's QP
	conn   net.Conn       // the attacker's end

	mine    []byte // all memory around the attacker's window
	window  iwarp.MR
	private iwarp.MR // of the same QP, without remote rights
	write   iwarp.MR // of the same QP, for Writes alone
	read    iwarp.MR // of the same QP, for Reads alone
	foreign iwarp.MR // the honest peer's window
	theirs  []byte   // its memory
	other   []byte   // memory of private, write, read

	honest, peer *iwarptest.End // the honest connection: device's end, peer's end
}

// attackFrame is an FPDU with a right CRC.
func attackFrame(ulpdu []byte) []byte {
	b := mpa.NewBatch()
	b.Reset(true)
	b.CopyAll()
	b.Add(nil, ulpdu)
	return bytes.Clone(b.Bufs()[0])
}

func untaggedFrame(h ddp.Untagged, op uint8, payload []byte) []byte {
	h.ULP = 0x40 | op
	u := make([]byte, ddp.UntaggedSize)
	h.Put(u)
	return attackFrame(append(u, payload...))
}

func taggedFrame(op uint8, stag iwarp.STag, to uint64, payload []byte) []byte {
	h := ddp.Tagged{Last: true, ULP: 0x40 | op, STag: stag, TO: to}
	u := make([]byte, ddp.TaggedSize)
	h.Put(u)
	return attackFrame(append(u, payload...))
}

func writeFrame(stag iwarp.STag, to uint64, n int) []byte {
	return taggedFrame(0, stag, to, bytes.Repeat([]byte{0xee}, n))
}

func sendFrame(msn, mo uint32, last bool, n int) []byte {
	return untaggedFrame(ddp.Untagged{Last: last, MSN: msn, MO: mo}, 3, bytes.Repeat([]byte{0xee}, n))
}

func readFrame(msn uint32, stag iwarp.STag, to uint64, n uint32) []byte {
	p := binary.BigEndian.AppendUint32(nil, 0x01020304)
	p = binary.BigEndian.AppendUint64(p, 0)
	p = binary.BigEndian.AppendUint32(p, n)
	p = binary.BigEndian.AppendUint32(p, uint32(stag))
	p = binary.BigEndian.AppendUint64(p, to)
	return untaggedFrame(ddp.Untagged{Last: true, QN: 1, MSN: msn}, 1, p)
}

// besiege sets the scene on the given transport.
func besiege(t *testing.T, cfg iwarp.Config, dial func(addr string) (net.Conn, error)) *siege {
	t.Helper()
	s := &siege{T: t, dev: iwarptest.Open(t, cfg)}
	depth := &iwarp.ConnParam{ORD: 4, IRD: 4}
	s.honest = iwarptest.NewEnd(t, s.dev, iwarp.QPInitAttr{})
	s.peer = iwarptest.NewEnd(t, iwarptest.Open(t, cfg), iwarp.QPInitAttr{})
	iwarptest.Connect(t, s.peer, s.honest, "127.0.0.1:0", depth, depth)
	s.victim = iwarptest.NewEnd(t, s.dev, iwarp.QPInitAttr{})

	s.mine = bytes.Repeat([]byte{secretByte}, windowSize+2*guardSize)
	window := s.mine[guardSize : guardSize+windowSize]
	fill(window, windowByte)
	all := iwarp.LocalWrite | iwarp.RemoteWrite | iwarp.RemoteRead
	bound := &iwarp.MROptions{QP: s.victim.QP, Base: 1 << 20}
	s.window = s.victim.Reg(t, window, all, bound)
	s.other = bytes.Repeat([]byte{secretByte}, 3*windowSize)
	s.private = s.victim.Reg(t, s.other[:windowSize], iwarp.LocalWrite, bound)
	s.write = s.victim.Reg(t, s.other[windowSize:2*windowSize], iwarp.LocalWrite|iwarp.RemoteWrite, bound)
	s.read = s.victim.Reg(t, s.other[2*windowSize:], iwarp.RemoteRead, bound)
	s.theirs = bytes.Repeat([]byte{secretByte}, windowSize)
	s.foreign = s.honest.Reg(t, s.theirs, all, &iwarp.MROptions{QP: s.honest.QP})

	ctx := iwarptest.Context(t)
	l, err := s.dev.Listen(ctx, "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if s.conn, err = dial(l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.conn.Close() })
	req := request
	req.Enhanced = &mpa.Enhanced{PeerToPeer: true, RTR: mpa.RTRWrite, IRD: 4, ORD: 4}
	put(t, s.conn, frame(t, req))
	accepted := make(chan error, 1)
	go func() {
		r, err := l.Accept(ctx)
		if err == nil {
			err = r.Accept(ctx, s.victim.QP, depth)
		}
		accepted <- err
	}()
	reply := make([]byte, 24)
	if _, err := io.ReadFull(s.conn, reply); err != nil {
		t.Fatal(err)
	}
	put(t, s.conn, taggedFrame(0, 1, 0, nil))
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	return s
}

func fill(b []byte, x byte) {
	for i := range b {
		b[i] = x
	}
}

// attack sends b and reads until the device has closed the connection. It returns
// what the device said. Writing may fail when it closes early.
func (s *siege) attack(b []byte) []byte {
	s.Helper()
	go func() { _, _ = s.conn.Write(b) }()
	_ = s.conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
	said, err := io.ReadAll(s.conn)
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		s.Fatalf("still connected 20 s after the attack; QP %s", s.victim.QP.State())
	}
	return said
}

// judge is the same for every attack: the honest connection goes on, and nothing
// outside of the window has changed or left.
func (s *siege) judge(said []byte) {
	s.Helper()
	if bytes.Contains(said, bytes.Repeat([]byte{secretByte}, 8)) {
		s.Error("memory that was not offered was sent to the attacker")
	}
	for name, b := range map[string][]byte{
		"before the window":         s.mine[:guardSize],
		"behind the window":         s.mine[guardSize+windowSize:],
		"of the honest peer":        s.theirs,
		"without remote rights":     s.other[:windowSize],
		"that may only be read":     s.other[2*windowSize:],
		"for Writes, not attacked ": s.other[windowSize : 2*windowSize],
	} {
		if i := bytes.IndexFunc(b, func(r rune) bool { return r != secretByte }); i >= 0 {
			s.Errorf("memory %s was changed at %d", name, i)
		}
	}
	s.honest.Recv(s, 1, 16)
	s.peer.Post(s, &iwarp.SendWR{ID: 2, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("still here")})
	if wc := s.honest.WaitOK(s, 1); wc.ByteLen != 10 {
		s.Errorf("the honest connection received %d bytes, want 10", wc.ByteLen)
	}
	s.peer.WaitOK(s, 2)
}

// ended checks that the victim's stream ended with the Terminate layer/type/code,
// which the device counts, and that the attacker was told.
func (s *siege) ended(said []byte, layer, typ, code uint8) {
	s.Helper()
	_ = s.victim.WaitDone(s)
	if n := s.dev.Stats().Terminates[iwarp.TerminateKey{Sent: true, Layer: layer, Type: typ, Code: code}]; n != 1 {
		s.Errorf("%d Terminates %d/%d/%02x were counted, want 1; QP: %v", n, layer, typ, code, s.victim.QP.Err())
	}
	if !bytes.Contains(said, []byte{layer<<4 | typ, code}) {
		s.Errorf("the attacker was not told %d/%d/%02x: %x", layer, typ, code, said)
	}
}

// onTransports runs an attack in memory, with a clock of its own, and over TCP.
func onTransports(t *testing.T, f func(s *siege)) {
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := iwarptest.NewNetwork()
			f(besiege(t, n.Config(), func(addr string) (net.Conn, error) { return n.Dial(t.Context(), addr) }))
		})
	})
	t.Run("tcp", func(t *testing.T) {
		iwarptest.CheckGoroutines(t)
		f(besiege(t, iwarp.Config{}, func(addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(context.Background(), "tcp", addr)
		}))
	})
}

// TestWireAttacks: what a hostile peer can send on its connection. Each attack costs it its stream, with
// the right code, and affects no other peer.
//
// covers SEC-01, SEC-02, SEC-03, SEC-04, SEC-05, SEC-07, SEC-21
func TestWireAttacks(t *testing.T) {
	const base = 1 << 20
	type end struct{ layer, typ, code uint8 }
	short := func(n int) func(*siege) []byte {
		return func(*siege) []byte { return attackFrame(make([]byte, n)) }
	}
	write := func(r func(*siege) iwarp.MR, to uint64, n int) func(*siege) []byte {
		return func(s *siege) []byte { return writeFrame(r(s).STag(), to, n) }
	}
	read := func(r func(*siege) iwarp.MR, to uint64, n uint32) func(*siege) []byte {
		return func(s *siege) []byte { return readFrame(1, r(s).STag(), to, n) }
	}
	raw := func(b []byte) func(*siege) []byte { return func(*siege) []byte { return b } }
	window := func(s *siege) iwarp.MR { return s.window }
	private := func(s *siege) iwarp.MR { return s.private }
	writeOnly := func(s *siege) iwarp.MR { return s.write }
	readOnly := func(s *siege) iwarp.MR { return s.read }
	foreign := func(s *siege) iwarp.MR { return s.foreign }
	inv := func(r func(*siege) iwarp.MR) func(*siege) []byte {
		return func(s *siege) []byte {
			s.victim.Recv(s, 77, 64)
			return untaggedFrame(ddp.Untagged{Last: true, MSN: 1, ULPWord: uint32(r(s).STag())}, 4, nil)
		}
	}
	for _, c := range []struct {
		name string
		do   func(s *siege) []byte
		want end
	}{
		{"write to another stream's STag", write(foreign, 0, 8), end{1, 1, 2}},
		{"write before the window", write(window, base-1, 1), end{1, 1, 1}},
		{"write over the window's start", write(window, base-1, 2), end{1, 1, 1}},
		{"write over the window's end", write(window, base+windowSize-1, 2), end{1, 1, 1}},
		{"write behind the window", write(window, base+windowSize, 1), end{1, 1, 1}},
		{"write whose TO wraps", write(window, 1<<64-1, 2), end{1, 1, 3}},
		{"write up to 2^64", write(window, 1<<64-2, 2), end{1, 1, 1}},
		{"write to memory without remote rights", write(private, base, 8), end{1, 1, 0}},
		{"write to memory for Reads", write(readOnly, base, 8), end{1, 1, 0}},
		{"write to STag 0", raw(writeFrame(0, 0, 8)), end{1, 1, 0}},
		{"write of which one segment is bad", func(s *siege) []byte {
			h := ddp.Tagged{ULP: 0x40, STag: s.window.STag(), TO: base + windowSize - 8}
			u := make([]byte, ddp.TaggedSize, 64)
			h.Put(u)
			first := attackFrame(append(u, bytes.Repeat([]byte{windowByte}, 8)...))
			return append(first, writeFrame(s.window.STag(), base+windowSize, 8)...)
		}, end{1, 1, 1}},
		{"read of memory for Writes", read(writeOnly, base, 8), end{0, 1, 2}},
		{"read of memory without remote rights", read(private, base, 8), end{0, 1, 2}},
		{"read of another stream's memory", read(foreign, 0, 8), end{0, 1, 3}},
		{"read of an unknown STag", raw(readFrame(1, 0x12345678, 0, 8)), end{0, 1, 0}},
		{"read over the window's end", read(window, base+windowSize-8, 16), end{0, 1, 1}},
		{"read before the window", read(window, base-8, 8), end{0, 1, 1}},
		{"read of 4 GiB", read(window, base, 1<<32-1), end{0, 1, 1}},
		{"read whose TO wraps", read(window, 1<<64-4, 8), end{0, 1, 4}},
		{"send without a receive", raw(sendFrame(1, 0, true, 8)), end{1, 2, 2}},
		{"send of a later MSN", raw(sendFrame(2, 0, true, 8)), end{1, 2, 3}},
		{"send of MSN 0", raw(sendFrame(0, 0, true, 8)), end{1, 2, 3}},
		{"send of MSN 2^32-1", raw(sendFrame(1<<32-1, 0, true, 8)), end{1, 2, 3}},
		{"send from beyond the receive", func(s *siege) []byte {
			s.victim.Recv(s, 77, 64)
			return sendFrame(1, 64, true, 8)
		}, end{1, 2, 4}},
		{"send whose last segment comes twice", func(s *siege) []byte {
			s.victim.Recv(s, 77, 64)
			s.victim.Recv(s, 78, 64)
			return slices.Concat(sendFrame(1, 0, false, 8), sendFrame(1, 8, true, 8), sendFrame(1, 16, true, 8))
		}, end{1, 2, 3}},
		{"send twice", func(s *siege) []byte {
			s.victim.Recv(s, 77, 64)
			s.victim.Recv(s, 78, 64)
			return append(sendFrame(1, 0, true, 8), sendFrame(1, 0, true, 8)...)
		}, end{1, 2, 3}},
		{"send from the middle", func(s *siege) []byte {
			s.victim.Recv(s, 77, 64)
			return sendFrame(1, 8, true, 8)
		}, end{1, 2, 4}},
		{"send longer than the receive", func(s *siege) []byte {
			s.victim.Recv(s, 77, 64)
			return sendFrame(1, 0, true, 65)
		}, end{1, 2, 5}},
		{"send with another stream's STag to invalidate", inv(foreign), end{0, 1, 9}},
		{"send with a private region's STag to invalidate", inv(private), end{0, 1, 9}},
		{"send on queue 4", raw(untaggedFrame(ddp.Untagged{Last: true, QN: 4, MSN: 1}, 3, nil)), end{1, 2, 1}},
		{"send on queue 2^32-1", raw(untaggedFrame(ddp.Untagged{Last: true, QN: 1<<32 - 1, MSN: 1}, 3, nil)), end{1, 2, 1}},
		{"send on the queue of atomic responses", raw(untaggedFrame(ddp.Untagged{Last: true, QN: 3, MSN: 1}, 3, nil)), end{1, 2, 1}},
		{"opcode 8, extensions off", raw(untaggedFrame(ddp.Untagged{Last: true, MSN: 1}, 8, make([]byte, 8))), end{0, 2, 6}},
		{"opcode 9, extensions off", raw(untaggedFrame(ddp.Untagged{Last: true, MSN: 1}, 9, make([]byte, 8))), end{0, 2, 6}},
		{"opcode 10, extensions off", raw(untaggedFrame(ddp.Untagged{Last: true, QN: 1, MSN: 1}, 10, make([]byte, 52))), end{0, 2, 6}},
		{"opcode 11, extensions off", raw(untaggedFrame(ddp.Untagged{Last: true, QN: 3, MSN: 1}, 11, make([]byte, 12))), end{0, 2, 6}},
		{"opcode 12", raw(untaggedFrame(ddp.Untagged{Last: true, MSN: 1}, 12, nil)), end{0, 2, 6}},
		{"opcode 13", raw(untaggedFrame(ddp.Untagged{Last: true, MSN: 1}, 13, nil)), end{0, 2, 6}},
		{"opcode 14", raw(untaggedFrame(ddp.Untagged{Last: true, MSN: 1}, 14, nil)), end{0, 2, 6}},
		{"opcode 15", raw(untaggedFrame(ddp.Untagged{Last: true, MSN: 1}, 15, nil)), end{0, 2, 6}},
		{"read response to no read", func(s *siege) []byte { return taggedFrame(2, s.window.STag(), base, make([]byte, 8)) }, end{0, 2, 6}},
		{"ULPDU of 0 octets", short(0), end{0, 2, 0xff}},
		{"ULPDU of 1 octet", short(1), end{0, 2, 0xff}},
		{"ULPDU one octet short of a tagged header", raw(attackFrame(append([]byte{0xc1, 0x40}, make([]byte, 11)...))), end{0, 2, 0xff}},
		{"ULPDU one octet short of an untagged header", raw(attackFrame(append([]byte{0x41, 0x43}, make([]byte, 15)...))), end{0, 2, 0xff}},
		{"CRC wrong", func(s *siege) []byte {
			b := writeFrame(s.window.STag(), base, 8)
			b[len(b)-1] ^= 1
			return b
		}, end{2, 0, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			onTransports(t, func(s *siege) {
				said := s.attack(c.do(s))
				s.ended(said, c.want.layer, c.want.typ, c.want.code)
				s.judge(said)
				if got := s.mine[guardSize : guardSize+windowSize]; bytes.Contains(got, []byte{0xee}) {
					s.Error("the window was changed by a refused attack")
				}
			})
		})
	}
}

// TestReadFlood: more Read Requests than IRD end the stream; what is held
// meanwhile is bounded by IRD, not by the attacker.
//
// covers SEC-12
func TestReadFlood(t *testing.T) {
	onTransports(t, func(s *siege) {
		var b []byte
		for msn := uint32(1); msn <= 1000; msn++ {
			b = append(b, readFrame(msn, s.window.STag(), 1<<20, windowSize)...)
		}
		// All at once: the device cannot have answered the first before it sees the
		// fifth, unless it is very quick; then it answers them all.
		said := s.attack(append(b, readFrame(7, s.window.STag(), 1<<20, 8)...))
		_ = s.victim.WaitDone(s)
		s.judge(said)
		if len(said) > 1100*(windowSize+100) {
			s.Errorf("the device sent %d bytes for 1000 Reads of %d", len(said), windowSize)
		}
	})
}

// TestStaleSTag: an STag that has been invalidated, or whose region is gone, does
// not come to life again while others are registered in its place.
//
// covers SEC-06, SEC-08
func TestStaleSTag(t *testing.T) {
	onTransports(t, func(s *siege) {
		buf := make([]byte, 64)
		old := s.victim.Reg(s, buf, iwarp.LocalWrite|iwarp.RemoteWrite, &iwarp.MROptions{QP: s.victim.QP})
		stale := old.STag()
		if err := old.Dereg(); err != nil {
			s.Fatal(err)
		}
		n := 100_000
		if testing.Short() {
			n = 1000
		}
		for range n {
			m := s.victim.Reg(s, buf, iwarp.LocalWrite|iwarp.RemoteWrite, &iwarp.MROptions{QP: s.victim.QP})
			if m.STag() == stale {
				s.Fatal("a stale STag was given out again")
			}
			if err := m.Dereg(); err != nil {
				s.Fatal(err)
			}
		}
		live := s.victim.Reg(s, buf, iwarp.LocalWrite|iwarp.RemoteWrite, &iwarp.MROptions{QP: s.victim.QP})
		said := s.attack(writeFrame(stale, 0, 8))
		s.ended(said, 1, 1, 0)
		if !bytes.Equal(buf, make([]byte, 64)) {
			s.Error("a stale STag hit a live region")
		}
		if err := live.Dereg(); err != nil {
			s.Error(err)
		}
		s.judge(said)
	})
}

// TestGuessedSTag: STags that were never given out, near live ones and far, are
// refused; the first one ends the stream.
//
// covers SEC-08
func TestGuessedSTag(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 24 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			onTransports(t, func(s *siege) {
				live := map[iwarp.STag]bool{}
				for _, m := range []iwarp.MR{s.window, s.private, s.write, s.read, s.foreign} {
					live[m.STag()] = true
				}
				guess := s.window.STag() + iwarp.STag(1+i/2)
				switch i % 3 {
				case 1:
					guess = s.window.STag() - iwarp.STag(1+i/2)
				case 2:
					guess = iwarp.STag(rnd.Uint32())
				}
				if live[guess] {
					s.Skip("the guess is right")
				}
				var b []byte
				for range 100 { // the first one ends it: the others are not even looked at
					b = append(b, writeFrame(guess, 1<<20, 8)...)
				}
				said := s.attack(b)
				s.ended(said, 1, 1, 0)
				s.judge(said)
			})
		})
	}
}

// TestEndlessFPDU: a length with nothing after it costs the memory of one FPDU and lasts as long as the
// connection does, no longer.
//
// covers SEC-17
func TestEndlessFPDU(t *testing.T) {
	onTransports(t, func(s *siege) {
		put(s.T, s.conn, []byte{0xff, 0xff, 0xc1})
		_ = s.conn.(interface{ CloseWrite() error }).CloseWrite()
		_ = s.conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
		said, _ := io.ReadAll(s.conn)
		if err := s.victim.WaitDone(s); err == nil {
			s.Error("a stream that ends inside an FPDU ended gracefully")
		}
		s.judge(said)
	})
}

// TestTerminatesOfAnyCode: a peer chooses what its Terminates say. The device keeps
// count of them, and what it keeps stays small.
//
// covers SEC-23
func TestTerminatesOfAnyCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := iwarptest.NewNetwork()
		dev := iwarptest.Open(t, n.Config())
		l, err := dev.Listen(t.Context(), "127.0.0.1:0", nil)
		if err != nil {
			t.Fatal(err)
		}
		const storms = 1000
		for i := range storms {
			e := iwarptest.NewEnd(t, dev, iwarp.QPInitAttr{})
			c := rawDial(t, n, l)
			put(t, c, frame(t, mpa.Frame{CRC: true, Rev: mpa.Rev2, Enhanced: &mpa.Enhanced{}}))
			r, err := l.Accept(t.Context())
			if err == nil {
				err = r.Accept(t.Context(), e.QP, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			put(t, c, untaggedFrame(ddp.Untagged{Last: true, QN: 2, MSN: 1}, 7, []byte{byte(i >> 2), byte(i), 0, 0}))
			if err := e.WaitDone(t); err == nil {
				t.Fatal("a Terminate ended the stream gracefully")
			}
			_ = c.Close()
			if err := e.QP.Destroy(); err != nil {
				t.Fatal(err)
			}
		}
		var total uint64
		s := dev.Stats()
		for _, k := range s.Terminates {
			total += k
		}
		if total != storms || len(s.Terminates) > 200 {
			t.Errorf("%d Terminates under %d keys are remembered of %d", total, len(s.Terminates), storms)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}
