package connmgr

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
)

// nearest remembers the last command for each source, so that the user can be told why the cache has no result:
// what differs from that. It is safe for concurrent use.
type nearest struct {
	mu   sync.Mutex
	args map[string][]string // by the source's absolute name
}

// maxNearest bounds the sources that are remembered. When it is exceeded, all are forgotten.
const maxNearest = 4096

// swap remembers the words of the command for a source, and returns those of the command before.
func (n *nearest) swap(source string, args []string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	old := n.args[source]
	if n.args == nil || len(n.args) >= maxNearest && old == nil {
		n.args = make(map[string][]string)
	}
	n.args[source] = args
	return old
}

// mostNamed is how many words are named to the user.
const mostNamed = 3

// missed says in words for the user why the cache has no result for k.
func (m *Manager) missed(k *known.Job) string {
	old := m.nearest.swap(k.Set.Files[0].Name, k.Body.Args)
	if changed, n := k.Set.Changed(); n > 0 {
		names := slices.Clone(changed)
		for i, name := range names {
			if rel, err := filepath.Rel(k.Body.Cwd, name); err == nil && !strings.HasPrefix(rel, "../../") {
				names[i] = rel
			}
		}
		return "changed since the command ran last: " + list(names, n, "file")
	}
	if old != nil && !slices.Equal(old, k.Body.Args) {
		words := difference(k.Body.Args, old)
		return "its command differs from the last one for this source: " + list(words[:min(len(words), mostNamed)], len(words), "word")
	}
	return "no result of an equal compile is kept"
}

// list names some of n things, and says how many more there are.
func list(names []string, n int, what string) string {
	text := strings.Join(names, ", ")
	if more := n - len(names); more > 0 {
		text += fmt.Sprintf(" and %s more", figure.Count(more, what))
	}
	return text
}

// difference returns the words that only one of two commands has, with + if that is the new one, and otherwise
// with - in front; if they differ only in their order, that is said.
func difference(now, old []string) (words []string) {
	count := make(map[string]int)
	for _, w := range now {
		count[w]++
	}
	for _, w := range old {
		count[w]--
	}
	for _, w := range now {
		if count[w] > 0 {
			count[w]--
			words = append(words, "+ "+w)
		}
	}
	for _, w := range old {
		if count[w] < 0 {
			count[w]++
			words = append(words, "- "+w)
		}
	}
	if len(words) == 0 {
		return []string{"the order of its words"}
	}
	return words
}
