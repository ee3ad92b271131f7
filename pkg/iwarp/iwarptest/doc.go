// Package iwarptest helps to test whatever speaks iWARP: known-answer frames,
// captured conversations, a recording proxy, and connected queue pairs.
package iwarptest
