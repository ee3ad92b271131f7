package wireattacks

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// mark is what attacks write.
var mark = bytes.Repeat([]byte{0xee}, 64)

// TestTaggedAttacks: Writes and Read Requests for memory that was not granted.
func TestTaggedAttacks(t *testing.T) {
	s := newScene(t, patient)
	run := func(name, term string, attack func(r *raw)) {
		t.Run(name, func(t *testing.T) {
			s.T = t
			s.judged(s.attacker(), verdict{term: term}, attack)
		})
	}
	slot := func(r *raw) job.Window { return r.credits[0].Slot }

	// Another connection's, which goes on with its slot afterwards.
	victim := connect(t, otherClient, s.d.Addr).open().hello("victim")
	s.rest = s.settled()
	theirs := victim.credits[0].Slot
	run("write to another stream's STag", "1/1/02", func(r *raw) { r.put(write(theirs.STag, theirs.TO, mark)) })
	run("read of another stream's slot", "0/1/03", func(r *raw) { r.put(readRequest(1, theirs.STag, theirs.TO, 64)) })
	run("read of another stream's load board", "0/1/03", func(r *raw) {
		r.put(readRequest(1, victim.welcome.Board.STag, victim.welcome.Board.TO, 64))
	})
	run("invalidation of another stream's STag", "0/1/09", func(r *raw) { r.send(&job.Heartbeat{}, theirs.STag) })
	s.T, victim.t = t, t
	_ = victim.c.SetDeadline(time.Now().Add(patience))
	if res, sink := victim.do(1, "int honest(int x) { return x + 1; }\n"); !bytes.Equal(file(res, sink), s.object) {
		t.Errorf("the victim's job: %+v", res)
	}
	victim.c.Close()
	s.eventually("the victim's end", func() string {
		if n := s.level().qps; n != 1 {
			return fmt.Sprint(n, " QPs")
		}
		return ""
	})
	s.rest = s.settled()

	run("write over a slot's end", "1/1/01", func(r *raw) { w := slot(r); r.put(write(w.STag, w.TO+w.Len-1, mark[:2])) })
	run("write behind a slot", "1/1/01", func(r *raw) { w := slot(r); r.put(write(w.STag, w.TO+w.Len, mark)) })
	run("write before a slot", "1/1/03", func(r *raw) { w := slot(r); r.put(write(w.STag, w.TO-1, mark[:2])) })
	run("write whose TO wraps", "1/1/03", func(r *raw) { r.put(write(slot(r).STag, 1<<64-1, mark[:2])) })
	run("write to the load board", "1/1/00", func(r *raw) { r.put(write(r.welcome.Board.STag, r.welcome.Board.TO, mark)) })
	run("read of a slot", "0/1/02", func(r *raw) { w := slot(r); r.put(readRequest(1, w.STag, w.TO, 64)) })
	run("read of a slot that was returned", "0/1/00", func(r *raw) {
		w := slot(r)
		r.giveBack()
		r.put(readRequest(1, w.STag, w.TO, 64))
	})
	run("read over the load board's end", "0/1/01", func(r *raw) {
		r.put(readRequest(1, r.welcome.Board.STag, r.welcome.Board.TO, job.BoardLen+1))
	})
	run("write after the job", "1/1/00", func(r *raw) {
		k := r.credits[0]
		m, content := r.compile(k, 1, "int x;\n")
		m.Toolchain = unit.ToolchainID{} // refused, so that its slot stays as it is
		r.put(append(r.message(m, k.Slot.STag), write(k.Slot.STag, k.Slot.TO+uint64(len(content)), mark)...))
	})
}

