package worker

import (
	"math"
	"slices"
)

// claim is what one client asks of what is divided.
type claim struct {
	weight int // > 0
	need   int // credits that it has use for
}

// unlimited is the need of who can use whatever there is.
const unlimited = math.MaxInt32

// divide shares total credits out: weighted max-min, within one credit. Nobody gets
// more than it needs; who needs no more than its part by weight gets all that, and
// what it leaves is divided among the others in the same way. So either every need is
// met or all credits are given. Of equals the first gets the odd one.
func divide(total int, claims []claim) []int {
	got := make([]int, len(claims))
	open := make([]int, 0, len(claims)) // claims that are not met yet
	weights := 0
	for i, c := range claims {
		if c.need > 0 {
			open = append(open, i)
			weights += c.weight
		}
	}
	left := max(total, 0)
	for again := true; again && len(open) > 0; {
		again = false
		// All of one round against the same level: a smaller part than this one nobody
		// gets later.
		l, w := left, weights
		open = slices.DeleteFunc(open, func(i int) bool {
			c := claims[i]
			if c.need*w > l*c.weight {
				return false
			}
			got[i] = c.need
			left -= c.need
			weights -= c.weight
			again = true
			return true
		})
	}
	if len(open) == 0 {
		return got
	}
	odd := left
	for _, i := range open {
		got[i] = left * claims[i].weight / weights
		odd -= got[i]
	}
	// The largest remainders get the odd ones: each is short of its exact part.
	slices.SortStableFunc(open, func(a, b int) int {
		return left*claims[b].weight%weights - left*claims[a].weight%weights
	})
	for _, i := range open[:odd] {
		got[i]++
	}
	return got
}
