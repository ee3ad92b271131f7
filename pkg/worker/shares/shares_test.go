package shares

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestDivide(t *testing.T) {
	for _, c := range []struct {
		name   string
		total  int
		claims []Claim
		want   []int
	}{
		{"nobody", 4, nil, []int{}},
		{"alone", 4, []Claim{{1, Unlimited}}, []int{4}},
		{"no more than needed", 8, []Claim{{1, 3}}, []int{3}},
		{"two alike", 8, []Claim{{1, 8}, {1, 8}}, []int{4, 4}},
		{"what one leaves others get", 9, []Claim{{1, 1}, {1, 20}, {1, 20}}, []int{1, 4, 4}},
		{"by weight", 9, []Claim{{2, 20}, {1, 20}}, []int{6, 3}},
		{"a heavy one with little to do", 9, []Claim{{8, 2}, {1, 20}}, []int{2, 7}},
		{"odd ones to the first", 5, []Claim{{1, 9}, {1, 9}, {1, 9}}, []int{2, 2, 1}},
		{"fewer than clients", 2, []Claim{{1, 9}, {1, 9}, {1, 9}}, []int{1, 1, 0}},
		{"no need", 4, []Claim{{1, 0}, {1, 0}}, []int{0, 0}},
		{"none left", 0, []Claim{{1, 5}}, []int{0}},
		{"fewer than none", -3, []Claim{{1, 5}}, []int{0}},
	} {
		if got := Divide(c.total, c.claims); !slices.Equal(got, c.want) {
			t.Errorf("%s: Divide(%d, %v) = %v, want %v", c.name, c.total, c.claims, got, c.want)
		}
	}
}

// TestDivideIsFair: for any claims, all credits are given out or all needs are met. No claim gets more than
// it needs, and a claim that is not met has, by weight, at most one credit less than any other.
func TestDivideIsFair(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		total := r.IntN(200)
		claims := make([]Claim, 1+r.IntN(12))
		needs := 0
		for i := range claims {
			claims[i] = Claim{1 + r.IntN(5), r.IntN(60)}
			if r.IntN(10) == 0 {
				claims[i].Need = Unlimited
			}
			needs += claims[i].Need
		}
		got := Divide(total, claims)
		given := 0
		for i, n := range got {
			if n < 0 || n > claims[i].Need {
				t.Fatalf("Divide(%d, %v) = %v: claim %d", total, claims, got, i)
			}
			given += n
		}
		if given != min(total, needs) {
			t.Fatalf("Divide(%d, %v) = %v: %d given", total, claims, got, given)
		}
		for i, n := range got {
			if n == claims[i].Need {
				continue
			}
			for j, m := range got {
				// (m-1)/wj <= (n+1)/wi: to move one would not make it fairer.
				if (m-1)*claims[i].Weight > (n+1)*claims[j].Weight {
					t.Fatalf("Divide(%d, %v) = %v: %d is short beside %d", total, claims, got, i, j)
				}
			}
		}
	}
}
