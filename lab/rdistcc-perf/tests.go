package main

// test is one measurement.
type test struct {
	name, short string
	id          uint8
	tcp         bool // raw TCP instead of verbs
	latency     bool
	read        bool     // RDMA Reads
	size        sizeFlag // default
}

// Numbers of the tests on the wire.
const (
	testWriteBW = 1 + iota
	testSendBW
	testWriteLat
	testSendLat
	testTCPBW
	testTCPLat
	testReadBW
	testReadLat
)

var tests = []test{
	{name: "write_bw", short: "goodput of RDMA Writes", id: testWriteBW, size: 1 << 20},
	{name: "read_bw", short: "goodput of RDMA Reads", id: testReadBW, read: true, size: 1 << 20},
	{name: "send_bw", short: "goodput of Sends", id: testSendBW, size: 64 << 10},
	{name: "write_lat", short: "round trip of an RDMA Write and an empty Send each way", id: testWriteLat, latency: true, size: 64},
	{name: "read_lat", short: "round trip of an RDMA Read", id: testReadLat, latency: true, read: true, size: 64},
	{name: "send_lat", short: "round trip of a Send each way", id: testSendLat, latency: true, size: 64},
	{name: "tcp_bw", short: "goodput of a raw TCP connection", id: testTCPBW, tcp: true, size: 1 << 20},
	{name: "tcp_lat", short: "round trip on a raw TCP connection", id: testTCPLat, tcp: true, latency: true, size: 64},
}