// TestGuessedSTags: near live ones and at random; each costs a connection.
func TestGuessedSTags(t *testing.T) {
	s := newScene(t, patient)
	count := 60
	if full() {
		count = 10_000
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	for i := range count {
		// Of many addresses, as one would soon be kept off.
		r := connect(t, fmt.Sprintf("127.2.%d.2", i%200), s.d.Addr).open().hello("offender")
		live := r.credits[0].Slot.STag
		guess := rnd.Uint32()
		switch i % 3 {
		case 1:
			guess = live + 1 + rnd.Uint32N(4096)
		case 2:
			guess = live - 1 - rnd.Uint32N(4096)
		}
		for _, k := range r.credits {
			if k.Slot.STag == guess {
				guess++
			}
		}
		if i < 6 {
			s.judged(r, verdict{term: "1/1/00"}, func(r *raw) { r.put(write(guess, 0, mark)) })
			continue
		}
		r.put(write(guess, 0, mark))
		if e := r.until(); !e.said || e.term != [2]byte{0x11, 0} {
			t.Errorf("a write to %08x: %+v", guess, e)
		}
		r.c.Close()
		if i%100 == 0 {
			s.answerHeartbeats()
		}
	}
	s.compile()
	s.clean()
	for _, content := range s.slots() {
		if bytes.Contains(content, mark) {
			t.Error("a guess was placed")
		}
	}
}

// TestStaleSTagOverLoopback: an STag that was given back stays dead while its slot is
// granted again and again.
func TestStaleSTagOverLoopback(t *testing.T) {
	s := newScene(t, patient)
	count := 300
	if full() {
		count = 100_000
	}
	r := s.attacker()
	stale := r.credits[0].Slot
	r.giveBack()
	other := connect(t, otherClient, s.d.Addr).open().hello("other")
	indexes, keys := map[uint32]bool{}, map[uint32]bool{}
	for range count {
		_ = other.c.SetDeadline(time.Now().Add(patience))
		k := other.credit()
		if k.Slot.STag == stale.STag {
			t.Fatal("a stale STag was given out again")
		}
		indexes[k.Slot.STag>>8], keys[k.Slot.STag&0xff] = true, true
		other.send(&job.Return{Credit: k.ID}, k.Slot.STag)
		if len(indexes)%1000 == 0 {
			s.answerHeartbeats()
			s.hear(r)
		}
	}
	if len(indexes) < count-count/50 || len(keys) < min(count, 256)/3 {
		t.Errorf("%d slots had %d indexes and %d keys", count, len(indexes), len(keys))
	}
	_ = r.c.SetDeadline(time.Now().Add(patience))
	r.put(write(stale.STag, stale.TO, mark))
	if e := r.until(); !e.said || e.term != [2]byte{0x11, 0} {
		t.Errorf("a write to a stale STag: %+v", e)
	}
	r.c.Close()
	other.c.Close()
	s.compile()
	s.clean()
	for _, content := range s.slots() {
		if bytes.Contains(content, mark) {
			t.Error("a stale STag hit a slot")
		}
	}
}

// TestUntaggedAttacks: Sends and requests against the rules of queues and numbers.
func TestUntaggedAttacks(t *testing.T) {
	s := newScene(t, patient)
	for _, x := range []struct {
		name, term string
		attack     func(r *raw)
	}{
		{"an MSN repeated", "1/2/03", func(r *raw) {
			b := r.message(&job.Heartbeat{}, 0)
			r.put(b, b)
		}},
		{"an MSN skipped", "1/2/03", func(r *raw) { r.sends++; r.send(&job.Heartbeat{}, 0) }},
		{"MSN 0", "1/2/03", func(r *raw) { r.put(untagged(header{msn: 0}, mark)) }},
		{"MSN 2^32-1", "1/2/03", func(r *raw) { r.put(untagged(header{msn: 1<<32 - 1}, mark)) }},
		{"an MO in the middle", "1/2/04", func(r *raw) { r.put(untagged(header{msn: r.sends + 1, mo: 8}, mark)) }},
		{"an MO beyond the receive", "1/2/04", func(r *raw) { r.put(untagged(header{msn: r.sends + 1, mo: r.receive()}, mark)) }},
		{"a message longer than the receive", "1/2/05", func(r *raw) {
			r.put(untagged(header{msn: r.sends + 1}, make([]byte, r.receive()+1)))
		}},
		{"the last flag twice", "1/2/03", func(r *raw) {
			b := r.message(&job.Heartbeat{}, 0)
			r.put(b, untagged(header{msn: r.sends, mo: 5}, mark[:1]))
		}},
		{"queue 3", "1/2/01", func(r *raw) { r.put(untagged(header{qn: 3, msn: 1}, mark)) }},
		{"queue 4", "1/2/01", func(r *raw) { r.put(untagged(header{qn: 4, msn: 1}, mark)) }},
		{"queue 2^31", "1/2/01", func(r *raw) { r.put(untagged(header{qn: 1 << 31, msn: 1}, mark)) }},
		{"queue 2^32-1", "1/2/01", func(r *raw) { r.put(untagged(header{qn: 1<<32 - 1, msn: 1}, mark)) }},
		{"opcode 8", "0/2/06", opcode(8)}, {"opcode 9", "0/2/06", opcode(9)},
		{"opcode 10", "0/2/06", opcode(10)}, {"opcode 11", "0/2/06", opcode(11)},
		{"opcode 12", "0/2/06", opcode(12)}, {"opcode 13", "0/2/06", opcode(13)},
		{"opcode 14", "0/2/06", opcode(14)}, {"opcode 15", "0/2/06", opcode(15)},
		{"RDMAP version 0", "0/2/05", func(r *raw) { r.put(untagged(header{rdmap: opSend, msn: r.sends + 1}, mark)) }},
		{"RDMAP version 3", "0/2/05", func(r *raw) { r.put(untagged(header{rdmap: 0xc0 | opSend, msn: r.sends + 1}, mark)) }},
		{"DDP version 3, untagged", "1/2/06", func(r *raw) { r.put(untagged(header{ddp: ddpLast | 3, msn: r.sends + 1}, mark)) }},
		{"DDP version 2, tagged", "1/1/04", func(r *raw) { r.put(tagged(ddpTagged|ddpLast|2, rdmapV1, r.credits[0].Slot.STag, 0, mark)) }},
		{"a Read Response to no Read", "0/2/06", func(r *raw) {
			w := r.credits[0].Slot
			r.put(tagged(ddpTagged|ddpLast|ddpV1, rdmapV1|opReadResponse, w.STag, w.TO, mark))
		}},
		{"a ULPDU of 0 octets", "0/2/ff", func(r *raw) { r.put(fpdu(nil)) }},
		{"a ULPDU of 1 octet", "0/2/ff", func(r *raw) { r.put(fpdu([]byte{0xc1})) }},
		{"a tagged header less one octet", "0/2/ff", func(r *raw) { r.put(fpdu(append([]byte{0xc1, 0x40}, make([]byte, 11)...))) }},
		{"an untagged header less one octet", "0/2/ff", func(r *raw) { r.put(fpdu(append([]byte{0x41, 0x43}, make([]byte, 15)...))) }},
		{"a wrong CRC", "2/0/02", func(r *raw) {
			w := r.credits[0].Slot
			b := write(w.STag, w.TO, mark)
			b[len(b)-1] ^= 1
			r.put(b)
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			s.T = t
			s.judged(s.attacker(), verdict{term: x.term}, x.attack)
		})
	}
	s.T = t
	t.Run("a frame that never ends", func(t *testing.T) {
		s.T = t
		memory := s.metrics()["process_resident_memory_bytes"]
		var all []*raw
		for range 20 {
			r := s.attacker()
			r.put([]byte{0xff, 0xff, 0xc1})
			all = append(all, r)
		}
		if now := s.metrics()["process_resident_memory_bytes"]; now > memory+32<<20 {
			t.Errorf("%v bytes are resident, %v before 20 frames of 64 KiB", now, memory)
		}
		for _, r := range all {
			_ = r.c.CloseWrite()
			r.closed()
			r.c.Close()
		}
		s.clean()
		s.compile()
	})
}

func opcode(op byte) func(r *raw) {
	return func(r *raw) { r.put(untagged(header{rdmap: rdmapV1 | op, msn: r.sends + 1}, mark)) }
}

// TestFloods: more Reads than were agreed on, and more Sends than there are receives,
// from a peer that reads no answer: it is ended, and what it costs is bounded.
func TestFloods(t *testing.T) {
	s := newScene(t, patient)
	for name, flood := range map[string]func(r *raw) []byte{
		"reads": func(r *raw) (b []byte) {
			for msn := range uint32(20_000) {
				b = append(b, readRequest(msn+1, r.welcome.Board.STag, r.welcome.Board.TO, job.BoardLen)...)
			}
			return b
		},
		"sends": func(r *raw) (b []byte) {
			for i := range uint32(50_000) {
				b = append(b, r.message(&job.Heartbeat{Seq: i}, 0)...)
			}
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			s.T = t
			memory := s.metrics()["process_resident_memory_bytes"]
			r := s.attacker()
			_ = r.c.SetReadBuffer(4096)
			slots := s.slots()
			sent := make(chan struct{})
			go func() { defer close(sent); r.put(flood(r)) }()
			r.until()
			r.closed()
			r.c.Close()
			<-sent
			if now := s.metrics()["process_resident_memory_bytes"]; now > memory+64<<20 {
				t.Errorf("%v bytes are resident, %v before", now, memory)
			}
			s.unchanged(slots)
			m := s.metrics()
			ended := `rdistccd_connections_ended_total{cause="stream"}`
			if m[ended]+m[`rdistccd_connections_ended_total{cause="protocol"}`] == 0 {
				t.Error("the flood is not counted as what broke a rule")
			}
			s.clean()
			s.compile()
		})
	}
}

