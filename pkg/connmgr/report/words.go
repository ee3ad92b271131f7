package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// SettingNotes returns what is wrong with the manager's settings and its host list, one line for each problem.
func (s *Status) SettingNotes() (notes []string) {
	if c := s.Config; c != nil {
		if c.Error != "" {
			notes = append(notes, "its configuration was edited and cannot be used, so the one before stays in force: "+c.Error)
		}
		if len(c.Restart) > 0 {
			notes = append(notes, "its configuration was edited, and takes a restart (rdistcc stop) for "+strings.Join(c.Restart, ", "))
		}
	}
	switch {
	case s.ListError != "" && s.ListKept:
		notes = append(notes, "its host list was edited and cannot be used, so the one before stays in force: "+s.ListError)
	case s.ListError != "":
		notes = append(notes, "its host list cannot be used: "+s.ListError)
	}
	return notes
}

// Word returns the host's state in a word.
func (s *HostStatus) Word() string {
	switch {
	case s.Drained:
		return "drained"
	case s.DoubtMS > 0:
		return "quarantined"
	}
	return s.State
}

// DoubtCounts returns the reasons for which the compiler was asked, each followed by its number of jobs, the
// most frequent first.
func (c *InputCounts) DoubtCounts() (list []string) {
	words := slices.SortedFunc(maps.Keys(c.Doubts), func(a, b string) int {
		return cmp.Or(cmp.Compare(c.Doubts[b], c.Doubts[a]), cmp.Compare(a, b))
	})
	for _, why := range words {
		list = append(list, fmt.Sprintf("%s %d", why, c.Doubts[why]))
	}
	return list
}

// KnownBy maps each of InputWords to its meaning, for the user.
var KnownBy = map[string]string{
	"scan": "known from the files",
	"memo": "known, as the compiler has listed them before",
	"list": "listed by the compiler here",
	"text": "preprocessed here",
}

// The outcomes of an audit.
const (
	AuditSame    = "same"
	AuditDiffers = "differs"          // one host's result is the odd one out
	AuditUnsound = "not-reproducible" // one host gives different results
	AuditOpen    = "unsettled"        // two hosts differ, and there is no third to decide
	AuditVoid    = "void"             // there is no second result
)

// AuditWords are all outcomes of an audit.
var AuditWords = []string{AuditSame, AuditDiffers, AuditUnsound, AuditOpen, AuditVoid}
