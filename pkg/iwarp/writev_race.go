//go:build race

package iwarp

import (
	"bytes"
	"net"
)

// writev writes all of bufs and consumes them. The race detector sees neither that the system call
// of the same name reads memory nor that the other end of a connection acts after it; it sees both
// for Write.
func writev(c net.Conn, bufs *net.Buffers) error {
	b := bytes.Join(*bufs, nil)
	*bufs = nil
	_, err := c.Write(b)
	return err
}
