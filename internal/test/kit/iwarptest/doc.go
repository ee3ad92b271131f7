// Package iwarptest helps to test programs that speak iWARP: an in-memory network that
// works in testing/synctest bubbles, connections with faults, connected queue
// pairs, a leak check, the conformance suite that every provider and transport
// must pass, known-answer frames, captured conversations and a recording proxy.
package iwarptest
