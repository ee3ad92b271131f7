package identity

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Trusted names those whose signatures on results in stores count.
type Trusted struct {
	Farm  bool     // all machines of the farm: with a certificate that a CA of this side has signed
	Names []string // without Farm, those of these machines that have such a name
	// Files are PEM files. A CA in one of them stands for all machines with a certificate of its; another certificate, and a
	// public key, for its owner alone.
	Files []string
	Not   []string // names that never count
}

// Trust decides whose signatures on results in stores count. Its methods may be called from any goroutine.
//
// A certificate of a daemon and one of a client count alike, as both can have things compiled for others. A signature stays
// valid when its certificate has expired since, for as long as afterwards says.
type Trust struct {
	whom Trusted
	id   *Identity
	now  func() time.Time

	mu     sync.Mutex // guards what follows
	looked time.Time  // when the files were last checked
	seen   []stamp    // of them, as last loaded or refused
	told   string     // the last complaint in the log
	files  *circle    // what they say
}

// ErrStranger is wrapped by errors about a signature of somebody whose signatures do not count.
var ErrStranger = errors.New("its signature does not count here (cache.trust)")

// NewTrust returns the Trust of a process with that identity. An error is one line that names the file and the remedy. If it comes
// with a Trust, that can be used, but nobody counts of those whom the files are to name until they are right.
func NewTrust(id *Identity, whom Trusted) (*Trust, error) {
	if (whom.Farm || len(whom.Names) > 0) && id.mode != TLS {
		return nil, errors.New("cache.trust: farm: there are no certificates of this farm without auth.tls")
	}
	t := &Trust{whom: whom, id: id, now: id.now, files: &circle{keepers: new(signers)}}
	if len(whom.Files) > 0 {
		t.seen = t.stamps()
		if err := t.loadLocked(t.now()); err != nil {
			t.told = err.Error()
			return t, err
		}
	}
	return t, nil
}

// Verify verifies a signature of SignKept for the sum of a result that says that it was made at that time. It returns the name
// in the signer's certificate. The error wraps ErrStranger if the signature may be right, but does not count.
func (t *Trust) Verify(sum [sha256.Size]byte, made time.Time, signature []byte) (who string, err error) {
	sig, chain, err := split(signature)
	if err != nil {
		return "", err
	}
	s, err := t.signer(chain, made)
	if err != nil {
		return "", err
	}
	if err := s.leaf.CheckSignature(s.algorithm, signed(keptContext, sum), sig); err != nil {
		return "", fmt.Errorf("not the signature of %s: %w", s.name, err)
	}
	return s.name, nil
}

// Accepts returns why signatures of whoever has made this one do not count any more. It is for what Verify has accepted before, and
// verifies neither what is signed nor that a certificate is valid now.
func (t *Trust) Accepts(made time.Time, signature []byte) error {
	_, chain, err := split(signature)
	if err == nil {
		_, err = t.signer(chain, made)
	}
	if errors.Is(err, ErrExpired) {
		return nil
	}
	return err
}

// signer returns whom a chain of certificates is for.
func (t *Trust) signer(chain []byte, made time.Time) (*signer, error) {
	now, sum := t.now(), sha256.Sum256(chain)
	err := fmt.Errorf("%w: nobody's does", ErrStranger)
	for _, c := range t.circles(now) {
		s, why := c.find(sum, chain, now, made)
		switch {
		case why == nil && slices.Contains(t.whom.Not, s.name):
			return nil, fmt.Errorf("%w: %s is excepted", ErrStranger, s.name)
		case why == nil && c.names != nil && !slices.Contains(c.names, s.name):
			err = fmt.Errorf("%w: %s is none of the machines of the farm that do", ErrStranger, s.name)
		case why == nil:
			return s, nil
		case !errors.Is(err, ErrExpired):
			err = why // that of somebody who counts says most
		}
	}
	return nil, err
}

// circles returns those in force.
func (t *Trust) circles(now time.Time) (all []*circle) {
	if t.whom.Farm || len(t.whom.Names) > 0 {
		own := t.id.credentials()
		farm := &circle{roots: own.roots, keepers: &own.keepers}
		if !t.whom.Farm {
			farm.names = t.whom.Names
		}
		all = append(all, farm)
	}
	if len(t.whom.Files) > 0 {
		all = append(all, t.current(now))
	}
	return all
}

func (t *Trust) stamps() (all []stamp) {
	for _, f := range t.whom.Files {
		all = append(all, stampOf(f))
	}
	return all
}

// current returns what the files say, after checking them for changes.
func (t *Trust) current(now time.Time) *circle {
	t.mu.Lock()
	defer t.mu.Unlock()
	if age := now.Sub(t.looked); age >= 0 && age < lookEvery {
		return t.files
	}
	t.looked = now
	if s := t.stamps(); !slices.Equal(s, t.seen) {
		t.seen = s
		if err := t.loadLocked(now); err != nil && err.Error() != t.told {
			t.told = err.Error()
			t.id.logger().Warn("whose results count is as before", "err", err)
		}
	}
	return t.files
}

// loadLocked reads the files, whose stamps are those of seen. On error what they said before stays in force.
func (t *Trust) loadLocked(now time.Time) error {
	t.looked = now
	if fresh(t.seen, now) {
		t.seen = nil // read again at the next check
	}
	c := &circle{keepers: new(signers)}
	for _, path := range t.whom.Files {
		text, err := readFile("cache.trust:", path, false)
		if err != nil {
			return err
		}
		if err := c.add(path, text); err != nil {
			return err
		}
	}
	t.files, t.told = c, ""
	return nil
}
