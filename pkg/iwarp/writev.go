//go:build !race

package iwarp

import "net"

// writev writes all of bufs and consumes them.
func writev(c net.Conn, bufs *net.Buffers) error {
	if _, ok := c.(*net.TCPConn); !ok {
		err := writeGathered(c, *bufs)
		*bufs = nil
		return err
	}
	_, err := bufs.WriteTo(c)
	return err
}
