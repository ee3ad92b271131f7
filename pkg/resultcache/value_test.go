package resultcache

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

// TestValue: a value comes back as it was kept, and only as what it was kept as.
func TestValue(t *testing.T) {
	key := ValueKeyOf("ccache", []byte("name"))
	for _, other := range []Key{ValueKeyOf("ccache", []byte("nam")), ValueKeyOf("ccach", []byte("ename")), ValueKeyOf("", []byte("ccachename"))} {
		if other == key {
			t.Error("different names have one key")
		}
	}
	for _, value := range [][]byte{nil, []byte("v"), bytes.Repeat([]byte("value"), 1000)} {
		b, err := AppendValue([]byte("before"), key, Origin{Made: time.Unix(1, 0), Compiler: "ccache"}, value)
		if err != nil {
			t.Fatal(err)
		}
		e, err := Decode(b[len("before"):], key, func(n int) ([]byte, error) { return make([]byte, n), nil })
		if err != nil {
			t.Fatal(err)
		}
		if got, err := e.Value(); err != nil || !bytes.Equal(got, value) || e.Compiler != "ccache" {
			t.Errorf("%q, %v; want %q", got, err, value)
		}
	}
	for _, e := range []*Entry{{}, {Exit: 1, Files: []File{{}}}, {Stderr: []byte("x"), Files: []File{{}}}, {Files: []File{{Index: 1}}}, {Files: []File{{}, {Index: 1}}}} {
		if _, err := e.Value(); !errors.Is(err, ErrDamaged) {
			t.Errorf("%+v is a value: %v", e, err)
		}
	}
}
