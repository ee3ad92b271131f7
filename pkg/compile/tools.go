package compile

// ToolDirs returns the directories in which the command has the compiler look first for its programs (-B), as typed. The
// plan is for a command without them. Unless it is known that it finds there what it would find without them, the
// command runs here; otherwise the caller calls DropTools.
func (p *Plan) ToolDirs() (dirs []string) {
	for _, o := range p.options {
		if o.class == toolDir {
			dirs = append(dirs, o.arg)
		}
	}
	return dirs
}

// DropTools removes the words that name the ToolDirs from the plan.
func (p *Plan) DropTools() {
	var argv []string
	var options []option
	for _, o := range p.options {
		if o.class == toolDir {
			continue
		}
		argv, options = append(argv, o.words...), append(options, o)
	}
	p.argv, p.options = argv, options
}

// KeepsLinks reports whether a clang looks for its own files where a link to it is, not where the link leads.
func (p *Plan) KeepsLinks() bool {
	keeps := false
	if p.Driver.Family == Clang {
		for _, o := range p.options {
			switch o.words[0] {
			case "-no-canonical-prefixes":
				keeps = true
			case "-canonical-prefixes":
				keeps = false
			}
		}
	}
	return keeps
}
