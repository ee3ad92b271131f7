package exp

import (
	"math"
	"strconv"
)

// Short returns a number with three digits, in full where that is at most seven characters.
func Short(v float64) string {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	digits := 2 - int(math.Floor(math.Log10(math.Abs(v))))
	if digits < 0 || digits > 5 {
		p := math.Pow(10, float64(digits))
		if v = math.Round(v*p) / p; digits > 5 {
			return strconv.FormatFloat(v, 'g', 3, 64)
		}
		digits = 0
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// Bytes returns a number of bytes with a binary unit.
func Bytes(n int) string {
	for _, u := range []struct {
		size int
		name string
	}{{1 << 30, " GiB"}, {1 << 20, " MiB"}, {1 << 10, " KiB"}} {
		if n >= u.size && n%u.size == 0 {
			return strconv.Itoa(n/u.size) + u.name
		}
	}
	return strconv.Itoa(n) + " B"
}
