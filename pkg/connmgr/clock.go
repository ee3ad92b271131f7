package connmgr

import (
	"bytes"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// The inputs of a compile tell whether a file reads a clock (inputs.Set.Timed). What follows is for clocks that
// come from the command, or that a macro puts together from pieces: a result that has one is not kept.

// readsClock reports whether a word of a command names a clock.
func readsClock(args []string) bool {
	for _, w := range args {
		if strings.Contains(w, "__DATE") || strings.Contains(w, "__TIME") || strings.Contains(w, "DATE__") || strings.Contains(w, "TIME__") {
			return true
		}
	}
	return false
}

// clockSlack is how far a host's clock may be off, and aDay the same for its time zone.
const (
	clockSlack = 5 * time.Second
	aDay       = 24 * time.Hour
)

// tellsTime reports whether the outputs of a compile have its date or its time in them, which was between from and
// to. It may be wrong in rare cases, when other data look like that.
func tellsTime(files []resultcache.File, from, to time.Time) bool {
	dates := make([][]byte, 0, 3) // in the form of __DATE__
	for _, d := range [...]time.Duration{-aDay, 0, aDay} {
		dates = append(dates, []byte(to.Add(d).Format("Jan _2 2006")))
	}
	from, to = from.Add(-clockSlack), to.Add(clockSlack)
	for i := range files {
		b := files[i].Data
		for _, d := range dates {
			if bytes.Contains(b, d) {
				return true
			}
		}
		if hasTime(b, from, to) {
			return true
		}
	}
	return false
}

// hasTime reports whether b has a time in the form of __TIME__, hh:mm:ss, whose minute and second are between
// from and to. The hour depends on the time zone.
func hasTime(b []byte, from, to time.Time) bool {
	digits := func(p []byte) (n int, ok bool) {
		if p[0] < '0' || p[0] > '9' || p[1] < '0' || p[1] > '9' {
			return 0, false
		}
		return int(p[0]-'0')*10 + int(p[1]-'0'), true
	}
	start := from.Minute()*60 + from.Second()
	length := int(to.Sub(from)/time.Second) + 1
	for at := 0; ; {
		i := bytes.IndexByte(b[at:], ':')
		if i < 0 {
			return false
		}
		i += at
		at = i + 1
		if i < 2 || i+6 > len(b) || b[i+3] != ':' {
			continue
		}
		hour, ok1 := digits(b[i-2:])
		minute, ok2 := digits(b[i+1:])
		second, ok3 := digits(b[i+4:])
		if ok1 && ok2 && ok3 && hour < 24 && minute < 60 && second < 60 && (minute*60+second-start+3600)%3600 < length {
			return true
		}
	}
}
