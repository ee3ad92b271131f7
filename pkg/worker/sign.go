package worker

import (
	"errors"
	"fmt"

	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// The tenants of a group use one shelf. There a name is not what a client claims: this host makes it of what it
// knows itself, and the result is kept only if the client has meant the same. So all that a client can put there
// is what its job gives when this host runs it, and others find that only by running an equal job. The host
// signs it, so that it can be trusted wherever it is copied to.

// Reasons why a result is not kept for a group, as metrics name them.
const (
	unsharedName        = "name"        // the client has named it otherwise than its job
	unsharedToolchain   = "toolchain"   // its compiler was sent, so the name that its client knows is another one
	unsharedInputs      = "inputs"      // what the compiler was shown has no sum
	unsharedConfinement = "confinement" // the compile was not confined: it could have read the host's key
	unsharedSignature   = "signature"   // it cannot be signed
)

var errInputs = errors.New("what its compiler was shown has no sum")

// shareWithGroup puts the entry of a task's result on the shelf of its tenant's group, and reports whether there was room.
// Members do not push each other's results out beyond an even part (shelf.Shelf.PutFor).
func (t *task) shareWithGroup(e *resultcache.Raw) (kept bool, err error) {
	why, owner := "", t.c.lent.Tenant().Name()
	var front, tail []byte
	switch {
	case t.job.Toolchain.Root != "":
		why, err = unsharedToolchain, errors.New("its compiler was sent by a client")
	case t.job.Inputs == nil:
		why, err = unsharedInputs, errInputs
	case resultcache.KeyOf(t.job.Toolchain.ID, t.body, *t.job.Inputs) != e.Key:
		why, err = unsharedName, errors.New("its client has named it otherwise than its job")
		t.c.tellMisnamed(t)
	case t.c.s.confinement() < sandbox.Confined:
		why, err = unsharedConfinement, fmt.Errorf("compiles are not confined here")
	default:
		e.Builder = owner // proven, unlike the name that the client gives itself
		if front, tail, err = e.AppendSigned(make([]byte, 0, 512), t.c.s.o.Sign); err != nil {
			why = unsharedSignature
		}
	}
	if err != nil {
		t.c.s.o.Metrics.notShared(why)
		return false, err
	}
	return t.c.shelf.PutFor(owner, e.Key, front, e.Outputs, tail), nil
}

// tellMisnamed logs the first result of a connection that is not kept because of its name. An honest client of this
// version names all of them as the host does, unless its source has another name among the headers.
func (c *conn) tellMisnamed(t *task) {
	if !c.misnamed.Swap(true) {
		c.log.Warn("a client has named a result otherwise than its job: it is not kept for others", "tenant", c.lent.Tenant().Name(), "group", c.shelf.group, "source", t.source)
	}
}

// confinement returns the level at which all compiles are confined, as far as canaries have shown.
func (s *Server) confinement() sandbox.Level {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.measuresLocked().Level()
}
