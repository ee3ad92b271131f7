// Package psk lets both sides of a connection prove that they have the same pre-shared key. It does no
// I/O, except in Load.
//
//	client                                         daemon
//	  MPA Request: greeting, nonce, hint  ───────▶  Judge: is the hint of a key of mine?
//	  Finish: is the proof right?  ◀──────────────  MPA Reply: greeting, nonce, proof
//	  first Send: the client's proof  ───────────▶  Check; only now there is a peer
//
// A proof is an HMAC-SHA256 over everything said in start-up: the heads of both frames (flags,
// revision, IRD, ORD), both greetings and both nonces. Each role, and the hint, has a key of its
// own, derived by HKDF (RFC 5869), so that nothing that one side has said can be reused in the other
// role. A nonce is fresh for each connection, so that nothing can be replayed. docs/protocol.md has
// the layout byte by byte.
//
// The hint is not a proof: it can be replayed. It tells a daemon which of two keys is meant, lets it
// reject a wrong one with a reason, and makes peers without a key cost no more than one look.
//
// Limits: an attacker that can alter the TCP stream after start-up can do so unnoticed, and can read
// all of it. TLS (package identity) is for networks with such attackers.
package psk
