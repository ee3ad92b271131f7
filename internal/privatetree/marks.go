package privatetree

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// An answered tree (Spec.Answered) has no mounts either. Its directory contains an empty file or directory, a mark, wherever a tree with
// namespaces would have a mount of something of the host: a lookup in the tree, by the caller or for a command (names.go), goes on at
// the name of the mark on the host.

// marks is what an answered tree shows of the host, by canonical names, which are the same on the host and in the tree.
type marks struct {
	files, dirs []string
	byIno       map[uint64]string // of the marks themselves
}

// mark makes the marks of an answered tree, and what leads to them.
func (t *Tree) mark(s *Spec) error {
	list, err := os.ReadDir(s.Bare)
	if err != nil {
		return err
	}
	if len(list) > 0 {
		return &stepError{"use " + s.Bare, errors.New("directory is not empty"), false}
	}
	t.marks = &marks{byIno: map[uint64]string{}}
	b := builder{in: s.Bare, marks: t.marks, made: map[string]bool{"/": true}}
	if err := b.fill(s); err != nil {
		return err
	}
	for _, names := range [][]string{t.marks.files, t.marks.dirs} {
		for _, name := range names {
			var st unix.Stat_t
			if err := unix.Lstat(s.Bare+name, &st); err != nil {
				return &stepError{"make " + name, err, false}
			}
			t.marks.byIno[st.Ino] = name
		}
	}
	if s.UID == 0 {
		return nil
	}
	return os.Chown(s.Bare, s.UID, s.GID)
}

// of returns what an entry of the tree is a mark of; "": it is none.
func (m *marks) of(st *unix.Stat_t, dev uint64) string {
	if m == nil || st.Dev != dev {
		return ""
	}
	return m.byIno[st.Ino]
}
