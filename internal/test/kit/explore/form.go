package explore

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"time"
	"unsafe"
)

// Form knows how to copy the objects of a model, and what tells them apart. It looks into unexported fields, so that
// code under test needs neither a Clone nor an Equal for it. What is neither copied nor compared are functions, channels
// and locations of times. Two slices of one array are copied as two arrays, and no pointer may point into the middle of
// another object.
//
// A Form is for one goroutine.
type Form struct {
	skip   map[field]bool
	number map[field]string
	shared map[reflect.Type]bool
	types  map[reflect.Type]*kind

	spaces map[string]map[uint64]uint64
	done   map[unsafe.Pointer]unsafe.Pointer // scratch space of Copy
	seen   map[unsafe.Pointer]uint64         // and of Key
}

type field struct {
	of   reflect.Type
	name string
}

// kind is what is known of a type. copy, unset for a plain type, replaces all that a value that was copied plainly still
// shares with the original. key appends what tells a value from others. Both are looked up at the time of use, since a
// type may contain itself.
type kind struct {
	copy func(c *copying, at unsafe.Pointer)
	key  func(k *keying, at unsafe.Pointer)
}

type copying struct {
	done map[unsafe.Pointer]unsafe.Pointer
}

type keying struct {
	f    *Form
	b    []byte
	seen map[unsafe.Pointer]uint64
}

// NewForm returns a Form without special rules.
func NewForm() *Form {
	return &Form{skip: make(map[field]bool), number: make(map[field]string), shared: make(map[reflect.Type]bool), types: make(map[reflect.Type]*kind), spaces: make(map[string]map[uint64]uint64),
		done: make(map[unsafe.Pointer]unsafe.Pointer), seen: make(map[unsafe.Pointer]uint64)}
}

// Skip leaves fields of the struct x out of keys: scratch space, and what has no effect.
func (f *Form) Skip(x any, names ...string) {
	for _, n := range names {
		f.skip[fieldOf(x, n)] = true
	}
}

// Share says that what a pointer to x's type points to never changes, so that copies may have it too.
func (f *Form) Share(x any) { f.shared[reflect.TypeOf(x)] = true }

// Number says that a field of the struct x, an integer, is a name: only which fields of the same space are equal
// matters. In keys, names are counted in the order in which they appear; 0 stays 0.
func (f *Form) Number(space string, x any, name string) {
	f.number[fieldOf(x, name)] = space
	f.spaces[space] = make(map[uint64]uint64)
}

func fieldOf(x any, name string) field {
	t := reflect.TypeOf(x)
	if _, ok := t.FieldByName(name); !ok {
		panic(fmt.Sprintf("%v has no field %s", t, name))
	}
	return field{t, name}
}

// Copy returns a copy of x and of all that it refers to.
func Copy[T any](f *Form, x *T) *T {
	clear(f.done)
	c := copying{done: f.done}
	f.kind(reflect.TypeFor[*T]()).copy(&c, unsafe.Pointer(&x))
	return x
}

// Key appends to b what tells x, with all that it refers to, from others.
func Key[T any](f *Form, b []byte, x *T) []byte {
	for _, m := range f.spaces {
		clear(m)
	}
	clear(f.seen)
	k := keying{f: f, b: b, seen: f.seen}
	f.kind(reflect.TypeFor[*T]()).key(&k, unsafe.Pointer(&x))
	return k.b
}

var timeType = reflect.TypeFor[time.Time]()

// plain reports whether a copy of a value of type t shares nothing with it that could change.
func plain(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Slice, reflect.Pointer, reflect.Map, reflect.Interface:
		return false
	case reflect.Array:
		return plain(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if t != timeType && !plain(t.Field(i).Type) {
				return false
			}
		}
	}
	return true
}

