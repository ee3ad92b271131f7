package connmgr

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/holdings"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// TestHeld: what hosts hold is in a file when a manager ends, with what it knew of hosts that it has not used, and the next manager
// begins with that.
func TestHeld(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "held")
	var used, unused *holdings.Record
	for round := range 2 {
		r := newRig(t, func(o *Options) { o.Holdings = file })
		d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
		r.remote(d.Addr, "int x;")
		r.idle()
		if round == 0 {
			used = &holdings.Record{Addr: d.Addr, Epoch: 7, IDs: []unit.ContentID{{1}, {2}}}
			r.m.farm.Ledgers([]scheduler.Host{{Addr: d.Addr}})[d.Addr].Recall(used)
		} else if got := r.m.held.of(used.Addr); !reflect.DeepEqual(got, used) {
			t.Errorf("the next manager begins with %+v, want %+v", got, used)
		} else {
			unused = &holdings.Record{Addr: d.Addr, Epoch: 8, IDs: []unit.ContentID{{1}, {3}}}
			r.m.farm.Ledgers([]scheduler.Host{{Addr: d.Addr}})[d.Addr].Recall(unused)
		}
		r.close()
	}
	b, err := os.ReadFile(file)
	if got := holdings.Decode(b); err != nil || len(got) != 2 {
		t.Errorf("%v, %+v: want what both managers knew", err, got)
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
}
