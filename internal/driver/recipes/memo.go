package recipes

import (
	"sync"
	"sync/atomic"
)

// memo keeps one answer a key. Full, it starts over, which is rare and simple and costs
// one question a key. Its zero value is ready for use by any number of goroutines.
type memo[V any] struct {
	mu      sync.Mutex
	answers map[string]*answer[V] // guarded by mu
}

type answer[V any] struct {
	once sync.Once
	v    V // written once; read when known, or behind once
	done atomic.Bool
}

// get returns the answer to key, which the first caller finds by ask; others wait for it.
// limit is how many answers are kept.
func (m *memo[V]) get(key string, limit int, ask func() V) V {
	m.mu.Lock()
	a := m.answers[key]
	if a == nil {
		if m.answers == nil || len(m.answers) >= limit {
			m.answers = make(map[string]*answer[V])
		}
		a = &answer[V]{}
		m.answers[key] = a
	}
	m.mu.Unlock()
	a.once.Do(func() {
		a.v = ask()
		a.done.Store(true)
	})
	return a.v
}

// known returns the answer to key if there is one; asked says whether somebody at least
// wanted to know.
func (m *memo[V]) known(key string) (v V, asked bool) {
	m.mu.Lock()
	a := m.answers[key]
	m.mu.Unlock()
	if a == nil || !a.done.Load() {
		return v, a != nil
	}
	return a.v, true
}

func (m *memo[V]) len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.answers)
}

// forget has the next one ask again.
func (m *memo[V]) forget(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.answers, key)
}
