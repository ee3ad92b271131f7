package wireattacks

import (
	"bytes"
	"encoding/binary"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// submit sends a job whose numbers change has altered, and returns its answer.
func (r *raw) submit(id uint64, change func(m *job.Job, content []byte) []byte) (*job.Result, []byte) {
	r.t.Helper()
	k := r.credit()
	m, content := r.compile(k, id, "int x;\n")
	content = change(m, content)
	r.place(k.Slot, content)
	r.send(m, k.Slot.STag)
	return r.answer(id), r.sink[sinkSTag+uint32(id)]
}

// TestJobNumbers: lengths and offsets of every size are answered, without memory for
// them, and cost the connection nothing.
func TestJobNumbers(t *testing.T) {
	s := newScene(t, patient)
	memory := s.metrics()["process_resident_memory_bytes"]
	slots := s.attacker()
	defer slots.c.Close()
	r, id := slots, uint64(0)
	huge := []uint64{1 << 31, 1 << 32, 1 << 63, 1<<64 - 1, 1<<64 - 64}
	fields := map[string]func(m *job.Job, n uint64){
		"text":        func(m *job.Job, n uint64) { m.TextLen = n },
		"body":        func(m *job.Job, n uint64) { m.BodyLen = uint32(min(n, 1<<32-1)) },
		"offset":      func(m *job.Job, n uint64) { m.TextOff = uint32(min(n, 1<<32-1)) },
		"packed":      func(m *job.Job, n uint64) { m.Packed = n },
		"window":      func(m *job.Job, n uint64) { m.Source = job.Window{STag: 7, Len: n} },
		"all of them": func(m *job.Job, n uint64) { m.TextLen, m.BodyLen, m.TextOff, m.Packed = n, 1<<32-1, 1<<32-64, n },
	}
	body := func(b ...byte) func(m *job.Job, content []byte) []byte {
		return func(m *job.Job, content []byte) []byte {
			copy(content[:m.BodyLen], make([]byte, m.BodyLen))
			copy(content, b)
			return content
		}
	}
	bodies := map[string]func(m *job.Job, content []byte) []byte{
		"a NUL in a word":   func(m *job.Job, content []byte) []byte { content[4] = 0; return content },
		"2^31 words":        body(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80),
		"2^32-1 words":      body(0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff),
		"a word of 2^31":    body(0, 0, 0, 0x80),
		"a word of 2^32-1":  body(0xff, 0xff, 0xff, 0xff),
		"nothing but zeros": body(),
		"noise":             func(m *job.Job, content []byte) []byte { return bytes.Repeat([]byte{0x5a}, len(content)) },
		"a newline in an option": func(m *job.Job, _ []byte) []byte {
			b := job.Body{Argv0: "cc", Language: "cpp-output", Name: "a.c", Cwd: "/nowhere", Args: []string{"-O2\n-o/etc/passwd"},
				Outputs: []unit.Output{{Kind: unit.OutputObject, Name: "a.o"}}}
			body := b.Append(nil)
			m.BodyLen, m.TextOff = uint32(len(body)), uint32(job.TextOffset(len(body)))
			return append(append(body, make([]byte, int(m.TextOff)-len(body))...), "int x;\n"...)
		},
	}
	for name, set := range fields {
		for _, n := range huge {
			bodies[name] = func(m *job.Job, content []byte) []byte { set(m, n); return content }
			id++
			res, _ := r.submit(id, bodies[name])
			if res.Status != job.StatusRefused {
				t.Errorf("%s of %d: %+v, want it refused", name, n, res)
			}
			delete(bodies, name)
		}
	}
	for name, change := range bodies {
		id++
		if res, _ := r.submit(id, change); res.Status != job.StatusRefused || res.Cause != job.CauseMalformed && res.Cause != job.CausePolicy {
			t.Errorf("%s: %+v, want it refused", name, res)
		}
	}
	for name, change := range map[string]func(m *job.Job){
		"a body of 0":       func(m *job.Job) { m.BodyLen = 0 },
		"a window of 0":     func(m *job.Job) { m.Source = job.Window{STag: 7} },
		"an unknown tool":   func(m *job.Job) { m.Toolchain[3]++ },
		"a window of 2^64":  func(m *job.Job) { m.Source = job.Window{STag: 7, Len: 1<<64 - 1}; m.TextLen = 1<<64 - 65 },
		"a timeout, a text": func(m *job.Job) { m.Timeout = 1<<32 - 1; m.TextLen = 1<<64 - 1 },
	} {
		id++
		if res, _ := r.submit(id, func(m *job.Job, content []byte) []byte { change(m); return content }); res.Status != job.StatusRefused {
			t.Errorf("%s: %+v, want it refused", name, res)
		}
	}
	// A sink of nothing gets nothing.
	id++
	res, sink := r.submit(id, func(m *job.Job, content []byte) []byte { m.Sink.Len = 0; return content })
	if res.Status == job.StatusRan || !bytes.Equal(sink, make([]byte, len(sink))) {
		t.Errorf("a sink of 0 bytes: %+v", res)
	}
	// A time limit and a Fetch of any size are no length.
	id++
	res, sink = r.submit(id, func(m *job.Job, content []byte) []byte {
		m.Fetch, m.Timeout, m.Expect = 1<<64-1, 1<<32-1, 1<<32-1
		return content
	})
	if res.Status != job.StatusRan || len(file(res, sink)) == 0 {
		t.Errorf("the largest wishes: %+v", res)
	}
	if now := s.metrics()["process_resident_memory_bytes"]; now > memory+64<<20 {
		t.Errorf("%v bytes are resident, %v before", now, memory)
	}
	if n := s.metrics()[`rdistccd_refusals_total{cause="malformed"}`]; n < 30 {
		t.Errorf("%v refusals are counted as malformed", n)
	}
	r.c.Close()
	s.clean()
	s.compile()
}

// TestWrongDigest: a source whose digest differs from the job's is not compiled.
func TestWrongDigest(t *testing.T) {
	s := newScene(t, patient)
	r := s.attacker()
	res, sink := r.submit(1, func(m *job.Job, content []byte) []byte { m.Digest[0] = 1; return content })
	if res.Status != job.StatusFailed || res.Cause != job.CauseDigest || len(file(res, sink)) != 0 {
		t.Errorf("%+v", res)
	}
	n := 0.0
	for series, v := range s.metrics() {
		if strings.HasPrefix(series, "rdistccd_jobs_total{") && strings.Contains(series, `result="digest"`) {
			n += v
		}
	}
	if n != 1 {
		t.Errorf("%v jobs are counted so", n)
	}
	r.c.Close()
	s.clean()
	s.compile()
}

// zstdFrame is a frame (RFC 8878) that says it holds size bytes, and holds count blocks
// of 128 KiB of one byte.
func zstdFrame(size uint64, count int) []byte {
	b := []byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0} // a single segment, size of 8 bytes
	b = binary.LittleEndian.AppendUint64(b, size)
	if size == 0 {
		b = append(b[:4], 0x00, 0x70) // none; a window of 16 MiB
	}
	for i := range count {
		h := uint32(128<<10)<<3 | 1<<1
		if i == count-1 {
			h |= 1
		}
		b = append(b, byte(h), byte(h>>8), byte(h>>16), 'x')
	}
	return b
}

