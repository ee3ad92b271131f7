package connmgr

import (
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// TestResultsThatTellTime: a result with the date or the time of its compile is recognized, in any time zone.
func TestResultsThatTellTime(t *testing.T) {
	at := time.Date(2026, 3, 4, 23, 59, 58, 0, time.UTC)
	for text, want := range map[string]bool{
		"Mar  4 2026": true, "Mar  5 2026": true, "Mar  3 2026": true, "Mar  6 2026": false, "Mar 14 2026": false, "Mar  4 2025": false,
		"x23:59:58y": true, "04:59:57": true, "00:00:01": true, "09:30:02": false, "23:59:40": false, "00:00:09": false,
		"99:59:58": false, "3:59:58": false, "23:59:5": false, ":59:58": false, "": false, "a::b::c": false,
	} {
		if got := tellsTime([]resultcache.File{{Data: []byte("other")}, {Data: []byte(text)}}, at.Add(-time.Second), at.Add(time.Second)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	for word, want := range map[string]bool{"-DX=__TIME__": true, "-DX=__DATE": true, "-DY=TIME__": true, "-DTIME": false, "-D__TIMESTAMP__=\"x\"": true, "a.c": false} {
		if got := readsClock([]string{"-c", word}); got != want {
			t.Errorf("%s: %v", word, got)
		}
	}
}
