// Package standin is a stand-in for gcc: a compiler that takes as long as a comment in
// the source says (src/gcc.c), for tests of what is around compilers.
package standin

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os/exec"
)

//go:embed src/gcc.c
var source []byte

// Build has a gcc make the stand-in, as file. It is static, as tests start hundreds of it.
func Build(ctx context.Context, gcc, file string) error {
	cmd := exec.CommandContext(ctx, gcc, "-O2", "-static", "-s", "-o", file, "-x", "c", "-")
	cmd.Stdin = bytes.NewReader(source)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("the stand-in compiler: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
