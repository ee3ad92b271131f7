package lend

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestUnprovenOfWhomMakeRoom: the tenant that has most unproven connections loses its oldest one; among
// equals, the oldest of all goes.
func TestUnprovenOfWhomMakeRoom(t *testing.T) {
	for _, q := range []struct {
		of   string // a letter a connection: its tenant; capitals have proven themselves
		want []int  // in this order
	}{
		{"ab" + strings.Repeat("c", 14), []int{2, 3, 4}},
		{strings.Repeat("c", 14) + "ba", []int{0, 1, 2}},
		{strings.Repeat("ab", 8), []int{0, 1, 2, 3}},
		{"aaaabbbbccccdddd", []int{0, 4, 8, 12, 1}},
		{"AAAAAAAA" + strings.Repeat("abcd", 4), []int{8, 9, 10}},
		{strings.Repeat("c", 15), nil}, // there is room
	} {
		l := New(Options{Cores: 1, Conns: 16})
		for i, r := range q.of {
			l.Connect(strings.ToLower(string(r)), r >= 'a').Owner = i
		}
		var got []int
		for i := range max(1, len(q.want)) {
			if out := l.MakeRoom(); out != nil {
				got = append(got, out.Owner.(int))
			}
			if len(q.want) > 0 { // the new one takes the place and proves itself; another stranger comes
				l.Connect(fmt.Sprint("another ", i), true).Owner = -1
			}
		}
		if !slices.Equal(got, q.want) {
			t.Errorf("%s: made room: %v, want %v", q.of, got, q.want)
		}
	}
}
