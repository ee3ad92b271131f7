package ibverbs

import (
	"errors"
	"strings"
	"testing"
)

// TestChoose: of several devices it is the one that has the address, and what cannot be told is
// said with the remedy.
func TestChoose(t *testing.T) {
	owner := func(addr string) (string, error) {
		dev, ok := map[string]string{"10.0.0.1:7632": "siw0", "10.0.0.2:7632": "siw1", "10.0.0.3:7632": "mlx5_0"}[addr]
		if !ok {
			return "", errors.New("no address of a device")
		}
		return dev, nil
	}
	both := []string{"siw0", "siw1"}
	for what, c := range map[string]struct {
		devices    []string
		name       string
		at         []string
		want, fail string
	}{
		"by name":              {both, "siw1", []string{"10.0.0.1:7632"}, "siw1", ""},
		"a name that is none":  {both, "siw2", nil, "", "no device siw2"},
		"the only one":         {both[:1], "", []string{"0.0.0.0:7632"}, "siw0", ""},
		"none":                 {nil, "", nil, "", "no iWARP device here"},
		"by address":           {both, "", []string{"10.0.0.2:7632"}, "siw1", ""},
		"a wildcard beside it": {both, "", []string{"0.0.0.0:7632", "10.0.0.2:7632"}, "siw1", ""},
		"two of one":           {both, "", []string{"10.0.0.1:7632", "10.0.0.1:7632"}, "siw0", ""},
		"two devices":          {both, "", []string{"10.0.0.1:7632", "10.0.0.2:7632"}, "", "10.0.0.1:7632 belongs to siw0, and 10.0.0.2:7632 to siw1"},
		"no address":           {both, "", nil, "", "name one of siw0, siw1 (--provider ibverbs:DEVICE), or listen on an address of one"},
		"a wildcard":           {both, "", []string{"0.0.0.0:7632"}, "", "; 0.0.0.0:7632: no address of a device"},
		"another kind":         {both, "", []string{"10.0.0.3:7632"}, "", "10.0.0.3:7632 belongs to mlx5_0, which is no iWARP device"},
	} {
		got, err := choose(c.devices, c.name, c.at, owner)
		if got != c.want || (err == nil) != (c.fail == "") || err != nil && !strings.Contains(err.Error(), c.fail) {
			t.Errorf("%s: %q, %v; want %q, an error with %q", what, got, err, c.want, c.fail)
		}
	}
}
