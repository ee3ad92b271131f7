package report

import "maps"

// InputWords are the values of JobRecord.Inputs, the best first: known from the files, known as the
// compiler had said so before, listed by the compiler, and not known, as it was preprocessed.
var InputWords = []string{"scan", "memo", "list", "text"}

// InputCounts counts the jobs since the manager started by how it was known what they read.
type InputCounts struct {
	Scan uint64 `json:"scan"`
	Memo uint64 `json:"memo"`
	List uint64 `json:"list"`
	Text uint64 `json:"text"`
	// Doubts are the jobs for which the compiler on this machine was asked, by why. Some of them
	// may have ended before there was an answer.
	Doubts map[string]uint64 `json:"doubts,omitempty"`
}

// add counts a command that has ended.
func (c *InputCounts) add(r *JobRecord) {
	if n := c.of(r.Inputs); n != nil {
		*n++
	}
	if r.Doubt != "" {
		if c.Doubts == nil {
			c.Doubts = make(map[string]uint64)
		}
		c.Doubts[r.Doubt]++
	}
}

// of returns the counter of a word, or nil if it is none of InputWords.
func (c *InputCounts) of(how string) *uint64 {
	switch how {
	case "scan":
		return &c.Scan
	case "memo":
		return &c.Memo
	case "list":
		return &c.List
	case "text":
		return &c.Text
	}
	return nil
}

// Of returns how many jobs' inputs were known in the way that one of InputWords names.
func (c *InputCounts) Of(how string) uint64 {
	if n := c.of(how); n != nil {
		return *n
	}
	return 0
}

// All returns how many jobs there were.
func (c *InputCounts) All() uint64 { return c.Scan + c.Memo + c.List + c.Text }

// Inputs are all commands that a host had, or was to have, by how it was known what they read.
func (b *Book) Inputs() InputCounts {
	c := b.sums.inputs
	c.Doubts = maps.Clone(c.Doubts)
	return c
}
