package need

import (
	"fmt"
	"strings"
	"testing"
)

// judge records how a test ended.
type judge struct {
	testing.TB
	what string
}

func (j *judge) Helper()                           {}
func (j *judge) Skipf(format string, args ...any)  { j.end("skip: " + fmt.Sprintf(format, args...)) }
func (j *judge) Fatalf(format string, args ...any) { j.end("fail: " + fmt.Sprintf(format, args...)) }

func (j *judge) end(what string) {
	j.what = what
	panic(j) // as the real ones, does not return
}

func TestSkipf(t *testing.T) {
	for _, c := range []struct{ required, want string }{
		{"", "skip: no clang"},
		{"sandbox", "skip: no clang"},
		{"tools", "fail: RDISTCC_TEST_REQUIRE has \"tools\", but: no clang"},
		{"sandbox,network,tools", "fail: RDISTCC_TEST_REQUIRE has \"tools\", but: no clang"},
		{"sandbox tools", "fail: RDISTCC_TEST_REQUIRE has \"tools\", but: no clang"},
		{"tool", `fail: RDISTCC_TEST_REQUIRE has "tool"; it knows ["sandbox" "network" "tools" "stores"]`},
	} {
		t.Setenv(Required, c.required)
		j := &judge{}
		func() {
			defer func() {
				if r := recover(); r != j {
					t.Errorf("%q: Skipf returned, or panicked: %v", c.required, r)
				}
			}()
			Skipf(j, Tools, "no %s", "clang")
		}()
		if !strings.HasPrefix(j.what, c.want) {
			t.Errorf("%q: %q, want %q", c.required, j.what, c.want)
		}
	}
}
