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
