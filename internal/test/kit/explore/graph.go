package explore

// graph is what follows each state without a choice. States are added in the order of their numbers.
type graph struct {
	to   []int32 // states that follow
	ends []int   // of each state's part of to
}

func (g *graph) add(to int32) { g.to = append(g.to, to) }

// end says that what is added next follows the next state.
func (g *graph) end() { g.ends = append(g.ends, len(g.to)) }

// restless returns the first state from which none is reached that nothing follows; -1: there is none.
func (g *graph) restless() int32 {
	n := len(g.ends)
	// The same graph backwards: from is by the state that follows.
	first := make([]int32, n+1)
	for _, to := range g.to {
		first[to+1]++
	}
	for i := range n {
		first[i+1] += first[i]
	}
	from, at := make([]int32, len(g.to)), append([]int32(nil), first...)
	rests := make([]bool, n)
	var reached []int32
	for i, k := 0, 0; i < n; i++ {
		if k == g.ends[i] {
			rests[i] = true
			reached = append(reached, int32(i))
		}
		for ; k < g.ends[i]; k++ {
			from[at[g.to[k]]] = int32(i)
			at[g.to[k]]++
		}
	}
	for len(reached) > 0 {
		i := reached[len(reached)-1]
		reached = reached[:len(reached)-1]
		for _, j := range from[first[i]:first[i+1]] {
			if !rests[j] {
				rests[j] = true
				reached = append(reached, j)
			}
		}
	}
	for i, ok := range rests {
		if !ok {
			return int32(i)
		}
	}
	return -1
}
