package toolchain

import (
	"path/filepath"
	"testing"
	"time"
)

// TestVersionWithModel: the version of Debian's gcc for Windows ends in a model of threads.
func TestVersionWithModel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x86_64-w64-mingw32-gcc")
	write(t, path, "#!/bin/sh\necho 'Target: x86_64-w64-mingw32' >&2\necho 'gcc version 12-win32 (GCC) ' >&2\n")
	f := newFinding(t.Context(), time.Minute, "", Env{})
	f.tc.Exec = path
	if err := f.describe(); err != nil || f.tc.Family != "gcc" || f.tc.Major != 12 || f.tc.Version != "12-win32" {
		t.Errorf("%+v, %v", f.tc, err)
	}
}
