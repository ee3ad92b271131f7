package recipes

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/driver"
)

// askLimit bounds one question, which takes a driver 1 ms, or seconds on a busy machine. What is not answered is not asked again.
const askLimit = 10 * time.Second

// asker runs one compiler with the environment env in the directory dir.
type asker struct {
	ctx  context.Context
	path string
	env  []string
	dir  string
}

// ask returns what the driver prints on each output. The error is driver.ErrNotPlain for a script, which
// might do more than answer.
func (a *asker) ask(input string, args ...string) (stdout, stderr string, err error) {
	if isScript(a.path) {
		return "", "", driver.ErrNotPlain
	}
	ctx, cancel := context.WithTimeout(a.ctx, askLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, a.path, args...)
	cmd.Env, cmd.Dir = a.env, a.dir
	if input != "" {
		cmd.Stdin = strings.NewReader(input)
	}
	var out, words bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &words
	if err := cmd.Run(); err != nil {
		return out.String(), words.String(), fmt.Errorf("%s %s: %w", a.path, args[0], err)
	}
	return out.String(), words.String(), nil
}

func isScript(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return true
	}
	defer f.Close()
	var start [2]byte
	_, err = io.ReadFull(f, start[:])
	return err != nil || string(start[:]) == "#!"
}
