package iwarptest

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
)

// Proxy forwards TCP connections to one address and records them in a pcap, in a possible order:
// octets are recorded after they arrived and before they are forwarded. It needs no right to capture
// packets.
type Proxy struct {
	ln     net.Listener
	target string
	pcap   *PcapWriter

	mu       sync.Mutex
	open     map[net.Conn]struct{} // guarded by mu, like the rest
	closed   bool
	conns    int
	turns    int
	lastDir  map[*PcapConn]bool
	sent     [2]int64
	handlers sync.WaitGroup
}

// NewProxy listens on a loopback port and forwards to target. With a nil pcap it only counts.
func NewProxy(target string, pcap *PcapWriter) (*Proxy, error) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	if pcap == nil {
		pcap = NewPcapWriter(io.Discard)
	}
	p := &Proxy{ln: ln, target: target, pcap: pcap, open: make(map[net.Conn]struct{}), lastDir: make(map[*PcapConn]bool)}
	p.handlers.Add(1)
	go p.accept()
	return p, nil
}

// Addr returns the address on which the proxy listens.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// ProxyCounts holds totals since the proxy started. Turns counts how often octets from the client
// followed octets from the server or opened a connection: each is a potential round trip of waiting.
type ProxyCounts struct {
	Connections, Turns int
	Sent, Received     int64 // bytes from and to the client
}

// Counts returns the totals so far.
func (p *Proxy) Counts() ProxyCounts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return ProxyCounts{Connections: p.conns, Turns: p.turns, Sent: p.sent[0], Received: p.sent[1]}
}

// Close ends all connections and waits for all goroutines.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	for c := range p.open {
		_ = c.Close()
	}
	p.mu.Unlock()
	err := p.ln.Close()
	p.handlers.Wait()
	return errors.Join(err, p.pcap.Err())
}

func (p *Proxy) accept() {
	defer p.handlers.Done()
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.handlers.Add(1)
		go p.serve(client)
	}
}

// keep remembers a connection for Close. It returns false when Close has been called.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return false
	}
	p.open[c] = struct{}{}
	return true
}

func (p *Proxy) drop(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	delete(p.open, c)
	p.mu.Unlock()
}

func (p *Proxy) serve(client net.Conn) {
	defer p.handlers.Done()
	if !p.keep(client) {
		return
	}
	defer p.drop(client)
	server, err := net.Dial("tcp", p.target)
	if err != nil || !p.keep(server) {
		return
	}
	defer p.drop(server)
	rec := p.pcap.Conn(addrPort(client.RemoteAddr()), addrPort(client.LocalAddr()))
	p.mu.Lock()
	p.conns++
	p.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { p.copy(rec, true, server, client) })
	wg.Go(func() { p.copy(rec, false, client, server) })
	wg.Wait()
	p.mu.Lock()
	delete(p.lastDir, rec)
	p.mu.Unlock()
}

// copy forwards one direction until its end; a FIN is forwarded as a FIN, and a reset as a reset.
func (p *Proxy) copy(rec *PcapConn, fromClient bool, dst, src net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			p.count(rec, fromClient, n)
			rec.Data(fromClient, buf[:n])
			if _, werr := dst.Write(buf[:n]); werr != nil {
				_ = src.Close()
				return
			}
		}
		if err == nil {
			continue
		}
		rec.CloseWrite(fromClient)
		if tc, ok := dst.(*net.TCPConn); ok && err == io.EOF {
			_ = tc.CloseWrite()
			return
		} else if ok {
			_ = tc.SetLinger(0)
		}
		_ = dst.Close()
		return
	}
}

func (p *Proxy) count(rec *PcapConn, fromClient bool, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent[direction(fromClient)] += int64(n)
	if last, seen := p.lastDir[rec]; fromClient && (!seen || !last) {
		p.turns++
	}
	p.lastDir[rec] = fromClient
}

func addrPort(a net.Addr) netip.AddrPort {
	ap := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