// TestCompressionBombs: what is packed is unpacked to the length that the job has and no
// further.
func TestCompressionBombs(t *testing.T) {
	s := newScene(t, patient)
	memory := s.metrics()["process_resident_memory_bytes"]
	r := s.attacker()
	id := uint64(0)
	const blocks = 260_000 // 1 MiB for 32 GiB
	for name, x := range map[string]struct {
		frame []byte
		text  uint64
	}{
		"says little":            {zstdFrame(4096, blocks), 4096},
		"says nothing":           {zstdFrame(0, blocks), 4096},
		"says what it holds":     {zstdFrame(blocks*128<<10, blocks), 4096},
		"says 100 GiB":           {zstdFrame(100<<30, blocks), 100 << 30},
		"says 2^64-1":            {zstdFrame(1<<64-1, blocks), 1<<64 - 1},
		"says 3 MiB, holds more": {zstdFrame(3<<20, blocks), 3 << 20},
	} {
		id++
		res, _ := r.submit(id, func(m *job.Job, _ []byte) []byte {
			m.Packed = uint64(len(x.frame))
			m.TextLen = x.text - uint64(m.TextOff)
			return x.frame
		})
		if res.Status == job.StatusRan || res.Cause != job.CauseDigest && res.Cause != job.CauseMalformed {
			t.Errorf("a frame that %s: %+v", name, res)
		}
	}
	if now := s.metrics()["process_resident_memory_bytes"]; now > memory+128<<20 {
		t.Errorf("%v bytes are resident, %v before", now, memory)
	}
	r.c.Close()
	s.clean()
	s.compile()
}

