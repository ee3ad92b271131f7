//go:build !race

package iwarp

import "net"

// writev writes all of bufs and consumes them.
func writev(c net.Conn, bufs *net.Buffers) error {
	_, err := bufs.WriteTo(c)
	return err
}
