package main

import (
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/config"
)

func TestIdleExit(t *testing.T) {
	for _, tt := range []struct {
		text, ready string
		want        time.Duration
	}{
		{"", "3", 10 * time.Minute},
		{"", "", 0}, // somebody's own variable, or systemd's
		{"manager: {idle-exit: 1m}", "3", time.Minute},
		{"manager: {idle-exit: 1m}", "", time.Minute},
		{"manager: {idle-exit: 0}", "3", 0},
	} {
		c, err := config.Parse("f", []byte(tt.text))
		if err != nil {
			t.Fatal(err)
		}
		if got := idleExit(c, tt.ready != ""); got != tt.want {
			t.Errorf("settings %q, started by a wrapper: %t: idle exit after %v, want %v", tt.text, tt.ready != "", got, tt.want)
		}
	}
}
