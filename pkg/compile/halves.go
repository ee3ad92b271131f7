package compile

// KeepsMacrosFrom is the first major version of gcc whose -fdirectives-only gives text that
// compiles to the same object: it was rewritten in gcc 11.
const KeepsMacrosFrom = 11

// Preprocess returns the local half: the words after the compiler's name that write the text
// to standard output, and the dependency file, if one was requested, to where the whole
// compile would have put it. major is the compiler's major version; 0 when it is not known.
//
// A Raw plan has no local half, and Preprocess returns nil.
func (p *Plan) Preprocess(major int) []string {
	if p.Local || p.Raw {
		return nil
	}
	argv := make([]string, 0, 2*len(p.options)+8)
	argv = p.textForm(argv, major)
	argv = p.depend(argv)
	for _, o := range p.options {
		if !o.class.here(p.Driver.Family) {
			continue
		}
		argv = append(argv, o.words...)
	}
	return argv
}

// textForm adds the words that make the driver write the text, in the form that the other
// half takes.
func (p *Plan) textForm(argv []string, major int) []string {
	argv = append(argv, "-E")
	switch {
	case p.Driver.Family == Clang && p.rewrite:
		argv = append(argv, "-frewrite-includes")
	case p.Driver.Family == GCC:
		// A precompiled header, if one is used, then shows in the text.
		argv = append(argv, "-fpch-preprocess")
		if p.keepsMacros(major) {
			argv = append(argv, "-fdirectives-only")
		}
		if p.lto {
			// The text then records the working directory, as with -g.
			argv = append(argv, "-fworking-directory")
		}
	}
	return argv
}

// Remote returns the other half: the options and the language (for -x) with which the same
// compiler makes the object from the text. The caller adds the text's file, -c or -S, and
// the output. dir is the working directory here, as the compiler would name it.
func (p *Plan) Remote(major int, dir string) (args []string, lang string) {
	args = make([]string, 0, 2*len(p.options)+4)
	lang = preprocessed(p.Language)
	switch {
	case p.Raw:
	case p.Driver.Family == GCC && p.keepsMacros(major):
		args = append(args, "-fpreprocessed", "-fdirectives-only")
		lang = p.Language
	case p.Driver.Family == Clang && p.rewrite:
		lang = p.Language
	}
	for _, o := range p.options {
		switch {
		case o.class == debugRoot: // one spelling is enough for the other half
			args = append(args, "-fdebug-compilation-dir="+o.arg)
		case o.class == xasm:
			args = append(args, "-Wa,"+o.arg)
		case goes[o.class]&toObject != 0, o.class == macro && p.rewrite:
			args = append(args, o.words...)
		}
	}
	if p.Driver.Family == Clang && p.debug && !p.compDir {
		args = append(args, "-fdebug-compilation-dir="+dir)
	}
	return args, lang
}

// keepsMacros reports whether the text keeps its macros for the other half.
func (p *Plan) keepsMacros(major int) bool {
	return p.directivesOnly(major) && !p.pragmas
}

// directivesOnly reports whether gcc needs to process directives only.
func (p *Plan) directivesOnly(major int) bool {
	return p.Driver.Family == GCC && major >= KeepsMacrosFrom && !p.plain
}

// here reports whether the local half gets options of class c.
func (c class) here(f Family) bool {
	return goes[c]&toText != 0 && (c != linker || f == Clang)
}

// depend adds what the driver derives from -o, which the local half does not have: the name of
// the dependency file, and the target in it.
func (p *Plan) depend(argv []string) []string {
	if !p.deps {
		return argv
	}
	if !p.depFile {
		name := p.output
		if name == "" {
			name = stem(p.Source) + ".o"
		}
		argv = append(argv, "-MF", swapSuffix(name, ".d"))
	}
	if !p.target && p.output != "" {
		argv = append(argv, "-MQ", p.output)
	}
	return argv
}
