package rdistcc

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/builds"
	"github.com/rdistcc/rdistcc/internal/comparison"
	"github.com/rdistcc/rdistcc/internal/costs"
	"github.com/rdistcc/rdistcc/internal/costs/trial"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/worker"
)

// TestKeysAreSnakeCase: what the programs answer in JSON (status, stats, hosts, why and
// others with --json, /status.json) has keys of one style.
func TestKeysAreSnakeCase(t *testing.T) {
	seen := make(map[reflect.Type]bool)
	for _, v := range []any{report.Status{}, report.Stats{}, report.Why{}, report.Kept{}, report.Places{}, report.Drained{}, report.Reloaded{}, report.Toolchain{}, report.BuildJobs{}, report.Journal{}, builds.Build{}, comparison.Comparison{}, costs.Report{}, costs.Once{}, trial.Result{}, worker.Status{}} {
		keysOf(t, reflect.TypeOf(v), seen)
	}
	if len(seen) < 20 {
		t.Errorf("looked at %d types only", len(seen))
	}
}

var snakeCase = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// keysOf looks at the keys of a type in JSON, and of those that it holds.
func keysOf(t *testing.T, typ reflect.Type, seen map[reflect.Type]bool) {
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		keysOf(t, typ.Elem(), seen)
		return
	case reflect.Struct:
	default:
		return
	}
	if seen[typ] || typ == reflect.TypeFor[time.Time]() || typ.Implements(reflect.TypeFor[json.Marshaler]()) {
		return
	}
	seen[typ] = true
	for i := range typ.NumField() {
		f := typ.Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case !f.IsExported() || key == "-":
			continue
		case f.Anonymous && key == "":
		case !snakeCase.MatchString(key):
			t.Errorf("%s.%s has the key %q in JSON", typ, f.Name, key)
		}
		keysOf(t, f.Type, seen)
	}
}
