package main

import (
	"path"
	"slices"
	"syscall"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/compile"
)

// findPlugins finds the files of the plugins that the command has gcc load: the driver itself says in which directory cc1 would
// look for them here. The manager decides whether they may travel, as parts of the compiler.
func (f *flow) findPlugins(names []string) (why string) {
	stays := reason.NotReproducible + "plugin"
	// annobin takes options from it, and no host has it.
	if _, set := syscall.Getenv("ANNOBIN"); set {
		return stays
	}
	if f.said == nil {
		var ok bool
		if f.said, ok = f.programs(f.plan.Whole()); !ok {
			return stays
		}
	}
	dir, n := f.said.Plugins()
	if n != len(names) {
		return stays // a driver that has plugins of its own, or gives cc1 none of these
	}
	f.plugins, f.pluginDir = nil, ""
	for _, name := range names {
		if name[0] != '/' {
			f.pluginDir = path.Clean(dir)
		}
		said := compile.PluginFile(dir, name)
		file := path.Clean(said) // a driver says where it is in detours
		if !compile.PluginName(file) || !sameFile(file, said) || syscall.Access(file, 4) != nil {
			return stays
		}
		if !slices.Contains(f.plugins, file) {
			f.plugins = append(f.plugins, file)
		}
	}
	return ""
}
