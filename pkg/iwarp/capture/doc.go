// Package capture writes the iWARP connections of a device to a pcapng file that Wireshark and tshark decode, without the rights
// that recording packets takes, and above TLS, so that an encrypted connection can be read too:
//
//	f, err := capture.Create("conn.pcapng", capture.Options{})
//	dev, err := iwarp.Open(iwarp.Config{Dial: f.Dial(dial), Listen: f.Listen(listen)})
//	...
//	err = f.Close()
//
// The packets are made up around what the connection carries: an FPDU each, with TCP sequence numbers that count from 1. Lost
// segments, retransmissions and windows of the real connection are not in them.
//
// What messages carry is replaced by zeros of the same length, private data included, unless Options.Payload asks for it: a
// capture shows who did what to which memory and when, and can be given away. CRCs are renewed, so that a right one is shown as right and a wrong one as wrong.
//
// A captured connection is slower, as the device does not see its socket: nothing is written by the goroutine that posts, nor
// read by the one that waits.
package capture
