package rdistcc

import (
	"io"
	"net"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// startProxy relays TCP between $NAME, where it listens, and a daemon, and does
// a fault to what the manager sends:
//
//	flip      inverts a bit of byte 20,000, once
//	cut       closes both sides there, once
//	garbage   is no relay: it answers every connection with text and closes
//	silence   is no relay: it takes connections and says nothing
func startProxy(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: proxy NAME DAEMON flip|cut|garbage|silence")
	}
	s := of(ts)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Setenv(args[0], l.Addr().String())
	p := &proxy{target: s.process(ts, args[1:]).Addr, fault: args[2], left: 20000}
	s.proxies = append(s.proxies, p)
	p.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.running.Go(func() { p.serve(c) })
		}
	})
	p.listener = l
}

type proxy struct {
	target, fault string
	listener      net.Listener
	running       sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn // guarded by mu
	done  bool       // guarded by mu
	left  int        // bytes until the fault, then negative; guarded by mu
}

// keep notes a connection that stop has to close; false when it was called.
func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.done {
		p.conns = append(p.conns, c)
	}
	return !p.done
}

// stop ends the proxy and waits for it.
func (p *proxy) stop() {
	p.listener.Close()
	p.mu.Lock()
	p.done = true
	for _, c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	if !p.keep(client) {
		return
	}
	switch p.fault {
	case "garbage":
		io.WriteString(client, "220 mail.example.com ESMTP ready, please say hello first\r\n"+strings.Repeat("x", 400))
		return
	case "silence":
		io.Copy(io.Discard, client)
		return
	}
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	if !p.keep(server) {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		io.Copy(client, server)
		client.Close()
	})
	defer back.Wait()
	defer server.Close()
	buf := make([]byte, 16<<10)
	for {
		n, err := client.Read(buf)
		if !p.spoil(buf[:n]) {
			return
		}
		if _, werr := server.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// spoil does the fault when its byte is in b; false closes the connection.
func (p *proxy) spoil(b []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.left
	if at < 0 {
		return true
	}
	p.left -= len(b)
	if at >= len(b) {
		return true
	}
	if p.fault == "flip" {
		b[at] ^= 1
		return true
	}
	return false
}
