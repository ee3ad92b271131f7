package psk

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
)

// Lengths in bytes. A block follows the greeting, at the end of the private data of an MPA start-up frame.
const (
	NonceLen = 32
	ProofLen = sha256.Size
	hintLen  = 8

	RequestLen = 4 + 1 + NonceLen + hintLen
	ReplyLen   = 4 + 1 + NonceLen + ProofLen
)

// Prefixes of the blocks: their kind and revision.
const (
	magicRequest = "PSK\x01"
	magicReply   = "PSK\x81"
)

// Scopes: what a side knows of start-up besides the private data.
const (
	scopePrivate = 0 // nothing: a driver has handled it
	scopeHeads   = 1 // the heads of both frames
)

// Head is the part of a start-up frame before its private data (iwarp.FrameHead). It is all zero where the
// device does not expose it.
type Head = [6]byte

// Errors that callers distinguish. Each is one line for a person.
var (
	// ErrMissing means that the peer offers no proof.
	ErrMissing = errors.New("no proof of a pre-shared key")
	// ErrWrong means that the proof does not fit any key here, or that what start-up said was altered
	// on the way.
	ErrWrong = errors.New("wrong pre-shared key")
)

// Offered reports whether private data ends with a client's block of this package.
func Offered(data []byte) bool {
	return len(data) >= RequestLen && string(data[len(data)-RequestLen:][:4]) == magicRequest
}

// Answered reports whether private data ends with a daemon's block of this package.
func Answered(data []byte) bool {
	return len(data) >= ReplyLen && string(data[len(data)-ReplyLen:][:4]) == magicReply
}

// Dialing is a client's side of one start-up. It is used once.
type Dialing struct {
	secret  *secret
	scope   byte
	request []byte // private data of the Request
}

// Dial begins a Dialing for a client whose greeting is g. heads says that its device exposes the frames' heads
// (iwarp.DeviceAttr.StartUp).
func (k *Key) Dial(g []byte, heads bool) *Dialing {
	var nonce [NonceLen]byte
	rand.Read(nonce[:]) // never fails, according to its documentation
	return k.dial(g, heads, nonce)
}

func (k *Key) dial(g []byte, heads bool, nonce [NonceLen]byte) *Dialing {
	d := &Dialing{secret: &k.all[0], scope: scopePrivate}
	if heads {
		d.scope = scopeHeads
	}
	b := append(bytes.Clone(g), magicRequest...)
	b = append(append(b, d.scope), nonce[:]...)
	d.request = append(b, d.secret.hintOf(b)...)
	return d
}

// PrivateData returns the private data of the Request: the greeting and the block.
func (d *Dialing) PrivateData() []byte { return d.request }

// Finish checks the private data of the daemon's Reply, and returns the greeting in it and the proof that the
// client must send first. request and reply are the heads of the frames, as sent and as received.
func (d *Dialing) Finish(request, reply Head, data []byte) (greeting []byte, proof [ProofLen]byte, err error) {
	if !Answered(data) {
		return nil, proof, ErrMissing
	}
	at := len(data) - ReplyLen
	scope := data[at+4]
	if scope > d.scope {
		return nil, proof, ErrWrong // a daemon uses the lesser one
	}
	said, mac := data[:len(data)-ProofLen], data[len(data)-ProofLen:]
	t := transcript(scope, request, reply, d.request, said)
	if !hmac.Equal(mac, sum(d.secret.daemon, t)) {
		return nil, proof, ErrWrong
	}
	copy(proof[:], sum(d.secret.client, append(t, mac...)))
	return data[:at:at], proof, nil
}

// Claim is a daemon's side of one start-up, with a client whose hint is correct.
type Claim struct {
	secret  *secret
	request []byte // the private data
	want    []byte // the client's proof; nil before Answer
}

// Judge examines the private data of a Request. The error is ErrMissing or ErrWrong.
func (k *Key) Judge(data []byte) (*Claim, error) {
	if !Offered(data) {
		return nil, ErrMissing
	}
	said, hint := data[:len(data)-hintLen], data[len(data)-hintLen:]
	for i := range k.all {
		if s := &k.all[i]; hmac.Equal(hint, s.hintOf(said)) {
			return &Claim{secret: s, request: bytes.Clone(data)}, nil
		}
	}
	return nil, ErrWrong
}

// Greeting returns what the client put before its block.
func (c *Claim) Greeting() []byte { return c.request[:len(c.request)-RequestLen] }

// Answer returns the private data of the Reply for a daemon whose greeting is g: that greeting and the proof.
// request and reply are the heads of the frames, as received and as they are sent. It is called once.
func (c *Claim) Answer(g []byte, request, reply Head) []byte {
	var nonce [NonceLen]byte
	rand.Read(nonce[:]) // never fails, according to its documentation
	return c.answer(g, request, reply, nonce)
}

func (c *Claim) answer(g []byte, request, reply Head, nonce [NonceLen]byte) []byte {
	scope := byte(scopePrivate)
	if request != (Head{}) && c.request[len(c.request)-RequestLen+4] >= scopeHeads {
		scope = scopeHeads
	}
	b := append(bytes.Clone(g), magicReply...)
	b = append(append(b, scope), nonce[:]...)
	t := transcript(scope, request, reply, c.request, b)
	mac := sum(c.secret.daemon, t)
	c.want = sum(c.secret.client, append(t, mac...))
	return append(b, mac...)
}

// Check verifies the client's proof, which must be its first message. It returns ErrWrong or nil, and succeeds
// at most once.
func (c *Claim) Check(proof []byte) error {
	want := c.want
	c.want = nil
	if want == nil || !hmac.Equal(proof, want) {
		return ErrWrong
	}
	return nil
}

// hintOf returns the hint for the data that precedes it.
func (s *secret) hintOf(said []byte) []byte { return sum(s.hint, said)[:hintLen] }

// transcript returns the data that proofs cover:
//
//	0       1              7            13    15
//	| scope | Request head | Reply head | len | private data of the Request | len | of the Reply, before the proof |
func transcript(scope byte, request, reply Head, asked, said []byte) []byte {
	if scope == scopePrivate {
		request, reply = Head{}, Head{}
	}
	b := make([]byte, 0, 1+2*len(request)+4+len(asked)+len(said)+ProofLen)
	b = append(b, scope)
	b = append(append(b, request[:]...), reply[:]...)
	b = append(binary.BigEndian.AppendUint16(b, uint16(len(asked))), asked...)
	return append(binary.BigEndian.AppendUint16(b, uint16(len(said))), said...)
}

func sum(key, text []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(text) // never fails, according to its documentation
	return h.Sum(nil)
}