// TestForeignJobs: a job of another connection cannot be cancelled, its window neither
// read nor ended.
func TestForeignJobs(t *testing.T) {
	s := newScene(t, patient)
	r, releaser := s.attacker(), s.attacker()
	owner := connect(t, otherClient, s.d.Addr).open().hello("owner")
	long := manyFunctions(1500)
	k := owner.credit()
	m, content := owner.compile(k, 5, long)
	owner.place(k.Slot, content)
	owner.send(m, k.Slot.STag)
	unknown := s.metrics()[`rdistccd_cancels_total{job="unknown"}`]
	r.send(&job.Cancel{Seq: 1, Jobs: []uint64{5, 6, 1 << 63}}, 0)
	for {
		e := r.next()
		if a, ok := e.msg.(*job.Ack); ok && a.Of == job.KindCancel {
			break
		}
		if e.end != nil || e.said {
			t.Fatalf("no Ack of a Cancel: %+v", e)
		}
	}
	if n := s.metrics()[`rdistccd_cancels_total{job="unknown"}`]; n != unknown+3 {
		t.Errorf("%v cancels of unknown jobs were counted, want 3", n-unknown)
	}
	if res := owner.answer(5); res.Status != job.StatusRan || res.Exit != 0 {
		t.Errorf("the owner's job: %+v", res)
	}
	// Its result in a window.
	k = owner.credit()
	m, content = owner.compile(k, 6, "int secret = 0x5ec7e7;\n")
	m.Sink.Len, m.Fetch = 16, 1<<20
	owner.place(k.Slot, content)
	owner.send(m, k.Slot.STag)
	res := owner.answer(6)
	if res.Window.STag == 0 {
		t.Fatalf("%+v, want a window", res)
	}
	r.put(readRequest(1, res.Window.STag, res.Window.TO, uint32(res.Window.Len)))
	if e := r.until(); !e.said || e.term != [2]byte{0x01, 3} || len(r.resp) > 0 {
		t.Errorf("a Read of another's result: %+v, %d bytes", e, len(r.resp))
	}
	r.c.Close()
	r = releaser
	r.send(&job.Release{ID: 6}, res.Window.STag)
	if e := r.until(); !e.said || e.term != [2]byte{0x01, 9} {
		t.Errorf("a Release of another's result: %+v", e)
	}
	r.c.Close()
	// It is there still: whole, to its last byte, and not a byte more.
	owner.put(readRequest(1, res.Window.STag, res.Window.TO, uint32(res.Window.Len)))
	owner.next()
	if uint64(len(owner.resp)) != res.Window.Len || !bytes.HasPrefix(owner.resp, []byte("\x7fELF")) {
		t.Errorf("the owner read %d bytes of %d", len(owner.resp), res.Window.Len)
	}
	owner.put(readRequest(2, res.Window.STag, res.Window.TO, uint32(res.Window.Len)+1))
	if e := owner.until(); !e.said || e.term != [2]byte{0x01, 1} {
		t.Errorf("a Read past the result: %+v", e)
	}
	owner.c.Close()
	s.clean()
	s.compile()
}

