package main

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/config"
)

// closeUp protects what a manager with keys holds from other processes of its user: it
// cannot be traced, its memory cannot be read, and it dumps no core. The compilers and other
// programs that it starts are traceable again once they have been executed.
func closeUp(c *config.Config) error {
	if c.Auth.PSKFile == "" && c.Auth.TLS.Key == "" {
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("keep keys from other processes: %w", err)
	}
	return nil
}
