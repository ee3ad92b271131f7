// Package psk is the proof, by both sides of a connection, that they have the same
// pre-shared key. It does no I/O, but for Load.
//
//	client                                         daemon
//	  MPA Request: greeting, nonce, hint  ───────▶  Judge: is the hint of a key of mine?
//	  Finish: is the proof right?  ◀──────────────  MPA Reply: greeting, nonce, proof
//	  first Send: the client's proof  ───────────▶  Check; only now there is a peer
//
// A proof is an HMAC-SHA256 over everything that start-up has said: the heads of both
// frames (flags, revision, IRD, ORD), both greetings and both nonces. Each role, and
// the hint, has a key of its own, derived by HKDF (RFC 5869), so that nothing that one
// side has said is of use in the other's mouth; a nonce is fresh for each connection,
// so that nothing is of use twice. docs/protocol.md has it byte by byte.
//
// The hint is no proof: it can be replayed. It tells a daemon which of two keys is
// meant, turns a wrong one away with a reason, and keeps who has none from costing
// more than a look.
//
// What it does not do: who can alter the TCP stream behind start-up can do so
// unseen, and can read all of it. TLS (package identity) is for networks where
// somebody could.
package psk