// manyFunctions is a text that a compiler has to do with for a while.
func manyFunctions(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("int f")
		for ; i > 0; i /= 26 {
			b.WriteByte('a' + byte(i%26))
		}
		b.WriteString("_(int x) { return x * 3 + 1; }\n")
	}
	return b.String()
}

// TestNothingOfOthersOverLoopback: what one client sent is in no slot when that is
// another's, nor in a result of a text that the other one never wrote.
func TestNothingOfOthersOverLoopback(t *testing.T) {
	s := newScene(t, patient)
	const poison = "poison_of_the_first"
	text := strings.Repeat("int "+poison+";\n", 10_000)
	first := s.attacker()
	for id := range uint64(12) {
		if res, _ := first.do(id+1, text); res.Status != job.StatusRan {
			t.Fatalf("%+v", res)
		}
	}
	used := map[uint64]bool{}
	for ino, content := range s.slots() {
		used[ino] = bytes.Contains(content, []byte(poison))
	}
	first.c.Close()
	second := connect(t, otherClient, s.d.Addr).open().hello("second")
	for id := range uint64(12) {
		res, sink := second.submit(id+1, func(m *job.Job, content []byte) []byte {
			m.TextLen = 1000
			return content[:m.TextOff] // the text is what was there
		})
		if bytes.Contains(sink, []byte(poison)) {
			t.Fatalf("another client's text was compiled: %+v", res)
		}
		if res.Status != job.StatusRan {
			t.Errorf("%+v", res)
		}
		end := uint64(0)
		for _, f := range res.Files {
			end = max(end, f.Off+f.Len)
		}
		end = max(end, res.Stderr.Off+res.Stderr.Len, res.Stdout.Off+res.Stdout.Len)
		if i := bytes.IndexFunc(sink[end:], func(c rune) bool { return c != 0 }); i >= 0 {
			t.Errorf("behind the result there is %02x at %d", sink[end:][i], i)
		}
	}
	// Slots that are someone's now were wiped.
	wiped := 0
	for ino, content := range s.slots() {
		if used[ino] && !bytes.Contains(content, []byte(poison)) {
			wiped++
		}
	}
	if wiped == 0 && len(used) > 0 {
		t.Error("no slot that the first client used was wiped for the second one")
	}
	second.c.Close()
	s.clean()
	s.compile()
}

// TestJobFloodOverLoopback: one client sends job after job, refused ones by the
// thousand among them, as fast as it gets credits. Another one's jobs do not wait for
// all of them: between two of its answers only a few of the flood's are given.
func TestJobFloodOverLoopback(t *testing.T) {
	s := newScene(t, patient)
	honest := 20
	if full() {
		honest = 2000
	}
	r := s.attacker()
	var answered atomic.Int64
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		flood(r, &answered, stop)
	}()
	for answered.Load() < 50 {
		time.Sleep(time.Millisecond)
	}
	before := answered.Load()
	for range honest {
		s.compile()
	}
	if n := answered.Load() - before; n > int64(8*honest) {
		t.Errorf("%d of the flood's compiles were answered between %d of the honest client's", n, honest)
	}
	close(stop)
	r.c.Close()
	<-ended
	s.clean()
	s.compile()
}

// flood submits jobs without end; it counts those that were compiled.
func flood(r *raw, answered *atomic.Int64, stop chan struct{}) {
	id := uint64(0)
	for {
		select {
		case <-stop:
			return
		default:
		}
		_ = r.c.SetDeadline(time.Now().Add(patience))
		for len(r.credits) > 0 {
			k := r.credits[0]
			r.credits = r.credits[1:]
			id++
			m, content := r.compile(k, id, "int flood(int x) { return x + 1; }\n")
			if id%10 != 0 {
				m.Toolchain[0]++ // unknown
			}
			m.Sink.STag = sinkSTag
			r.sink = map[uint32][]byte{sinkSTag: make([]byte, 1<<20)}
			r.place(k.Slot, content)
			r.send(m, k.Slot.STag)
		}
		e := r.next()
		if e.end != nil || e.said {
			return
		}
		if m, ok := e.msg.(*job.Result); ok && m.Status == job.StatusRan {
			answered.Add(1)
		}
	}
}
