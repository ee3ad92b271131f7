package rsocket

import (
	"os"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
)

func TestMain(m *testing.M) {
	if os.Getenv("RDISTCC_IBVERBS") != "" { // librdmacm keeps devices open once it has seen them
		os.Exit(m.Run())
	}
	iwarptest.Main(m)
}
