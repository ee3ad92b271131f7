//go:build !ibverbs || !cgo || !linux

package ibverbs

import (
	"strings"
	"testing"
)

// TestWithoutTag says how to get what is not here, in one line.
func TestWithoutTag(t *testing.T) {
	dev, err := Open(Config{})
	if Built || dev != nil || err == nil || !strings.Contains(err.Error(), "make ibverbs") || strings.Contains(err.Error(), "\n") {
		t.Errorf("Open: %v, %v", dev, err)
	}
}
