package iwarptest

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

// What the reader puts together from packets is what another program did.
func TestPcapEqualsFrames(t *testing.T) {
	for _, name := range []string{"v2-crc-rping", "peer-v2-rping-crc-bytewise"} {
		t.Run(name, func(t *testing.T) {
			base := filepath.Join("..", "..", "..", "..", "pkg", "iwarp", "testdata", "captures", name)
			b, err := os.ReadFile(base + ".pcap")
			if err != nil {
				t.Fatal(err)
			}
			streams, err := ReadPcap(b)
			if err != nil {
				t.Fatal(err)
			}
			convs, err := ReadFrames(base + ".frames")
			if err != nil {
				t.Fatal(err)
			}
			if len(streams) != len(convs) {
				t.Fatalf("got %d connections, want %d", len(streams), len(convs))
			}
			for i := range convs {
				for _, initiator := range []bool{true, false} {
					if got, want := streams[i].Bytes(initiator), convs[i].Stream(initiator); !bytes.Equal(got, want) {
						t.Errorf("connection %d, from the initiator %v:\n got %x\nwant %x", i, initiator, got, want)
					}
				}
			}
		})
	}
}

func TestPcapRoundTrip(t *testing.T) {
	var file bytes.Buffer
	w := NewPcapWriter(&file)
	a, b := netip.MustParseAddrPort("127.0.0.1:40000"), netip.MustParseAddrPort("127.0.0.1:7632")
	c := w.Conn(a, b)
	big := make([]byte, 3*maxSegment+5)
	for i := range big {
		big[i] = byte(i * 7)
	}
	c.Data(true, []byte("hello"))
	c.Data(false, big)
	c.Data(true, []byte(", again"))
	c.CloseWrite(true)
	c.CloseWrite(false)
	if err := w.Err(); err != nil {
		t.Fatal(err)
	}
	s, err := ReadPcap(file.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if len(s) != 1 || s[0].Client != a || s[0].Server != b {
		t.Fatalf("got %+v", s)
	}
	if got := string(s[0].Bytes(true)); got != "hello, again" {
		t.Errorf("from the client: got %q", got)
	}
	if !bytes.Equal(s[0].Bytes(false), big) {
		t.Errorf("from the server: %d bytes differ from the %d sent", len(s[0].Bytes(false)), len(big))
	}
}

func TestReassemblyOutOfOrder(t *testing.T) {
	want := make([]byte, 500)
	for i := range want {
		want[i] = byte(i)
	}
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		start := uint32(0xffffff80) // wraps in mid-stream
		h := &half{stream: new(PcapStream), client: true, next: start, early: make(map[uint32][]byte)}
		type seg struct{ from, to int }
		var segs []seg
		for from := 0; from < len(want); {
			to := min(from+1+rnd.IntN(60), len(want))
			segs = append(segs, seg{from, to})
			if rnd.IntN(3) == 0 {
				segs = append(segs, seg{max(0, from-10), to}) // sent again, larger
			}
			from = to
		}
		rnd.Shuffle(len(segs), func(i, j int) { segs[i], segs[j] = segs[j], segs[i] })
		for _, s := range segs {
			h.add(start+uint32(s.from), want[s.from:s.to])
		}
		if got := h.stream.Bytes(true); !bytes.Equal(got, want) {
			t.Fatalf("seed %d: got %d bytes %x", seed, len(got), got)
		}
	}
}

func TestProxyRecordsAndCounts(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() { // an echo of fixed records
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		b := make([]byte, 4)
		for {
			if _, err := io.ReadFull(c, b); err != nil {
				return
			}
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}()
	var file bytes.Buffer
	p, err := NewProxy(ln.Addr().String(), NewPcapWriter(&file))
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b := make([]byte, 4)
	for range 3 {
		if _, err := c.Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := p.Counts(), (ProxyCounts{Connections: 1, Turns: 3, Sent: 12, Received: 12}); got != want {
		t.Errorf("counts: got %+v, want %+v", got, want)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := ReadPcap(file.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if len(s) != 1 || string(s[0].Bytes(true)) != "pingpingping" || string(s[0].Bytes(false)) != "pingpingping" {
		t.Errorf("recorded %+v", s)
	}
}
