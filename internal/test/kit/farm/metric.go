package farm

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Metric returns the sum of the program's samples whose line begins with prefix: a metric's name, perhaps with labels.
func (p Process) Metric(ctx context.Context, prefix string) (sum float64, err error) {
	text, err := p.Get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, prefix) {
			continue
		}
		line = strings.TrimSpace(line)
		v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("%q: %w", line, err)
		}
		sum += v
	}
	return sum, nil
}
