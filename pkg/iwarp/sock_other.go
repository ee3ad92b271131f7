//go:build !linux

package iwarp

import (
	"net"
	"time"
)

// tuneConn leaves the connection as Go made it: without Nagle.
func tuneConn(net.Conn, time.Duration) {}

// segmentSize returns 0: it is not known here.
func segmentSize(net.Conn) int { return 0 }

// unacked returns 0: it is not known here.
func unacked(net.Conn) uint64 { return 0 }

// pathStats returns zeros: they are not known here.
func pathStats(net.Conn) PathStats { return PathStats{} }

// limitUnsent leaves the socket as it is.
func limitUnsent(net.Conn, int) {}

// socketSegment returns 0: it is not known here.
func socketSegment(int) int { return 0 }
