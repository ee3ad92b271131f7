package main

import (
	"log/slog"
	"strings"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/capture"
	"github.com/rdistcc/rdistcc/pkg/iwarp/ibverbs"
)

// openDevice opens the device that the settings name.
func openDevice(c *config.Config, id *identity.Identity, log *slog.Logger) (iwarp.Device, error) {
	if c.Daemon.Provider == "soft" {
		cfg := iwarp.Config{Dial: id.Dial, Listen: id.Listen}
		if c.Daemon.Capture != "" {
			// It is written without a buffer, and ends with the process.
			f, err := capture.Create(c.Daemon.Capture, capture.Options{Limit: int64(c.Log.CaptureLimit), Log: func(line string) { log.Warn(line) }})
			if err != nil {
				return nil, err
			}
			cfg.Dial, cfg.Listen = f.Dial(cfg.Dial), f.Listen(cfg.Listen)
		}
		return iwarp.Open(cfg)
	}
	_, device, _ := strings.Cut(c.Daemon.Provider, ":")
	dev, err := ibverbs.Open(ibverbs.Config{Device: device, At: c.Daemon.Listen})
	if err != nil && !ibverbs.Built {
		err = usageError{err}
	}
	return dev, err
}

// pinnedSlot is the size of a slot, in bytes, where registering pins memory. It is enough for
// nearly every source, and small enough to keep whole in memory: otherwise each job would wait
// for its pages to be made.
const pinnedSlot = 8 << 20

// slotSize returns the size of the daemon's slots and how much of each is kept in memory, both
// in bytes.
func slotSize(c *config.Config) (slot, prefault int64) {
	slot, prefault = int64(c.Buffers.Slot), int64(c.Buffers.Prefault)
	if c.Daemon.Provider == "soft" {
		return slot, prefault
	}
	if c.Origin("buffers.slot") == "default" {
		slot = min(slot, pinnedSlot)
	}
	if c.Origin("buffers.prefault") == "default" {
		prefault = slot
	}
	return slot, prefault
}