// TestFlippedBits: of a frame each bit in turn; none is accepted, nothing is placed.
func TestFlippedBits(t *testing.T) {
	s := newScene(t, patient)
	crc := s.metrics()[`iwarp_crc_errors_total{direction="received"}`]
	frame := write(0, 0, mark[:4])
	for bit := range 8 * len(frame) {
		r := s.attacker()
		slots := s.slots()
		w := r.credits[0].Slot
		b := write(w.STag, w.TO, mark[:4])
		b[bit/8] ^= 0x80 >> (bit % 8)
		r.put(b)
		if bit < 16 { // a longer frame's rest does not come
			_ = r.c.CloseWrite()
		}
		r.until()
		r.c.Close()
		s.unchanged(slots)
	}
	if now := s.metrics()[`iwarp_crc_errors_total{direction="received"}`]; now < crc+float64(8*len(frame)-16) {
		t.Errorf("%v CRC errors were counted, %v before %d flipped bits", now, crc, 8*len(frame))
	}
	s.clean()
	s.compile()
}

// TestStartupAttacks: start-ups that are none are closed without a word, and counted.
func TestStartupAttacks(t *testing.T) {
	s := newScene(t, patient)
	good := startup(requestKey, plainFlags, 2, greeting())
	long := func(n uint16) []byte {
		b := bytes.Clone(good[:18])
		return append(binary.BigEndian.AppendUint16(b, n), make([]byte, 64)...)
	}
	for name, b := range map[string][]byte{
		"a wrong key":           append([]byte("MPA ID Rex Frame"), good[16:]...),
		"another protocol":      []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"revision 0":            startup(requestKey, plainFlags, 0, greeting()),
		"revision 3":            startup(requestKey, plainFlags, 3, greeting()),
		"private data of 513":   long(513),
		"private data of 65535": long(65535),
		"a Reply first":         startup(replyKey, plainFlags, 2, greeting()),
		"a block cut short":     append(append([]byte(requestKey), plainFlags, 2, 0, 3), 0, 0, 0),
		"an FPDU behind it":     append(bytes.Clone(good), untagged(header{msn: 1}, mark)...),
	} {
		t.Run(name, func(t *testing.T) {
			s.T = t
			r := connect(t, offender, s.d.Addr)
			s.judged(r, verdict{metric: `iwarp_startups_refused_total{cause="malformed"}`}, func(r *raw) { r.put(b) })
		})
	}
	// Private data is the job protocol's: what is wrong there is answered.
	s.T = t
	g := job.Greeting{Version: job.Version + 94}
	for name, x := range map[string]struct {
		private []byte
		cause   job.Cause
		detail  string
	}{
		"none":            {nil, job.CauseMalformed, "no rdistcc"},
		"another's":       {[]byte("hello"), job.CauseMalformed, "no rdistcc"},
		"truncated":       {greeting()[:job.GreetingLen-1], job.CauseMalformed, ""},
		"oversized":       {append(greeting(), make([]byte, 400)...), job.CauseMalformed, ""},
		"twice":           {append(greeting(), greeting()...), job.CauseMalformed, ""},
		"unknown version": {g.Append(nil), job.CauseVersion, fmt.Sprintf("versions %d and %d, not %d", job.Oldest, job.Version, g.Version)},
	} {
		t.Run("private data: "+name, func(t *testing.T) {
			s.T = t
			series := fmt.Sprintf("rdistccd_refusals_total{cause=%q}", x.cause.String())
			counted := s.metrics()[series]
			r := connect(t, offender, s.d.Addr)
			r.put(startup(requestKey, plainFlags, 2, x.private))
			flags, private, err := r.reply()
			if err != nil || flags&rejected == 0 {
				t.Fatalf("flags %02x, %q, %v; want a rejection", flags, private, err)
			}
			j, err := job.ParseRejection(private)
			if err != nil || j.Cause != x.cause || !bytes.Contains([]byte(j.Detail), []byte(x.detail)) {
				t.Errorf("%+v, %v; want %v, %q", j, err, x.cause, x.detail)
			}
			r.c.Close()
			if now := s.metrics()[series]; now != counted+1 {
				t.Errorf("%s is %v, before %v", series, now, counted)
			}
			s.clean()
			s.compile()
		})
	}
}

