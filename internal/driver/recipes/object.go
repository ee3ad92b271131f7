package recipes

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxObjects bounds an ObjectCache: a build has few sets of options that determine the kind of object.
const maxObjects = 256

// objectHead is how much of an object is kept, in bytes.
const objectHead = 64

// ObjectCache keeps the first bytes of the objects that compilers here make. Its zero value is ready for
// concurrent use.
type ObjectCache struct{ heads memo[[]byte] }

// Get returns the first bytes of the object that the compiler path, identified by id, makes of an empty
// source of the language, with the words of a command that determine the kind of object. It asks once for
// each combination, which takes an empty compile: 20 ms with gcc. nil: the compiler made no object.
func (c *ObjectCache) Get(ctx context.Context, id, path, language string, words, env []string) []byte {
	return c.heads.get(id+"\x00"+path+"\x00"+language+"\x00"+strings.Join(words, "\x00"), maxObjects, func() []byte {
		if isScript(path) {
			return nil // it might do more than compile
		}
		// In our own memory: a manager that is killed meanwhile leaves no file.
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
		n, _ := f.ReadAt(head, 0) // io.EOF if the object is shorter
		return head[:n]
	})
}
