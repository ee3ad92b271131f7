package run

import (
	"errors"
	"time"
)

// Program is a command that is not a job's.
type Program struct {
	ExecFD int // the program, open
	Argv   []string
	Env    []string // beside PATH, LC_ALL and TMPDIR
	Limit  time.Duration
}

// Try runs a program in the tree, which is open, confined as a compile is but for the memory that it may map. It returns
// how that ended, and what it wrote to its standard output and error. Clean follows.
func (p *Place) Try(proc *Process, x *Program) (o Outcome, stdout, stderr []byte, err error) {
	p.used = true
	for _, d := range []string{textSource, textTemp} {
		if err := p.tree.Mkdirs(d); err != nil {
			return o, nil, nil, err
		}
	}
	out, err := p.newCapture()
	if err != nil {
		return o, nil, nil, err
	}
	defer out.Close()
	env := append([]string{"PATH=" + SearchPath, "LC_ALL=C", "TMPDIR=" + p.temporary()}, x.Env...)
	c := p.command(env, p.tree.Path(textSource), out, x.Limit)
	c.ExecFD, c.Argv = x.ExecFD, x.Argv
	c.Limits.Memory = 0 // Go's runtime maps much, and holds little
	if o, err = proc.runIn(p.tree, c, x.Limit); err != nil {
		return o, nil, nil, err
	}
	var words [2][]byte
	for i := range words {
		w, werr := out.Written(i)
		words[i], err = append([]byte(nil), w...), errors.Join(err, werr)
	}
	return o, words[0], words[1], err
}
