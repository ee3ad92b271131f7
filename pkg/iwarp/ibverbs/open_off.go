//go:build !ibverbs || !cgo || !linux

package ibverbs

import (
	"errors"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Built reports whether this binary has the provider.
const Built = false

// Open fails: this binary lacks the provider.
func Open(Config) (iwarp.Device, error) {
	return nil, errors.New("ibverbs: this binary was built without it; build it with: make ibverbs (needs cgo, libibverbs-dev, librdmacm-dev)")
}
