package recipes

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxAssemblers bounds an AssemblerCache. A machine has few compilers.
const maxAssemblers = 256

// AssemblerCache remembers of which drivers the assembler names all files that it reads. Its zero value is ready for concurrent use.
type AssemblerCache struct {
	tells memo[bool]
}

// assembled has the assembler read a file whose directive it alone can put together.
const assembled = ".macro reads a b\n.\\a\\b \"data\"\n.endm\nreads inc,bin\n"

// Tells reports whether the assembler of the driver at path, identified by id, writes a rule for make that names all files that it
// reads, as GNU's does (--MD). It is tried, once.
func (c *AssemblerCache) Tells(ctx context.Context, id, path string, env []string) bool {
	return c.tells.get(key(id, path, nil, nil), maxAssemblers, func() bool {
		dir, err := os.MkdirTemp("", "rdistcc-assembler-")
		if err != nil {
			return false
		}
		defer os.RemoveAll(dir)
		for name, text := range map[string]string{"data": "data", "t.s": assembled} {
			if os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600) != nil {
				return false
			}
		}
		a := asker{ctx, path, env, dir}
		if _, _, err := a.ask("", "-c", "-o", "t.o", "-Wa,--MD,t.d", "t.s"); err != nil {
			return false
		}
		rule, err := os.ReadFile(filepath.Join(dir, "t.d"))
		return err == nil && slices.Equal(strings.Fields(string(rule)), []string{"t.o:", "data", "t.s"})
	})
}
