package compile

// partition reports whether the command is the compile of one partition of a link by gcc with LTO, as lto-wrapper has make run it,
// with nothing but an object to write. The compiler reads its input and no other file, except what assembly in it includes.
func (p *parser) partition() bool {
	if p.Driver.Family != GCC || p.Language != langLTO || !p.ltrans || !p.compile || p.assembly || p.Syntax || p.cppOnly || p.output == "" {
		return false
	}
	return !p.native && !p.modules.on && !p.usage && p.extra.made == 0 && p.extra.format == "" && !p.extra.profile && len(p.extra.files) == 0 &&
		len(p.extra.deps) == 0 && len(p.Inputs) == 0 && !p.deps && len(p.Plugins()) == 0
}
