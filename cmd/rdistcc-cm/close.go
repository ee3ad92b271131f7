package main

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/config"
)

// closeUp keeps what a manager with keys holds from other processes of its user: it
// cannot be traced, its memory not be read, and no core dump has it. Compilers, and what
// else it starts, are open again from their exec on.
func closeUp(c *config.Config) error {
	if c.Auth.PSKFile == "" && c.Auth.TLS.Key == "" {
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("keep keys from other processes: %w", err)
	}
	return nil
}
