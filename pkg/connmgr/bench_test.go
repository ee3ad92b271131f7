package connmgr

import (
	"log/slog"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// BenchmarkWarmCompile measures one command from its connection to Finish, with a host that answers at once.
// Wrapper, manager and host run in one process and start no others.
func BenchmarkWarmCompile(b *testing.B) {
	r := newRig(b, func(o *Options) { o.Log = slog.New(slog.DiscardHandler) })
	d := daemontest.Start(b, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) { d.SlotSize = 4 << 10 })
	r.warm(d.Addr)
	b.ReportAllocs()
	for b.Loop() {
		w := r.dial()
		if got, _ := w.run(leaseOf(d.Addr), "int x;"); got == nil {
			b.Fatal("no result")
		}
		w.send(&ipc.Finish{Where: ipc.WhereRemote, Closed: true})
		w.close()
	}
}