// kind returns what is known of t, which may still be being found out.
func (f *Form) kind(t reflect.Type) *kind {
	k := f.types[t]
	if k != nil {
		return k
	}
	k = new(kind)
	f.types[t] = k
	if t == timeType {
		k.key = keyTime
		return k
	}
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr, reflect.Float32, reflect.Float64:
		k.key = keyNumber(t)
	case reflect.String:
		k.key = func(k *keying, at unsafe.Pointer) {
			s := *(*string)(at)
			k.b = append(binary.AppendUvarint(k.b, uint64(len(s))), s...)
		}
	case reflect.Struct:
		f.structKind(t, k)
	case reflect.Array:
		f.arrayKind(t, k)
	case reflect.Slice:
		f.sliceKind(t, k)
	case reflect.Pointer:
		f.pointerKind(t, k)
	case reflect.Map:
		f.mapKind(t, k)
	case reflect.Interface:
		f.interfaceKind(t, k)
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		k.key = func(*keying, unsafe.Pointer) {}
	default:
		panic("no copy of " + t.String())
	}
	return k
}

func keyTime(k *keying, at unsafe.Pointer) {
	if t := (*time.Time)(at); t.IsZero() {
		k.b = append(k.b, 0)
	} else {
		k.b = binary.AppendVarint(append(k.b, 1), t.UnixNano())
	}
}

// number returns the integer of type t at at, as 64 bits.
func number(t reflect.Type, at unsafe.Pointer) uint64 {
	switch t.Size() {
	case 1:
		return uint64(*(*uint8)(at))
	case 2:
		return uint64(*(*uint16)(at))
	case 4:
		return uint64(*(*uint32)(at))
	}
	return *(*uint64)(at)
}

func keyNumber(t reflect.Type) func(k *keying, at unsafe.Pointer) {
	return func(k *keying, at unsafe.Pointer) { k.b = binary.AppendUvarint(k.b, number(t, at)) }
}

func keyName(t reflect.Type, space string) func(k *keying, at unsafe.Pointer) {
	return func(k *keying, at unsafe.Pointer) {
		n := number(t, at)
		if n == 0 {
			k.b = append(k.b, 0)
			return
		}
		names := k.f.spaces[space]
		if names[n] == 0 {
			names[n] = uint64(len(names) + 1)
		}
		k.b = binary.AppendUvarint(k.b, names[n])
	}
}

func (f *Form) structKind(t reflect.Type, to *kind) {
	type part struct {
		off uintptr
		*kind
	}
	var copied, compared []part
	for i := range t.NumField() {
		x := t.Field(i)
		p := part{x.Offset, f.kind(x.Type)}
		if !plain(x.Type) {
			copied = append(copied, p)
		}
		if space := f.number[field{t, x.Name}]; space != "" {
			p.kind = &kind{key: keyName(x.Type, space)}
		}
		if !f.skip[field{t, x.Name}] {
			compared = append(compared, p)
		}
	}
	to.copy = func(c *copying, at unsafe.Pointer) {
		for i := range copied {
			copied[i].copy(c, unsafe.Add(at, copied[i].off))
		}
	}
	to.key = func(k *keying, at unsafe.Pointer) {
		for i := range compared {
			compared[i].key(k, unsafe.Add(at, compared[i].off))
		}
	}
}

func (f *Form) arrayKind(t reflect.Type, to *kind) {
	elem, n, size := f.kind(t.Elem()), t.Len(), t.Elem().Size()
	flat := plain(t.Elem())
	to.copy = func(c *copying, at unsafe.Pointer) {
		for i := 0; i < n && !flat; i++ {
			elem.copy(c, unsafe.Add(at, uintptr(i)*size))
		}
	}
	to.key = func(k *keying, at unsafe.Pointer) {
		for i := range n {
			elem.key(k, unsafe.Add(at, uintptr(i)*size))
		}
	}
}

// header is that of a slice.
type header struct {
	at       unsafe.Pointer
	len, cap int
}

func (f *Form) sliceKind(t reflect.Type, to *kind) {
	elem, size, flat := f.kind(t.Elem()), t.Elem().Size(), plain(t.Elem())
	to.copy = func(c *copying, at unsafe.Pointer) {
		h := (*header)(at)
		if h.cap == 0 {
			return
		}
		old := reflect.NewAt(t, at).Elem()
		s := reflect.MakeSlice(t, h.len, h.len)
		reflect.Copy(s, old)
		old.Set(s)
		for i := 0; i < h.len && !flat; i++ {
			elem.copy(c, unsafe.Add(h.at, uintptr(i)*size))
		}
	}
	to.key = func(k *keying, at unsafe.Pointer) {
		h := (*header)(at)
		k.b = binary.AppendUvarint(k.b, uint64(h.len))
		for i := range h.len {
			elem.key(k, unsafe.Add(h.at, uintptr(i)*size))
		}
	}
}

