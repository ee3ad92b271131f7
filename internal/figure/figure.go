// Package figure formats for people: amounts, durations and shares, with only meaningful digits, and names of files.
package figure

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Count formats a number of things: "1 file", "2 files".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %s", n, plural(what))
}

func plural(what string) string {
	if stem, ok := strings.CutSuffix(what, "ry"); ok {
		return stem + "ries"
	}
	return what + "s"
}

// Age formats a duration in its two largest units.
func Age(d time.Duration) string {
	day := 24 * time.Hour
	switch {
	case d >= day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%ds", max(d, 0)/time.Second)
}

// Milliseconds formats a duration in milliseconds; a short one has tenths of a second.
func Milliseconds(ms int64) string {
	if ms < 10000 {
		return fmt.Sprintf("%.1f s", float64(ms)/1000)
	}
	return Age(time.Duration(ms) * time.Millisecond)
}

// Percent formats the share of part in of; if of is 0 it is 0%.
func Percent(part, of uint64) string {
	return fmt.Sprintf("%.0f%%", 100*float64(part)/float64(max(of, 1)))
}

// Micros formats a duration in microseconds with three digits.
func Micros(us uint64) string { return Digits(time.Duration(us) * time.Microsecond) }

// Digits formats a duration with three digits.
func Digits(d time.Duration) string {
	unit, name := time.Second, "s"
	switch {
	case d >= 100*time.Second:
		return Age(d)
	case d < time.Millisecond:
		unit, name = time.Microsecond, "us"
	case d < time.Second:
		unit, name = time.Millisecond, "ms"
	}
	return fmt.Sprintf("%.3g %s", float64(d)/float64(unit), name)
}

// Bytes formats a number of bytes with three digits.
func Bytes(n uint64) string {
	x := float64(n)
	for _, u := range []string{"B", "KiB", "MiB", "GiB"} {
		if x < 1000 {
			if u == "B" || x >= 100 {
				return fmt.Sprintf("%.0f%s", x, u)
			}
			return fmt.Sprintf("%.1f%s", x, u)
		}
		x /= 1024
	}
	return fmt.Sprintf("%.1fTiB", x)
}

// Near returns a file's name as it is seen from dir, if it is below.
func Near(dir, name string) string {
	if rest, ok := strings.CutPrefix(name, dir+"/"); ok && dir != "" {
		return rest
	}
	return name
}

// Printable returns a name as it is if it can be printed, else as a string of Go has it, without the quotes around it: what cannot
// be seen, turns the direction of text or drives a terminal is written out.
func Printable(name string) string {
	for _, c := range name {
		if !strconv.IsPrint(c) || c == utf8.RuneError {
			quoted := strconv.Quote(name)
			return quoted[1 : len(quoted)-1]
		}
	}
	return name
}
