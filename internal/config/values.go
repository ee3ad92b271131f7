package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes.
type Size int64

// Units of a Size.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
	GiB Size = 1 << 30
)

var units = []struct {
	name string
	size Size
}{{"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"B", 1}}

// String formats s in the largest unit that gives a whole number.
func (s Size) String() string {
	for _, u := range units {
		if s != 0 && s%u.size == 0 {
			return strconv.FormatInt(int64(s/u.size), 10) + u.name
		}
	}
	return "0"
}

// ParseSize parses "32MiB"; units are B, KiB, MiB, GiB. Only 0 needs none.
func ParseSize(text string) (Size, error) {
	if text == "0" {
		return 0, nil
	}
	for _, u := range units {
		digits, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 63)
		if err != nil || n > math.MaxInt64/uint64(u.size) {
			break
		}
		return Size(n) * u.size, nil
	}
	return 0, fmt.Errorf("%q is not a size; write a whole number and B, KiB, MiB or GiB, as in 32MiB", text)
}

func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration; write a number and ms, s, m or h, as in 30s", text)
	}
	if d < 0 {
		return 0, fmt.Errorf("%q is negative", text)
	}
	return d, nil
}

// parseValue parses text as a value of old's type.
func parseValue(old any, text string) (any, error) {
	switch old.(type) {
	case string:
		return text, nil
	case bool:
		switch text {
		case "true", "yes", "on":
			return true, nil
		case "false", "no", "off":
			return false, nil
		}
		return nil, fmt.Errorf("%q is not true or false", text)
	case int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not a whole number", text)
		}
		return n, nil
	case float64:
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number", text)
		}
		return v, nil
	case time.Duration:
		return parseDuration(text)
	case Size:
		return ParseSize(text)
	}
	panic(fmt.Sprintf("config: a field has type %T", old)) // the schema has a type that this switch lacks
}

// formatValue is the inverse of parseValue, as yaml.
func formatValue(v any) string {
	switch v := v.(type) {
	case string:
		return quote(v)
	case []string:
		words := make([]string, len(v))
		for i, w := range v {
			words[i] = quote(w)
		}
		return "[" + strings.Join(words, ", ") + "]"
	case time.Duration:
		return formatDuration(v)
	}
	return fmt.Sprint(v)
}

// formatDuration leaves out the zero parts that time.Duration prints: "5m" instead of "5m0s".
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// quote leaves words plain that yaml reads as the same string in a flow list.
func quote(s string) string {
	plain := s != ""
	for i := range len(s) {
		c := s[i]
		letter := c == '/' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		plain = plain && (letter || i > 0 && (c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_'))
	}
	switch s {
	case "true", "false", "yes", "no", "on", "off", "null", "y", "n":
		plain = false
	}
	if plain {
		return s
	}
	return strconv.Quote(s)
}
