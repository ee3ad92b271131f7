// Package received keeps toolchains that clients have sent, so that a host can compile with compilers that it does not
// have.
//
// A client offers a parcel (package parcel), is told which contents are missing, writes those, and finishes it. Then the
// toolchain is laid out in a directory that stands in for the root of private trees. A content may come in pieces,
// over several connections, and is accepted only if its SHA-256 is right. Equal contents are kept once.
//
// A tenant can use a toolchain only after offering the parcel itself. A parcel's ID stands for all names and
// contents, so nobody can put another toolchain in the place of one that a tenant means.
//
// The directory contains
//
//	lock             held by the daemon that uses it
//	contents/SUM     complete contents, read-only; SUMx if the file may be executed
//	partial/SUM.T    those that are being written, by each tenant
//	parcels/ID       encoded parcels that are complete; the time is that of their last use
//	roots/ID/        the directories laid out for them
package received
