package main

import (
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/capture"
)

// openDevice opens the manager's device, with its connections recorded if the settings ask for that.
func (d *daemon) openDevice() (iwarp.Device, error) {
	cfg := iwarp.Config{Dial: d.id.Dial}
	if path := d.cfg.Manager.Capture; path != "" {
		// It is written without a buffer, and ends with the process.
		f, err := capture.Create(path, capture.Options{Limit: int64(d.cfg.Log.CaptureLimit), Log: func(line string) { d.log.Warn(line) }})
		if err != nil {
			return nil, err
		}
		cfg.Dial = f.Dial(cfg.Dial)
	}
	return iwarp.Open(cfg)
}
