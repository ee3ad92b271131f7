package top

import (
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns s as one line that is safe to print: what a terminal could take for a command, or what has no shape of
// its own (controls, marks of direction, invalid UTF-8), is a question mark; ends of lines and tabs are spaces.
func Text(s string) string {
	safe := true
	for i := range len(s) {
		safe = safe && s[i] >= ' ' && s[i] < 0x7f
	}
	if safe {
		return s
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t', r == '\r':
			return ' '
		case r != utf8.RuneError && unicode.IsPrint(r):
			return r
		}
		return '?'
	}, s)
}

// Clean applies Text to all strings in what v points to.
func Clean(v any) { clean(reflect.ValueOf(v)) }

func clean(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			clean(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() { // not what a time.Time is made of
				clean(v.Field(i))
			}
		}
	case reflect.Slice, reflect.Array:
		if k := v.Type().Elem().Kind(); k < reflect.Array { // booleans and numbers
			return
		}
		for i := range v.Len() {
			clean(v.Index(i))
		}
	case reflect.Map:
		if v.Type().Key().Kind() != reflect.String {
			return
		}
		for _, key := range v.MapKeys() {
			val := reflect.New(v.Type().Elem()).Elem()
			val.Set(v.MapIndex(key))
			clean(val)
			v.SetMapIndex(key, reflect.Value{})
			v.SetMapIndex(reflect.ValueOf(Text(key.String())).Convert(v.Type().Key()), val)
		}
	case reflect.String:
		v.SetString(Text(v.String()))
	}
}
