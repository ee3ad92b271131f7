package stream

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/stream/exs"
)

// BenchmarkCopy moves 1 MiB a time, beside the same on TCP.
func BenchmarkCopy(b *testing.B) {
	const size = 1 << 20
	run := func(b *testing.B, from io.Writer, to io.Reader, closes func()) {
		b.SetBytes(size)
		done := make(chan error, 1)
		n := b.N
		go func() {
			p := make([]byte, size)
			for range n {
				if _, err := io.ReadFull(to, p); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		p := make([]byte, size)
		b.ResetTimer()
		for range b.N {
			if _, err := from.Write(p); err != nil {
				b.Fatal(err)
			}
		}
		if err := <-done; err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		closes()
	}
	b.Run("tcp", func(b *testing.B) {
		var lc net.ListenConfig
		l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
		var d net.Dialer
		from, err := d.DialContext(context.Background(), "tcp", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		to, err := l.Accept()
		if err != nil {
			b.Fatal(err)
		}
		run(b, from, to, func() { from.Close(); to.Close() })
	})
	for name, c := range map[string]Config{
		"dynamic": {}, "direct": {Policy: exs.Direct}, "indirect": {Policy: exs.Indirect},
		"zerocopy": {Mode: ZeroCopy}, "zerocopy direct": {Mode: ZeroCopy, Policy: exs.Direct},
	} {
		b.Run(name, func(b *testing.B) {
			from, to := pair(b, providers["soft"], c, Config{})
			run(b, from, to, func() {})
			s := to.Stats()
			b.ReportMetric(float64(s.ReceivedDirect)/float64(s.Received), "direct")
		})
	}
}
