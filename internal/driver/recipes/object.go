package recipes

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxObjects bounds an ObjectCache: a build has few sets of options that say what kind
// of object comes out.
const maxObjects = 256

// objectHead is how much of an object is kept, in bytes.
const objectHead = 64

// ObjectCache keeps how the objects begin that a compiler here makes. Its zero value is
// ready for use, by any number of goroutines.
type ObjectCache struct{ heads memo[[]byte] }

// Get returns the first bytes of what the compiler path, identified by id, makes of an
// empty source of the language with the words of a command that say what kind of
// object comes out. It is asked once for each, which takes a compile of nothing: 20 ms of
// gcc. nil: it made nothing.
func (c *ObjectCache) Get(ctx context.Context, id, path, language string, words, env []string) []byte {
	return c.heads.get(id+"\x00"+path+"\x00"+language+"\x00"+strings.Join(words, "\x00"), maxObjects, func() []byte {
		if isScript(path) {
			return nil // which might do more than compile
		}
		// In memory of ours: a manager that is killed meanwhile leaves no file.
		fd, err := unix.MemfdCreate("rdistcc-object", unix.MFD_CLOEXEC)
		if err != nil {
			return nil
		}
		f := os.NewFile(uintptr(fd), "object")
		defer f.Close()
		ctx, cancel := context.WithTimeout(ctx, askLimit)
		defer cancel()
		cmd := exec.CommandContext(ctx, path, append(slices.Clone(words), "-x", language, "-c", "-o", "/proc/self/fd/3", "/dev/null")...)
		cmd.Env, cmd.Dir, cmd.ExtraFiles = env, "/", []*os.File{f}
		if cmd.Run() != nil {
			return nil
		}
		head := make([]byte, objectHead)
		n, _ := f.ReadAt(head, 0) // short of what there is: io.EOF
		return head[:n]
	})
}
