package compile

import (
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/job"
)

// Plugins returns what the command's -fplugin= words name, in order. Such a command runs only by a toolchain of which these
// plugins are parts.
func (p *Plan) Plugins() (names []string) {
	for _, o := range p.options {
		if o.class == plugin {
			names = append(names, o.arg)
		}
	}
	return names
}

// tellsNoPlugin reports whether the command has an option for a plugin, but none that loads one, nor a spec file, which may. The compiler
// refuses that, and so do hosts.
func (p *Plan) tellsNoPlugin() bool {
	return len(p.Plugins())+len(p.SpecFiles()) == 0 && slices.ContainsFunc(p.options, func(o option) bool { return o.class == pluginArg })
}

// PluginName reports whether name is a plugin in the compiler's own directory for plugins (annobin), or the path of one, absolute
// and without detours. gcc opens a name with a dot in it relative to the working directory, which is no part of a toolchain.
func PluginName(name string) bool {
	if strings.HasPrefix(name, "/") {
		return !strings.Contains(name, "//") && !strings.Contains(name, "/.") && strings.HasSuffix(name, ".so") && plain(name, maxPath)
	}
	return name != "" && name[0] != '-' && onlyOf(name, letterBytes+digitBytes+"_+-", maxWord)
}

// PluginFile returns the file of a plugin where the compiler's directory for plugins is dir.
func PluginFile(dir, name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return strings.TrimRight(dir, "/") + "/" + name + ".so"
}

// PluginShort returns the name by which settings mean the plugin in a file, such as annobin.
func PluginShort(file string) string { return strings.TrimSuffix(lastPart(file), ".so") }

func lastPart(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// Planted returns a name that a job creates under which the compiler could take a file for one of the plugins, or "". It finds
// a plugin by a directory called plugin and the plugin's own name, wherever options make it look, and links lead anywhere: so no
// last part of a name may be that of a plugin.
func Planted(plugins []string, b *job.Body) string {
	if len(plugins) == 0 {
		return ""
	}
	is := func(name string) bool {
		for _, p := range plugins {
			if lastPart(name) == PluginShort(p)+".so" {
				return true
			}
		}
		return false
	}
	for i := range b.Files {
		if is(b.Files[i].Name) {
			return b.Files[i].Name
		}
	}
	for i := range b.Links {
		for _, name := range [...]string{b.Links[i].Name, b.Links[i].Target} {
			if is(name) {
				return name
			}
		}
	}
	for i := range b.Outputs {
		if is(b.Outputs[i].Name) {
			return b.Outputs[i].Name
		}
	}
	return ""
}
