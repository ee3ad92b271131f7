// Package exs decides where the bytes of a stream go that is carried by RDMA Writes: straight into the memory of a
// receive that the application has posted, or into a hidden ring at the receiver, from which they are copied. The two sides
// switch between these without a word of negotiation, by what each knows when it acts. The algorithm follows
// MacArthur and Russell, "An Efficient Method for Stream Semantics over RDMA" (IPDPS 2014).
//
// A Sender and a Receiver are the two ends of one direction; a connection has two of each. They do no I/O, start no
// goroutine and read no clock: a driver carries out the Writes and copies that they name, and hands on their messages in
// order. Neither is safe for concurrent use.
//
// # Phases
//
// Phases count up, the same on both sides, and never more than one apart. In an even one data is direct, in an odd
// one it is indirect. The sender begins an indirect phase by sending into the ring, when it has data and no receive to
// send to. It ends the phase when it accepts an advert for the next one. That advert must be exact: its receive is
// the next one to be filled, and it begins at the very byte that the sender sends next. Then nothing can be left in
// the ring, nor on the way there. The receiver voids its adverts when indirect data arrives; the sender has discarded
// these by then, as it discards the adverts of every finished phase.
//
// A matching position alone would not be enough: what is said of a receive behind the first one is an estimate, as an
// earlier one may be completed short.
package exs
