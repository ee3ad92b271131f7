package recipes

import (
	"context"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/driver"
)

// maxFlags bounds a FlagCache. A build has few words that the tables lack.
const maxFlags = 1024

// FlagCache remembers which words compilers take for flags. Its zero value is ready for concurrent use.
type FlagCache struct {
	flags memo[bool]
}

// Takes reports whether the compiler at path, identified by id, takes word for a flag that changes code alone. Its driver
// accepts the word by itself, says nothing about it, and passes it on as it is, or what a feature of the target is called. A
// -f word must be among the optimizations that gcc lists: others may write files, and clang does not tell them apart.
func (c *FlagCache) Takes(ctx context.Context, id, path, family, word string, env []string) bool {
	a := asker{ctx, path, env, "/"}
	return c.TakesBy(id, path, family, word, func(args []string) (string, error) {
		list, text, err := a.ask("", args...)
		return list + text, err
	})
}

// TakesBy is Takes for a caller that runs the driver itself.
func (c *FlagCache) TakesBy(id, path, family, word string, run Runner) bool {
	return c.flags.get(key(id, path, []string{family, word}, nil), maxFlags, func() bool {
		if isScript(path) {
			return false
		}
		with, ok := proper(run, word)
		if !ok {
			return false
		}
		without, ok := proper(run)
		if !ok {
			return false
		}
		more, less := beside(with, without), beside(without, with)
		if family == "gcc" {
			other := func(w string) bool { return !strings.HasPrefix(w, "-m") } // than a default that it replaces
			return !slices.ContainsFunc(less, other) && slices.Equal(more, []string{word}) && (!strings.HasPrefix(word, "-f") || optimizes(run, word))
		}
		return strings.HasPrefix(word, "-m") && !slices.ContainsFunc(append(more, less...), func(w string) bool { return w != word && !feature(w) })
	})
}

// optimizes reports whether gcc lists a -f word as an optimization.
func optimizes(run Runner, word string) bool {
	list, err := run([]string{"--help=optimizers"})
	if err != nil {
		return false
	}
	word = "-f" + strings.TrimPrefix(word[2:], "no-")
	for line := range strings.Lines(list) {
		if name := strings.Fields(line); len(name) > 0 && name[0] == word {
			return true
		}
	}
	return false
}

// proper returns the words of the compiler proper for a command that has words beside what it needs.
func proper(run Runner, words ...string) (cc1 []string, ok bool) {
	text, err := run(append(append([]string{"-###"}, words...), "-S", "-x", "c", "/dev/null", "-o", "x.s"))
	if err != nil {
		return nil, false
	}
	for line := range strings.Lines(text) {
		if driver.Tells(line) {
			return nil, false
		}
	}
	commands, err := driver.Commands(text)
	if err != nil || len(commands) != 1 {
		return nil, false
	}
	return commands[0][1:], true
}

// beside returns the words of a that b lacks, as often as it lacks them.
func beside(a, b []string) []string {
	left := slices.Clone(b)
	return slices.DeleteFunc(slices.Clone(a), func(w string) bool {
		i := slices.Index(left, w)
		if i >= 0 {
			left = slices.Delete(left, i, i+1)
		}
		return i >= 0
	})
}

// feature reports whether a word of clang's compiler proper names a feature of the target, or says that one follows.
func feature(w string) bool {
	return w == "-target-feature" || len(w) > 1 && (w[0] == '+' || w[0] == '-') && strings.Trim(w[1:], "abcdefghijklmnopqrstuvwxyz0123456789_.-") == ""
}
