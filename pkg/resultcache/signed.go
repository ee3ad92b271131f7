package resultcache

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// Layout of a signed entry:
//
//	0         8         40         72        76
//	| magic   | key     | sum      | head    | head ... | outputs, packed or not | signature | length of signature |
//
// The signature is for the sum that the entry would have without it: that of magic, key, head and outputs. The
// sum of the whole is the SHA-256 of that one and of everything behind the outputs.
const (
	magicSigned = "rdistcc\x02"
	// maxSigned bounds a signature with its length, in bytes. It brings the certificates of its host along.
	maxSigned  = 16 << 10
	signedTail = 4 // bytes of the length
	// usualSigned is how many bytes a signature usually has, with the certificate of `rdistcc certs`.
	usualSigned = 1 << 10
)

// Signed is what whoever has signed an entry says of it: the host that has made it, where several clients share what it keeps; in a
// shared store, the machine that has put it there.
type Signed struct {
	Sum       [sha256.Size]byte // over all of the entry
	Signature []byte            // as whoever made it, and whoever verifies it, has it
}

func (s *Signed) clone() *Signed {
	if s == nil {
		return nil
	}
	return &Signed{s.Sum, bytes.Clone(s.Signature)}
}

// ErrUnproven is wrapped by what Maker and Entry.Maker say of an entry without a signature that is accepted.
var ErrUnproven = errors.New("a result that no host of this farm has signed")

// AppendSigned appends to dst what is in front of r's Outputs in an entry that its host signs, and returns
// what is behind them. sign returns a signature for a sum over the entry.
func (r *Raw) AppendSigned(dst []byte, sign func(sum [sha256.Size]byte) ([]byte, error)) (front, tail []byte, err error) {
	at := len(dst)
	front, sum, err := r.appendFront(dst, magicSigned)
	if err != nil {
		return front, nil, err
	}
	tail, err = sign(sum)
	if err == nil && len(tail) > maxSigned-signedTail {
		err = fmt.Errorf("a signature of %d bytes: too long to keep", len(tail))
	}
	if err != nil {
		return front[:at], nil, err
	}
	tail = binary.LittleEndian.AppendUint32(tail[:len(tail):len(tail)], uint32(len(tail)))
	whole := signedSum(sum, tail)
	copy(front[at+sumAt:], whole[:])
	return front, tail, nil
}

// Sign returns an entry as it is kept, which is for key, with a signature. It loses the one that it may have had. sign is that of
// AppendSigned.
func Sign(b []byte, key Key, sign func(sum [sha256.Size]byte) ([]byte, error)) ([]byte, error) {
	r, err := open(b, key)
	if err != nil {
		return nil, err
	}
	return r.seal(len(b), sign)
}

// seal returns r as it is kept, with a signature. It has about n bytes without that.
func (r *Raw) seal(n int, sign func(sum [sha256.Size]byte) ([]byte, error)) ([]byte, error) {
	front, tail, err := r.AppendSigned(make([]byte, 0, n+usualSigned), sign)
	if err != nil {
		return nil, err
	}
	return append(append(front, r.Outputs...), tail...), nil
}

// IsSigned reports whether an entry as it is kept says that it is signed.
func IsSigned(b []byte) bool {
	return len(b) >= len(magicSigned) && string(b[:len(magicSigned)]) == magicSigned
}

// Proof verifies all of an entry that was made for key. It returns when that was, and what whoever has signed it says; nil: nobody has.
// The error wraps ErrDamaged or ErrVersion.
func Proof(b []byte, key Key) (s *Signed, made time.Time, err error) {
	r, err := open(b, key)
	if err != nil {
		return nil, made, err
	}
	return r.signed, r.Made, nil
}

// signedSum returns the sum of a signed entry: sum is that of all but its tail.
func signedSum(sum [sha256.Size]byte, tail []byte) (whole [sha256.Size]byte) {
	h := sha256.New()
	h.Write(sum[:])
	h.Write(tail)
	h.Sum(whole[:0])
	return whole
}

// unsign returns an entry without its signature, and the signature, which is a part of b. right reports whether
// the sum of all is right. b has at least HeaderLen bytes.
func unsign(b []byte) (_ []byte, s *Signed, right bool) {
	has := [sha256.Size]byte(b[sumAt:headAt])
	if b[keyAt-1] != magicSigned[keyAt-1] {
		return b, nil, sumOf(b) == has
	}
	rest := len(b) - HeaderLen - signedTail
	if rest < 0 {
		return b, nil, false
	}
	n := binary.LittleEndian.Uint32(b[len(b)-signedTail:])
	if n > maxSigned-signedTail || int(n) > rest {
		return b, nil, false
	}
	end := len(b) - signedTail - int(n)
	s = &Signed{Sum: sumOf(b[:end]), Signature: b[end:][:n]}
	return b[:end], s, signedSum(s.Sum, b[end:]) == has
}

// Maker returns the host that made e, as its signature proves. verify returns the name of the host that has
// made a signature for a sum, or why it is not accepted (identity.Identity.VerifyResult). The error wraps
// ErrUnproven, and verify's.
func (e *Entry) Maker(verify func(sum [sha256.Size]byte, signature []byte) (string, error)) (string, error) {
	return e.Signed.maker(verify)
}

// Maker verifies all of an entry that was made for key, and returns the host that made it, as its signature
// proves. So an entry can be taken from anybody. The error wraps ErrDamaged, ErrVersion or ErrUnproven, and
// verify's.
func Maker(b []byte, key Key, verify func(sum [sha256.Size]byte, signature []byte) (string, error)) (string, error) {
	r, err := open(b, key)
	if err != nil {
		return "", err
	}
	return r.signed.maker(verify)
}

func (s *Signed) maker(verify func(sum [sha256.Size]byte, signature []byte) (string, error)) (string, error) {
	if s == nil {
		return "", ErrUnproven
	}
	host, err := verify(s.Sum, s.Signature)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnproven, err)
	}
	return host, nil
}
