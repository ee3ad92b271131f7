package identity

import "time"

// NewAt is New with another clock.
func NewAt(role Role, s Settings, now func() time.Time) (*Identity, error) {
	return newAt(role, s, now)
}

// Unchecked returns an identity that presents like's certificate whatever its own role, and trusts what
// trust trusts: that of a hostile peer.
func Unchecked(role Role, like, trust *Identity) *Identity {
	id := &Identity{role: role, mode: TLS, s: like.s, now: time.Now}
	id.door = newDoorman(id.now, id.logger)
	c := *like.current.Load()
	c.roots = trust.current.Load().roots
	id.current.Store(&c)
	id.looked = time.Now().Add(time.Hour)
	return id
}
