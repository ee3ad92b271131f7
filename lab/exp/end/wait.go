package end

import (
	"context"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Next moves at least one completion into wcs. How it waits is the CQ's own affair (iwarp.CQ.SetWaiting).
func Next(ctx context.Context, cq iwarp.CQ, wcs []iwarp.WC) (int, error) {
	for {
		if n := cq.Poll(wcs); n > 0 {
			return n, nil
		}
		if err := cq.Wait(ctx); err != nil {
			return 0, err
		}
	}
}
