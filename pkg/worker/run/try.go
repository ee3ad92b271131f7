package run

import (
	"errors"
	"time"
)

// Program is a command that is not part of a job.
type Program struct {
	ExecFD int // descriptor of the program's file
	Argv   []string
	Env    []string      // in addition to PATH, LC_ALL and TMPDIR
	Limit  time.Duration // of wall time
}

// Try runs a program in the tree, which must be open. The program is confined as a compile is, except that it
// may map any amount of memory. Try returns how it ended and copies of what it wrote. The caller calls Clean
// afterwards.
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
	c.Limits.Memory = 0 // Go's runtime maps much more than it uses
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
