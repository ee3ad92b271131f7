package report

import "maps"

// InputWords are the values of JobRecord.Inputs, the best first: known from the files, known from an earlier
// list of the compiler, listed by the compiler, and not known because the source was preprocessed.
var InputWords = []string{"scan", "memo", "list", "text"}

// InputCounts counts the jobs since the manager started by how the manager knew what they read.
type InputCounts struct {
	Scan uint64 `json:"scan"`
	Memo uint64 `json:"memo"`
	List uint64 `json:"list"`
	Text uint64 `json:"text"`
	// Doubts counts the jobs for which the compiler on this machine was asked, by reason. Some of them may have
	// ended before it answered.
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

// of returns the counter of a word, or nil if the word is not one of InputWords.
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

// Of returns how many jobs' inputs were known in the way that how names, one of InputWords; 0 for other words.
func (c *InputCounts) Of(how string) uint64 {
	if n := c.of(how); n != nil {
		return *n
	}
	return 0
}

// All returns the number of all these jobs.
func (c *InputCounts) All() uint64 { return c.Scan + c.Memo + c.List + c.Text }

// Inputs returns how many commands were compiled on a host, or were meant to be, by how the manager knew what
// they read.
func (b *Book) Inputs() InputCounts {
	c := b.sums.inputs
	c.Doubts = maps.Clone(c.Doubts)
	return c
}

// Known is how much a manager knows of what commands read.
type Known struct {
	Commands int   `json:"commands"`
	Files    int   `json:"files"`
	Bytes    int64 `json:"bytes"`      // that it takes, about
	Most     int64 `json:"most_bytes"` // at most (manager.inputs)
	// Dropped counts the commands that went for want of memory. Their files are looked at anew when they come again.
	Dropped uint64 `json:"dropped"`
	// Directories are watched for changes by the kernel. If Short, there are more than it watches, each of which is looked at for each job.
	Directories Directories `json:"directories"`
	// Searches is what was seen of compilers that were watched while they looked for headers.
	Searches Searches `json:"searches"`
}

// Directories says how many directories the kernel watches for a manager.
type Directories struct {
	Watched int  `json:"watched"`
	Most    int  `json:"most"` // 0: none can be watched, or none was wanted yet
	Short   bool `json:"short"`
}

// Searches counts combinations of a compiler, words, variables and texts.
type Searches struct {
	Watched int    `json:"watched"`
	Here    int    `json:"here"`              // how many of them stay on the build host (not-reproducible:sought)
	Because string `json:"because,omitempty"` // what the compiler of the latest of these has looked up
	Unseen  bool   `json:"unseen"`            // compilers cannot be watched on this system
}