// TestSlowloris: thousands of connections that dribble their Requests, from one address
// and from many, and an honest client that connects meanwhile.
func TestSlowloris(t *testing.T) {
	s := newScene(t, patient)
	count := min(10_000, descriptorsLeft()/3)
	good := startup(requestKey, plainFlags, 2, greeting())
	for name, hosts := range map[string]int{"one address": 1, "many addresses": 40} {
		t.Run(name, func(t *testing.T) {
			s.T = t
			turned := func() (n float64) {
				m := s.metrics()
				return m[`iwarp_startups_refused_total{cause="host"}`] + m[`iwarp_startups_refused_total{cause="places"}`]
			}
			before := turned()
			var conns []net.Conn
			for i := range count {
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i%hosts))}, Timeout: patience}
				c, err := d.Dial("tcp", s.d.Addr)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				_, _ = c.Write(good[:1+i%16]) // it may have been turned away
				conns = append(conns, c)
				if i%500 == 0 {
					s.answerHeartbeats()
				}
			}
			for range 3 {
				r := connect(t, otherClient, s.d.Addr).open().hello("honest too")
				if res, sink := r.do(1, "int honest(int x) { return x + 1; }\n"); !bytes.Equal(file(res, sink), s.object) {
					t.Errorf("the honest client's job: %+v", res)
				}
				r.c.Close()
			}
			if l := s.level(); l.halfOpen > 256 || l.descriptors > s.rest.descriptors+300 {
				t.Errorf("%+v meanwhile, at rest %+v", l, s.rest)
			}
			for _, c := range conns {
				_, _ = c.Write(good[17:18])
			}
			if now := turned(); now < before+float64(count)-2*256 {
				t.Errorf("%v connections were turned away of %d", now-before, count)
			}
			for _, c := range conns {
				c.Close()
			}
			s.clean()
			s.compile()
		})
	}
}
