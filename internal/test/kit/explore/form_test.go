package explore

import (
	"bytes"
	"testing"
	"time"
)

type node struct {
	next *node
	back any // *node
	id   uint64
	part map[uint64]*node
	list []*node
	at   time.Time
	load float64
	seen int
}

// ring returns two nodes that refer to each other in every way.
func ring(a, b uint64) *node {
	x, y := &node{id: a}, &node{id: b}
	x.next, y.next, x.back, y.back = y, x, y, x
	x.part, y.list = map[uint64]*node{1: y, 2: x}, []*node{x, y, nil}
	return x
}

func form() *Form {
	f := NewForm()
	f.Number("id", node{}, "id")
	f.Skip(node{}, "seen")
	return f
}

// TestCopyIsApart: a copy has the same key, and shares nothing with the original.
func TestCopyIsApart(t *testing.T) {
	f := form()
	x := ring(1, 2)
	before := Key(f, nil, x)
	y := Copy(f, x)
	if !bytes.Equal(Key(f, nil, y), before) {
		t.Fatal("a copy has another key")
	}
	if y == x || y.next == x.next || y.next.next != y || y.back != any(y.next) || y.part[1] != y.next || y.part[2] != y || y.next.list[0] != y {
		t.Fatalf("the copy is not closed: %+v, %+v", y, y.next)
	}
	for name, change := range map[string]func(n *node){
		"time": func(n *node) { n.at = time.Unix(1, 0) }, "float": func(n *node) { n.load = 0.5 },
		"slice": func(n *node) { n.next.list[2] = n }, "map": func(n *node) { n.part[3] = n }, "pointer": func(n *node) { n.next.next = nil },
		"interface": func(n *node) { n.back = nil }, "name": func(n *node) { n.id = n.next.id },
	} {
		y := Copy(f, x)
		if change(y); bytes.Equal(Key(f, nil, y), before) {
			t.Errorf("%s: a difference that the key does not show", name)
		}
		if !bytes.Equal(Key(f, nil, x), before) {
			t.Errorf("%s: the copy shares it with the original", name)
		}
	}
}

// TestNames: only which names are equal matters, and skipped fields do not.
func TestNames(t *testing.T) {
	f := form()
	x, y := ring(1, 2), ring(7, 3)
	y.seen = 5
	if !bytes.Equal(Key(f, nil, x), Key(f, nil, y)) {
		t.Error("other names make another key")
	}
	if bytes.Equal(Key(f, nil, x), Key(f, nil, ring(7, 7))) {
		t.Error("one name looks like two")
	}
}
