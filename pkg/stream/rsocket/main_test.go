package rsocket

import (
	"testing"

	"github.com/rdistcc/rdistcc/pkg/iwarp/iwarptest"
)

func TestMain(m *testing.M) { iwarptest.Main(m) }
