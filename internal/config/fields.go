package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// field is one key: its path, and the location of its value in a Config.
type field struct {
	key string
	v   reflect.Value
}

// fields lists all keys, in the order of the file.
func (c *Config) fields() []field {
	return appendFields(nil, "", reflect.ValueOf(c).Elem())
}

func appendFields(fs []field, prefix string, v reflect.Value) []field {
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("yaml")
		if name == "" {
			continue
		}
		if f := v.Field(i); f.Kind() == reflect.Struct {
			fs = appendFields(fs, prefix+name+".", f)
		} else {
			fs = append(fs, field{prefix + name, f})
		}
	}
	return fs
}

// section reads a mapping whose keys are below prefix ("" or "daemon.").
//
// It works on yaml's nodes rather than through the decoder, which reports neither the line of an unknown
// key nor where a value came from, and which expands aliases: a file of a kilobyte can stand for gigabytes.
// Aliases are rejected.
func (c *Config) section(file string, n *yaml.Node, prefix string, all []field) error {
	at := func(n *yaml.Node, format string, args ...any) error {
		return &Error{fmt.Sprintf("%s:%d", file, n.Line), fmt.Sprintf(format, args...)}
	}
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		return at(n, "anchors and aliases are not taken")
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		if prefix == "" {
			return at(n, "is not a list of \"key: value\" lines")
		}
		return at(n, "%s holds keys, not a value", strings.TrimSuffix(prefix, "."))
	}
	seen := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode || k.Anchor != "" {
			return at(k, "a key must be a plain word")
		}
		key := prefix + k.Value
		if line, ok := seen[key]; ok {
			return at(k, "%q is already set in line %d", key, line)
		}
		seen[key] = k.Line
		if isSection(all, key) {
			if err := c.section(file, v, key+".", all); err != nil {
				return err
			}
			continue
		}
		j := slices.IndexFunc(all, func(f field) bool { return f.key == key })
		if j < 0 {
			return at(k, "unknown key %q%s", key, nearest(all, key))
		}
		values, err := scalars(v)
		if err == nil {
			err = set(all[j].v, values)
		}
		if err != nil {
			return at(v, "%s: %v", key, err)
		}
		c.origin(key, fmt.Sprintf("%s:%d", file, k.Line))
		if key == "hosts" {
			c.entries = nil
			for _, item := range v.Content {
				c.entries = append(c.entries, fmt.Sprintf("%s:%d", file, item.Line))
			}
		}
	}
	return nil
}

// Set gives key the values, as a flag does: one, or for a list any number. Validate checks them together
// with the rest. where is for messages and Settings, for example "--jobs".
func (c *Config) Set(key, where string, values ...string) error {
	all := c.fields()
	j := slices.IndexFunc(all, func(f field) bool { return f.key == key })
	if j < 0 {
		return &Error{where, fmt.Sprintf("unknown key %q%s", key, nearest(all, key))}
	}
	if err := set(all[j].v, &nodeValues{values: values, list: all[j].v.Kind() == reflect.Slice}); err != nil {
		return &Error{where, err.Error()}
	}
	c.origin(key, where)
	if key == "hosts" {
		c.entries = nil
	}
	return nil
}

func (c *Config) origin(key, where string) {
	if c.origins == nil {
		c.origins = make(map[string]string)
	}
	c.origins[key] = where
}

// nodeValues holds the words of a scalar or a list.
type nodeValues struct {
	values []string
	list   bool
}

func scalars(n *yaml.Node) (*nodeValues, error) {
	word := func(n *yaml.Node) (string, error) {
		switch {
		case n.Kind == yaml.AliasNode || n.Anchor != "":
			return "", fmt.Errorf("anchors and aliases are not taken")
		case n.Kind != yaml.ScalarNode:
			return "", fmt.Errorf("wants plain values")
		}
		return n.Value, nil
	}
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null" && n.Anchor == "":
		return &nodeValues{list: true}, nil
	case n.Kind == yaml.SequenceNode && n.Anchor == "":
		vs := &nodeValues{list: true}
		for _, item := range n.Content {
			w, err := word(item)
			if err != nil {
				return nil, err
			}
			vs.values = append(vs.values, w)
		}
		return vs, nil
	}
	w, err := word(n)
	return &nodeValues{values: []string{w}}, err
}

// set parses the words according to the kind of v.
func set(v reflect.Value, n *nodeValues) error {
	if v.Kind() == reflect.Slice {
		v.Set(reflect.ValueOf(slices.Clone(n.values))) // a single word is a list of one
		return nil
	}
	if n.list || len(n.values) != 1 {
		return fmt.Errorf("wants one value")
	}
	x, err := parseValue(v.Interface(), n.values[0])
	if err != nil {
		return err
	}
	v.Set(reflect.ValueOf(x))
	return nil
}

func isSection(all []field, key string) bool {
	return slices.ContainsFunc(all, func(f field) bool { return strings.HasPrefix(f.key, key+".") })
}

// nearest returns a hint at the key that was probably meant, or "".
func nearest(all []field, key string) string {
	var names []string
	for _, f := range all {
		names = append(names, f.key)
		if section, _, ok := strings.Cut(f.key, "."); ok && !slices.Contains(names, section) {
			names = append(names, section)
		}
	}
	last := key[strings.LastIndex(key, ".")+1:]
	best, least := "", len(last)/2+1
	for _, name := range names {
		// The right word in the wrong section counts as one typing error.
		d := distance(key, name)
		if own := name[strings.LastIndex(name, ".")+1:]; own != name || key != last {
			d = min(d, distance(last, own)+1)
		}
		if d < least {
			best, least = name, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}

// Nearest returns the name that differs from word in the fewest bytes if those are few, else "".
func Nearest(word string, names []string) string {
	best, least := "", 3
	for _, name := range names {
		if d := distance(word, name); d < least {
			best, least = name, d
		}
	}
	return best
}

// distance returns the Levenshtein distance: insertions, deletions and changes of a byte.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// Setting is one key with its value as the file would have it, and its origin: "default", "FILE:LINE", or the flag.
type Setting struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

// Settings lists all keys in the order of deploy/config.yaml.
func (c *Config) Settings() []Setting {
	var out []Setting
	for _, f := range c.fields() {
		out = append(out, Setting{Key: f.key, Value: formatValue(f.v.Interface()), Origin: c.Origin(f.key)})
	}
	return out
}

// Differing lists the keys whose values differ from those of old, in the order of deploy/config.yaml.
func (c *Config) Differing(old *Config) []string {
	var keys []string
	before := old.fields()
	for i, f := range c.fields() {
		if formatValue(f.v.Interface()) != formatValue(before[i].v.Interface()) {
			keys = append(keys, f.key)
		}
	}
	return keys
}

// Keep gives keys the values, and the origins, that they have in old.
func (c *Config) Keep(old *Config, keys ...string) {
	before := old.fields()
	for i, f := range c.fields() {
		if !slices.Contains(keys, f.key) {
			continue
		}
		f.v.Set(before[i].v)
		if o, ok := old.origins[f.key]; ok {
			c.origin(f.key, o)
		} else {
			delete(c.origins, f.key)
		}
	}
}
