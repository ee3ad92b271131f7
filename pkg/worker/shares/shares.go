// Package shares divides a scarce number of things, such as credits, fairly by weight and need.
package shares

import (
	"math"
	"slices"
)

// Claim is one party's claim to a share.
type Claim struct {
	Weight int // > 0
	Need   int // the most that it can use, up to Unlimited
}

// Unlimited is the need of a claim that can use any number.
const Unlimited = math.MaxInt32

// Divide divides total among the claims and returns what each gets. The division is weighted max-min fair, to
// within one: no claim gets more than it needs, a claim that needs no more than its part by weight gets all
// that it needs, and what it leaves is divided among the others in the same way. So either every need is met
// or all of total is given out. Among equals, the first gets the odd one.
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
		// All claims of one pass are compared with the same level. Later passes give none of them less than
		// that.
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
