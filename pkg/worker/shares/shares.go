// Package shares divides what there is too little of, fairly.
package shares

import (
	"math"
	"slices"
)

// Claim is what one asks of what is divided.
type Claim struct {
	Weight int // > 0
	Need   int // that it has use for, at most Unlimited
}

// Unlimited is the need of who can use whatever there is.
const Unlimited = math.MaxInt32

// Divide shares total out, credits say, and tells what each claim gets: weighted max-min,
// within one. Nobody gets more than it needs; who needs no more than its part by weight
// gets all that, and what it leaves is divided among the others in the same way. So either
// every need is met or all of it is given. Of equals the first gets the odd one.
func Divide(total int, claims []Claim) []int {
	got := make([]int, len(claims))
	open := make([]int, 0, len(claims)) // claims that are not met yet
	weights := 0
	for i, c := range claims {
		if c.Need > 0 {
			open = append(open, i)
			weights += c.Weight
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
			if c.Need*w > l*c.Weight {
				return false
			}
			got[i] = c.Need
			left -= c.Need
			weights -= c.Weight
			again = true
			return true
		})
	}
	if len(open) == 0 {
		return got
	}
	odd := left
	for _, i := range open {
		got[i] = left * claims[i].Weight / weights
		odd -= got[i]
	}
	// The largest remainders get the odd ones: each is short of its exact part.
	slices.SortStableFunc(open, func(a, b int) int {
		return left*claims[b].Weight%weights - left*claims[a].Weight%weights
	})
	for _, i := range open[:odd] {
		got[i]++
	}
	return got
}
