package farm

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// Build builds the programs into dir as `make` does, for tests, which may be
// run without it.
func Build(ctx context.Context, dir string) error {
	args := []string{"build", "-trimpath", "-o", dir + "/"}
	for _, p := range []string{"rdistcc", "rdistcc-cm", "rdistccd"} {
		args = append(args, "github.com/rdistcc/rdistcc/cmd/"+p)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
