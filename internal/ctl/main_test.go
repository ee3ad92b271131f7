package ctl

import (
	"os"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/worker"
)

func TestMain(m *testing.M) {
	worker.RunHelper() // of the hosts that a doctor's tests start
	if dir := os.Getenv(lateManager); dir != "" {
		runLateManager(dir)
		return
	}
	os.Exit(m.Run())
}