func (f *Form) pointerKind(t reflect.Type, to *kind) {
	elem, et, flat := f.kind(t.Elem()), t.Elem(), plain(t.Elem())
	to.copy = func(c *copying, at unsafe.Pointer) {
		p := (*unsafe.Pointer)(at)
		if *p == nil || f.shared[et] {
			return
		}
		if done, ok := c.done[*p]; ok {
			*p = done
			return
		}
		x := reflect.New(et)
		x.Elem().Set(reflect.NewAt(et, *p).Elem())
		c.done[*p] = x.UnsafePointer()
		*p = x.UnsafePointer()
		if !flat {
			elem.copy(c, *p)
		}
	}
	to.key = func(k *keying, at unsafe.Pointer) {
		p := *(*unsafe.Pointer)(at)
		if p == nil {
			k.b = append(k.b, 0)
			return
		}
		if n := k.seen[p]; n > 0 {
			k.b = binary.AppendUvarint(append(k.b, 1), n)
			return
		}
		k.seen[p] = uint64(len(k.seen) + 1)
		k.b = append(k.b, 2)
		elem.key(k, p)
	}
}

func (f *Form) mapKind(t reflect.Type, to *kind) {
	kt, vt := t.Key(), t.Elem()
	value, flat := f.kind(vt), plain(vt)
	less := func(a, b reflect.Value) int { return cmp.Compare(number(kt, pointer(a)), number(kt, pointer(b))) }
	if kt.Kind() == reflect.String {
		less = func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) }
	} else if !kt.ConvertibleTo(reflect.TypeFor[uint64]()) {
		panic("no copy of a map by " + kt.String())
	}
	name := f.kind(kt)
	to.copy = func(c *copying, at unsafe.Pointer) {
		old := reflect.NewAt(t, at).Elem()
		if old.IsNil() {
			return
		}
		m := reflect.MakeMapWithSize(t, old.Len())
		for it := old.MapRange(); it.Next(); {
			v := reflect.New(vt)
			v.Elem().Set(it.Value())
			if !flat {
				value.copy(c, v.UnsafePointer())
			}
			m.SetMapIndex(it.Key(), v.Elem())
		}
		old.Set(m)
	}
	to.key = func(k *keying, at unsafe.Pointer) {
		m := reflect.NewAt(t, at).Elem()
		keys := m.MapKeys()
		slices.SortFunc(keys, less)
		k.b = binary.AppendUvarint(k.b, uint64(len(keys)))
		for _, x := range keys {
			name.key(k, pointer(x))
			value.key(k, pointer(m.MapIndex(x)))
		}
	}
}

// pointer returns the address of a copy of x.
func pointer(x reflect.Value) unsafe.Pointer {
	p := reflect.New(x.Type())
	p.Elem().Set(x)
	return p.UnsafePointer()
}

func (f *Form) interfaceKind(t reflect.Type, to *kind) {
	to.copy = func(c *copying, at unsafe.Pointer) {
		i := reflect.NewAt(t, at).Elem()
		if i.IsNil() {
			return
		}
		x := i.Elem()
		if xt := x.Type(); plain(xt) || xt.Kind() == reflect.Pointer && f.shared[xt.Elem()] {
			return // it cannot change
		}
		p := pointer(x)
		f.kind(x.Type()).copy(c, p)
		i.Set(reflect.NewAt(x.Type(), p).Elem())
	}
	to.key = func(k *keying, at unsafe.Pointer) {
		i := reflect.NewAt(t, at).Elem()
		if i.IsNil() {
			k.b = append(k.b, 0)
			return
		}
		x := i.Elem()
		name := x.Type().String()
		k.b = append(binary.AppendUvarint(append(k.b, 1), uint64(len(name))), name...)
		f.kind(x.Type()).key(k, pointer(x))
	}
}
