package toolchain

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
)

// KnownPlugins are the names of plugins whose outcome is known to depend only on what the compiler reads. A host that has one of
// them offers the compiler with it as well.
var KnownPlugins = []string{"annobin", "gcc-annobin"}

// plugins adds the plugins that the compiler is to load. Their names count, as a command may say them.
func (f *finding) plugins() error {
	if len(f.whole.Plugins) == 0 {
		return nil
	}
	if f.tc.Family != "gcc" {
		return fmt.Errorf("identify compiler: %s with plugins: %w", f.tc.Exec, ErrUnknown)
	}
	cc1, err := f.progName("cc1")
	if err == nil && !filepath.IsAbs(cc1) {
		cc1, err = f.progName("cc1plus")
	}
	if err != nil {
		return err
	}
	loader, err := interpreter(cc1)
	if err != nil || loader == "" {
		return fmt.Errorf("identify compiler: %s loads no plugins: %w", cc1, ErrUnknown)
	}
	f.tc.Plugins = slices.Sorted(slices.Values(f.whole.Plugins))
	for _, p := range f.tc.Plugins {
		f.watch(p)
		if stampOf(p).Absent {
			return fmt.Errorf("identify compiler: the plugin %s cannot be read: %w", p, ErrUnknown)
		}
		if err := f.file("plugin:"+p, p); err != nil {
			return err
		}
		if err := f.libraries(loader, p); err != nil {
			return err
		}
	}
	return nil
}

// WithPlugins identifies t once more with each of the KnownPlugins that are installed for it, alone.
func (c *Cache) WithPlugins(ctx context.Context, t *Toolchain) (list []Toolchain) {
	for _, name := range KnownPlugins {
		file := filepath.Join(t.PluginDir, name+".so")
		if t.PluginDir == "" || stampOf(file).Absent {
			continue
		}
		if with, err := c.IdentifyIn(ctx, t.Exec, Env{Plugins: []string{file}}); err == nil {
			list = append(list, with)
		}
	}
	return list
}
