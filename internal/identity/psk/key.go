package psk

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
)

// Requirements for a key.
const (
	MinLen  = 32 // bytes; 32 random characters cannot be guessed, 32 characters of words can
	maxKeys = 2
)

// Key is the content of a key file: one key, or two while a farm changes from one to the other. The first is
// used to dial; either is accepted. It does not change.
type Key struct{ all []secret }

// secret is one key in its three derived forms.
type secret struct {
	hint, client, daemon []byte // HMAC keys
}

// Labels for derived keys and for the transcript. The number is the version of this method of proof.
const (
	labelSalt   = "rdistcc psk 1"
	labelHint   = "hint"
	labelClient = "client proof"
	labelDaemon = "daemon proof"
)

// Parse reads the content of a key file: one or two lines, each a key of at least MinLen bytes. Only the line
// ends are removed. The error names neither the file nor any part of it.
func Parse(text []byte) (*Key, error) {
	text = bytes.TrimSuffix(text, []byte("\n"))
	if len(text) == 0 {
		return nil, fmt.Errorf("is empty: it should hold a key of at least %d characters (%s)", MinLen, Remedy)
	}
	lines := bytes.Split(text, []byte("\n"))
	if len(lines) > maxKeys {
		return nil, fmt.Errorf("has %d lines: one key, or two while the farm changes from one to the other", len(lines))
	}
	k := new(Key)
	for i, line := range lines {
		line = bytes.TrimSuffix(line, []byte("\r"))
		if len(line) < MinLen {
			return nil, fmt.Errorf("holds a key of %d characters (line %d): at least %d are needed (%s)", len(line), i+1, MinLen, Remedy)
		}
		s, err := newSecret(line)
		if err != nil {
			return nil, err
		}
		k.all = append(k.all, s)
	}
	return k, nil
}

// Remedy is a command that makes a good key file.
const Remedy = "make one: umask 077; openssl rand -hex 32 >FILE"

func newSecret(key []byte) (s secret, err error) {
	prk, err := hkdf.Extract(sha256.New, key, []byte(labelSalt))
	if err != nil {
		return s, err
	}
	for _, d := range []struct {
		to    *[]byte
		label string
	}{{&s.hint, labelHint}, {&s.client, labelClient}, {&s.daemon, labelDaemon}} {
		if *d.to, err = hkdf.Expand(sha256.New, prk, d.label, sha256.Size); err != nil {
			return s, err
		}
	}
	return s, nil
}
