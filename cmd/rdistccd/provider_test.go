package main

import (
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/pkg/iwarp/ibverbs"
)

// TestProviderNotBuilt says in one line what to do for a provider that this binary
// does not have.
func TestProviderNotBuilt(t *testing.T) {
	if ibverbs.Built {
		t.Skip("this binary has it")
	}
	cmd := command(t, "--provider", "ibverbs")
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != exitArguments || !strings.Contains(string(out), "make ibverbs") || strings.Count(string(out), "\n") != 1 {
		t.Errorf("exit status %d, output %q", got, out)
	}
}

// TestPinnedSlots: registered memory is pinned by a device, all of it, so its slots
// are smaller unless a setting says otherwise.
func TestPinnedSlots(t *testing.T) {
	c := config.Default()
	if slot, prefault := slotSize(c); slot != int64(c.Buffers.Slot) || prefault != int64(c.Buffers.Prefault) {
		t.Errorf("soft: %d, %d", slot, prefault)
	}
	c.Daemon.Provider = "ibverbs"
	if slot, prefault := slotSize(c); slot != pinnedSlot || prefault != pinnedSlot {
		t.Errorf("ibverbs: %d, %d, want %d twice", slot, prefault, pinnedSlot)
	}
	for _, key := range []string{"buffers.slot", "buffers.prefault"} {
		if err := c.Set(key, "test", "16MiB"); err != nil {
			t.Fatal(err)
		}
	}
	if slot, prefault := slotSize(c); slot != 16<<20 || prefault != 16<<20 {
		t.Errorf("as set: %d, %d", slot, prefault)
	}
}
