package psk

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
)

var update = flag.Bool("update", false, "write testdata anew")

const (
	keyA = "a key of more than thirty-two characters"
	keyB = "another key of more than thirty-two characters"
)

var (
	headAsked = Head{0x50, 2, 0x80, 16, 0xc0, 16}
	headSaid  = Head{0x50, 2, 0x80, 16, 0x80, 16}
)

func key(t testing.TB, lines ...string) *Key {
	t.Helper()
	k, err := Parse([]byte(strings.Join(lines, "\n") + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// talk is a whole start-up between two keys, bent by what is not nil.
type talk struct {
	client, daemon           *Key
	request                  func([]byte) []byte // private data on its way
	reply                    func([]byte) []byte
	proof                    func([]byte) []byte
	sawRequest, sawReply     *Head // by the daemon, by the client
	clientBlind, daemonBlind bool
}

var errNoPeer = errors.New("the daemon turned the request away")

func (x talk) run() (atClient, atDaemon error) {
	d := x.client.Dial([]byte("hello, daemon"), !x.clientBlind)
	asked := d.PrivateData()
	if x.request != nil {
		asked = x.request(bytes.Clone(asked))
	}
	c, err := x.daemon.Judge(asked)
	if err != nil {
		return errNoPeer, err
	}
	got, sent := headAsked, headSaid
	if x.sawRequest != nil {
		got = *x.sawRequest
	}
	if x.daemonBlind {
		got, sent = Head{}, Head{}
	}
	said := c.Answer([]byte("hello, client"), got, sent)
	if x.reply != nil {
		said = x.reply(bytes.Clone(said))
	}
	mine, theirs := headAsked, headSaid
	if x.sawReply != nil {
		theirs = *x.sawReply
	}
	if x.clientBlind {
		mine, theirs = Head{}, Head{}
	}
	g, proof, err := d.Finish(mine, theirs, said)
	if err != nil {
		return err, nil
	}
	if string(g) != "hello, client" || string(c.Greeting()) != "hello, daemon" {
		return fmt.Errorf("greetings %q, %q", g, c.Greeting()), nil
	}
	p := proof[:]
	if x.proof != nil {
		p = x.proof(p)
	}
	return nil, c.Check(p)
}

func flip(at int) func([]byte) []byte {
	return func(b []byte) []byte {
		if at < 0 {
			b[len(b)+at] ^= 1
		} else {
			b[at] ^= 1
		}
		return b
	}
}

func TestBothProve(t *testing.T) {
	a, b := key(t, keyA), key(t, keyB)
	for name, x := range map[string]talk{
		"one key":                    {client: a, daemon: a},
		"daemon also takes the old":  {client: a, daemon: key(t, keyB, keyA)},
		"client dials by its first":  {client: key(t, keyB, keyA), daemon: b},
		"client's device is silent":  {client: a, daemon: a, clientBlind: true},
		"daemon's device is silent":  {client: a, daemon: a, daemonBlind: true},
		"neither knows of heads":     {client: a, daemon: a, clientBlind: true, daemonBlind: true},
		"line ends are no key":       {client: a, daemon: mustParse(t, keyA+"\r\n")},
		"without a new line its end": {client: a, daemon: mustParse(t, keyA)},
	} {
		if c, d := x.run(); c != nil || d != nil {
			t.Errorf("%s: client says %v, daemon %v", name, c, d)
		}
	}
}

func mustParse(t *testing.T, s string) *Key {
	k, err := Parse([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestNothingCanBeAltered: whatever is changed on the way is noticed, by the client
// where the Reply shows it, else by the daemon.
func TestNothingCanBeAltered(t *testing.T) {
	a := key(t, keyA)
	other := func(h Head, at int, bit byte) *Head { h[at] ^= bit; return &h }
	for name, x := range map[string]talk{
		"daemon has another key":       {daemon: key(t, keyB)},
		"client dials by another":      {client: key(t, keyB, keyA)},
		"greeting of the Request":      {request: flip(0)},
		"revision of the proof":        {request: flip(-RequestLen + 3)},
		"scope of the Request":         {request: flip(-RequestLen + 4)},
		"nonce of the Request":         {request: flip(-RequestLen + 5)},
		"hint":                         {request: flip(-1)},
		"Request without its block":    {request: func(b []byte) []byte { return b[:len(b)-RequestLen] }},
		"greeting of the Reply":        {reply: flip(0)},
		"scope of the Reply":           {reply: flip(-ReplyLen + 4)},
		"nonce of the Reply":           {reply: flip(-ReplyLen + 5)},
		"proof of the daemon":          {reply: flip(-1)},
		"Reply without its block":      {reply: func(b []byte) []byte { return b[:len(b)-ReplyLen] }},
		"scope beyond the client's":    {clientBlind: true, reply: flip(-ReplyLen + 4)},
		"CRC of the Request":           {sawRequest: other(headAsked, 0, 0x40)},
		"markers of the Request":       {sawRequest: other(headAsked, 0, 0x80)},
		"revision of the Request":      {sawRequest: other(headAsked, 1, 3)},
		"IRD of the Request":           {sawRequest: other(headAsked, 3, 1)},
		"ORD of the Request":           {sawRequest: other(headAsked, 5, 1)},
		"model of the Request":         {sawRequest: other(headAsked, 2, 0x80)},
		"CRC of the Reply":             {sawReply: other(headSaid, 0, 0x40)},
		"IRD of the Reply":             {sawReply: other(headSaid, 3, 1)},
		"proof of the client":          {proof: flip(31)},
		"no proof of the client's":     {proof: func([]byte) []byte { return nil }},
		"the daemon's proof, back":     {},
		"Request where a Reply is due": {reply: func(b []byte) []byte { return a.Dial([]byte("hello, client"), true).PrivateData() }},
	} {
		if x.client == nil {
			x.client = a
		}
		if x.daemon == nil {
			x.daemon = a
		}
		if name == "the daemon's proof, back" {
			x.reply = func(b []byte) []byte {
				theirs := bytes.Clone(b[len(b)-ProofLen:])
				x.proof = func([]byte) []byte { return theirs }
				return b
			}
			d := x.client.Dial([]byte("g"), true)
			c, err := a.Judge(d.PrivateData())
			if err != nil {
				t.Fatal(err)
			}
			said := c.Answer([]byte("g"), headAsked, headSaid)
			if err := c.Check(said[len(said)-ProofLen:]); !errors.Is(err, ErrWrong) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if c, d := x.run(); c == nil && d == nil {
			t.Errorf("%s: nobody noticed", name)
		}
	}
}

// TestReplay: what one connection has said is of no use to another.
func TestReplay(t *testing.T) {
	a := key(t, keyA)
	d := a.Dial([]byte("g"), true)
	c1, err := a.Judge(d.PrivateData())
	if err != nil {
		t.Fatal(err)
	}
	_, proof, err := d.Finish(headAsked, headSaid, c1.Answer([]byte("g"), headAsked, headSaid))
	if err != nil {
		t.Fatal(err)
	}
	c2, err := a.Judge(d.PrivateData()) // the hint can be replayed
	if err != nil {
		t.Fatal(err)
	}
	said := c2.Answer([]byte("g"), headAsked, headSaid)
	if err := c2.Check(proof[:]); !errors.Is(err, ErrWrong) {
		t.Errorf("a recorded proof: %v, want ErrWrong", err)
	}
	if err := c1.Check(proof[:]); err != nil {
		t.Errorf("the proof where it belongs: %v", err)
	}
	if err := c1.Check(proof[:]); !errors.Is(err, ErrWrong) {
		t.Errorf("the same proof again: %v, want ErrWrong", err)
	}
	// A recorded Reply to another Request.
	if _, _, err := a.Dial([]byte("g"), true).Finish(headAsked, headSaid, said); !errors.Is(err, ErrWrong) {
		t.Errorf("a recorded Reply: %v, want ErrWrong", err)
	}
}

// TestReflection: a client that is given its own words back has no daemon.
func TestReflection(t *testing.T) {
	a := key(t, keyA)
	d := a.Dial([]byte("g"), true)
	if _, _, err := d.Finish(headAsked, headAsked, d.PrivateData()); !errors.Is(err, ErrMissing) {
		t.Errorf("its own Request as Reply: %v, want ErrMissing", err)
	}
	c, err := a.Judge(d.PrivateData())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Judge(c.Answer([]byte("g"), headAsked, headSaid)); !errors.Is(err, ErrMissing) {
		t.Errorf("a Reply as Request: %v, want ErrMissing", err)
	}
}

// TestLengths: a greeting of the job protocol has room for just these blocks, and the
// kernel's siw for both together.
func TestLengths(t *testing.T) {
	if RequestLen != job.AskLen || ReplyLen != job.AnswerLen || ProofLen != job.ProofLen {
		t.Errorf("blocks of %d and %d bytes, proofs of %d; the job protocol has %d, %d and %d", RequestLen, ReplyLen, ProofLen, job.AskLen, job.AnswerLen, job.ProofLen)
	}
	if n := job.GreetingLen + ReplyLen; n > 252-4 {
		t.Errorf("%d bytes of private data: siw takes 248 beside the enhanced block", n)
	}
}

// TestVectors holds the bytes still: another implementation, or a later one of
// ours, can be held against them.
func TestVectors(t *testing.T) {
	const file = "testdata/vectors.txt"
	var out strings.Builder
	for _, v := range []struct {
		key            string
		heads, blind   bool
		request, reply Head
	}{
		{key: keyA, heads: true, request: headAsked, reply: headSaid},
		{key: keyB, heads: true, blind: true, request: headAsked, reply: headSaid},
		{key: strings.Repeat("k", 64), heads: false, request: headAsked, reply: headSaid},
	} {
		k := key(t, v.key)
		var nc, nd [NonceLen]byte
		for i := range nc {
			nc[i], nd[i] = byte(i), byte(0x80+i)
		}
		d := k.dial([]byte("RDCC\x05\x00client's boot id"), v.heads, nc)
		c, err := k.Judge(d.PrivateData())
		if err != nil {
			t.Fatal(err)
		}
		got, sent := v.request, v.reply
		if v.blind {
			got, sent = Head{}, Head{}
		}
		said := c.answer([]byte("RDCC\x05\x00daemon's boot id"), got, sent, nd)
		_, proof, err := d.Finish(v.request, v.reply, said)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "key %s\nhint-key %x\nclient-key %x\ndaemon-key %x\nrequest-head %x\nreply-head %x\nrequest %x\nreply %x\nproof %x\n\n",
			v.key, d.secret.hint, d.secret.client, d.secret.daemon, got, sent, d.PrivateData(), said, proof)
	}
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// BenchmarkStartUp is all that both sides compute for one connection.
func BenchmarkStartUp(b *testing.B) {
	x := talk{client: key(b, keyA), daemon: key(b, keyA)}
	b.ReportAllocs()
	for b.Loop() {
		if c, d := x.run(); c != nil || d != nil {
			b.Fatal(c, d)
		}
	}
}

// FuzzPrivateData: what a peer says as private data never makes a peer of it, nor a
// panic.
func FuzzPrivateData(f *testing.F) {
	k := key(f, keyA, keyB)
	d := k.Dial([]byte("greeting"), true)
	f.Add(d.PrivateData())
	f.Add([]byte(magicRequest))
	f.Add(bytes.Repeat([]byte(magicReply), 40))
	for _, h := range []string{"50534b81", "50534b01"} {
		b, _ := hex.DecodeString(h)
		f.Add(append(make([]byte, 10), append(b, make([]byte, 65)...)...))
	}
	own := d.PrivateData()
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := k.Judge(data); err == nil && !bytes.Equal(data, own) && !bytes.Equal(data, f0(k, data)) {
			t.Errorf("a request that nobody made: %x", data)
		}
		if _, _, err := k.Dial([]byte("greeting"), true).Finish(headAsked, headSaid, data); err == nil {
			t.Errorf("a Reply that nobody made: %x", data)
		}
	})
}

// f0 is data with the hint that the key would give it: seeds of the corpus may have a
// right one.
func f0(k *Key, data []byte) []byte {
	said := data[:len(data)-hintLen]
	return append(bytes.Clone(said), k.all[0].hintOf(said)...)
}
