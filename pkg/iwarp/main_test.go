package iwarp_test

import (
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
)

// No test leaves a goroutine or a descriptor behind.
func TestMain(m *testing.M) { iwarptest.Main(m) }
