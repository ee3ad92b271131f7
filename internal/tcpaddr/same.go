package tcpaddr

import "net"

// SameMachine reports whether both ends of c are on this machine: its peer has c's own address, or one of loopback.
func SameMachine(c net.Conn) bool {
	far, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return false
	}
	near, ok := c.LocalAddr().(*net.TCPAddr)
	return ok && (far.IP.IsLoopback() || far.IP.Equal(near.IP))
}

// Control returns the congestion control that a connection of long life asks the kernel for. One that may cross a network gets
// bbr, which does not fall back to slow start after a pause (experiment E2b, lab/experiments.md). Its price is a timer for
// each burst: on loopback, where there is no path to probe, it took more time than to copy the data, and half of the bandwidth.
// There it is reno, which paces nothing, and which every kernel has.
func Control(c net.Conn) string {
	if SameMachine(c) {
		return "reno"
	}
	return "bbr"
}
