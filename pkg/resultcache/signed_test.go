package resultcache

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"reflect"
	"testing"
)

// The signature of these tests is a digest.
func sign(sum [sha256.Size]byte) ([]byte, error) {
	s := sha256.Sum256(append([]byte("signed"), sum[:]...))
	return s[:], nil
}

var errForged = errors.New("forged")

func verify(sum [sha256.Size]byte, signature []byte) (string, error) {
	if want, _ := sign(sum); !bytes.Equal(want, signature) {
		return "", errForged
	}
	return "build7", nil
}

// signed returns an entry with n bytes of outputs and more that its host has signed.
func signed(t testing.TB, e *Entry, sign func([sha256.Size]byte) ([]byte, error)) []byte {
	t.Helper()
	b, err := e.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := open(b, e.Key)
	if err != nil {
		t.Fatal(err)
	}
	front, tail, err := r.AppendSigned([]byte("before"), sign)
	if err != nil {
		t.Fatal(err)
	}
	return append(append(front[len("before"):], r.Outputs...), tail...)
}

// TestSigned: a signed entry is read as another one is, and tells who has signed it. One that is not signed, or
// otherwise, has no maker.
func TestSigned(t *testing.T) {
	for _, n := range []int{10, 5000} {
		e := sample(n)
		b := signed(t, e, sign)
		got, err := Decode(b, e.Key, room)
		if err != nil || got.Signed == nil {
			t.Fatalf("%v: %+v", err, got)
		}
		if who, err := got.Maker(verify); err != nil || who != "build7" {
			t.Errorf("%q, %v", who, err)
		}
		got.Signed = nil
		if !reflect.DeepEqual(got, e) {
			t.Errorf("%+v", got)
		}
		if key, origin, err := Describe(b); err != nil || key != e.Key || origin != e.Origin {
			t.Errorf("%v: %v, %+v", err, key, origin)
		}
		if who, err := Maker(b, e.Key, verify); err != nil || who != "build7" {
			t.Errorf("%q, %v", who, err)
		}
		if _, err := Maker(b, Key{9}, verify); !errors.Is(err, ErrDamaged) {
			t.Errorf("for another key: %v", err)
		}
		moved := *e
		moved.Key = Key{9}
		forged := signed(t, &moved, func([sha256.Size]byte) ([]byte, error) { return got.signature(t, b), nil })
		if _, err := Maker(forged, moved.Key, verify); !errors.Is(err, ErrUnproven) || !errors.Is(err, errForged) {
			t.Errorf("moved to another key: %v", err)
		}
		plain, err := MadeBy(b, e.Key, "another")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Decode(plain, e.Key, room); err != nil || got.Signed != nil || got.Host != "another" {
			t.Errorf("%v: %+v", err, got)
		}
		if _, err := Maker(plain, e.Key, verify); !errors.Is(err, ErrUnproven) {
			t.Errorf("without a signature: %v", err)
		}
	}
}

// signature returns the signature of an entry.
func (e *Entry) signature(t *testing.T, b []byte) []byte {
	t.Helper()
	got, err := Decode(b, e.Key, room)
	if err != nil {
		t.Fatal(err)
	}
	return got.Signed.Signature
}

// TestEveryBitOfSigned: a signed entry that differs in any bit, or is cut at any place, is damaged.
func TestEveryBitOfSigned(t *testing.T) {
	e := sample(300)
	b := signed(t, e, sign)
	for i := range b {
		for bit := range 8 {
			b[i] ^= 1 << bit
			if _, err := Decode(b, e.Key, room); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrVersion) {
				t.Fatalf("byte %d, bit %d: %v", i, bit, err)
			}
			b[i] ^= 1 << bit
		}
		if _, err := Decode(b[:i], e.Key, room); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut after %d bytes: %v", i, err)
		}
	}
	if _, err := Decode(append(b, 0), e.Key, room); !errors.Is(err, ErrDamaged) {
		t.Errorf("a byte too many: %v", err)
	}
}

// TestCannotSign: a result that cannot be signed is no entry.
func TestCannotSign(t *testing.T) {
	r := Raw{Outputs: []byte("x")}
	for _, sign := range []func([sha256.Size]byte) ([]byte, error){
		func([sha256.Size]byte) ([]byte, error) { return nil, errForged },
		func([sha256.Size]byte) ([]byte, error) { return make([]byte, maxSigned), nil },
	} {
		if front, tail, err := r.AppendSigned([]byte("before"), sign); err == nil || string(front) != "before" || tail != nil {
			t.Errorf("%q, %q, %v", front, tail, err)
		}
	}
}

// TestSign: a signature can be put onto an entry that has none, and onto one that has another. One that is damaged gets none.
func TestSign(t *testing.T) {
	e := sample(5000)
	plain, err := e.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	other := signed(t, e, func([sha256.Size]byte) ([]byte, error) { return []byte("somebody else's"), nil })
	for _, b := range [][]byte{plain, other} {
		got, err := Sign(b, e.Key, sign)
		if err != nil || !IsSigned(got) || IsSigned(plain) {
			t.Fatal(err)
		}
		if !bytes.Equal(got, signed(t, e, sign)) {
			t.Error("it is another one than its host would have signed")
		}
	}
	if _, err := Sign(plain, Key{9}, sign); !errors.Is(err, ErrDamaged) {
		t.Errorf("for another key: %v", err)
	}
	if _, err := Sign(plain, e.Key, func([sha256.Size]byte) ([]byte, error) { return nil, errForged }); !errors.Is(err, errForged) {
		t.Error(err)
	}
}

// TestRenamedSigned: an entry that is kept under another name too still says who has signed it, but that proves nothing: whoever
// is given it by others does not accept it.
func TestRenamedSigned(t *testing.T) {
	e := sample(5000)
	b := signed(t, e, sign)
	to := Key{9}
	moved, err := Renamed(b, e.Key, to)
	if err != nil {
		t.Fatal(err)
	}
	was, err := Decode(b, e.Key, room)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(moved, to, room)
	if err != nil || got.Signed == nil || !bytes.Equal(got.Signed.Signature, was.Signed.Signature) {
		t.Fatalf("%v, %+v", err, got)
	}
	if who, err := got.Maker(verify); !errors.Is(err, ErrUnproven) {
		t.Errorf("%q, %v", who, err)
	}
}
