package recipes

import (
	"sync"
	"sync/atomic"
)

// memo keeps one answer for each key. When it is full it starts over, which is rare, simple, and costs one
// question for each key. Its zero value is ready for concurrent use.
type memo[V any] struct {
	mu      sync.Mutex
	answers map[string]*answer[V] // guarded by mu
}

type answer[V any] struct {
	once sync.Once
	v    V // written once; read when known, or after once
	done atomic.Bool
}

// get returns the answer to key, which the first caller finds by ask; others wait for it. limit bounds the
// number of answers kept.
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

// known returns the answer to key if there is one; asked reports whether it has at least been asked for.
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

// forget makes the next caller ask again.
func (m *memo[V]) forget(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.answers, key)
}
