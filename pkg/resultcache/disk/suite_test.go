package disk

import (
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/storetest"
)

func TestSuite(t *testing.T) {
	s, _ := open(t, t.TempDir(), parts*mostOfPart*2*storetest.Large)
	storetest.Suite(t, s)
}
