package top

import "strings"

// Style is how a piece of text looks.
type Style uint8

// The styles. Each can do without colours: they say nothing that the words do not.
const (
	Plain Style = iota
	Faint
	Heading
	Title
	Good
	Warn
	Bad
	Selected
)

// sgr are the codes that every terminal with colours has (ECMA-48).
var sgr = [...]string{Faint: "2", Heading: "1;4", Title: "1", Good: "32", Warn: "33", Bad: "31", Selected: "7"}

// Span is a piece of text without control characters.
type Span struct {
	Style Style
	Text  string
}

// Line is one line of the screen.
type Line []Span

// text returns a line of plain text.
func text(s string) Line { return Line{{Plain, s}} }

func (l Line) add(s Style, text string) Line { return append(l, Span{s, text}) }

func (l Line) String() string {
	var b strings.Builder
	for i := range l {
		b.WriteString(l[i].Text)
	}
	return b.String()
}

// in returns the line in a single style, as wide as the screen.
func (l Line) in(s Style, width int) Line {
	return Line{{s, pad(l.String(), width, false, start)}}
}

// cut shortens the line to a width.
func (l Line) cut(width int) Line {
	var out Line
	for _, s := range l {
		w := Width(s.Text)
		if w > width {
			if s.Text = cut(s.Text, width, start); s.Text != "" {
				out = append(out, s)
			}
			return out
		}
		out, width = append(out, s), width-w
	}
	return out
}

// Frame is what a screen shows, from the top.
type Frame []Line

// String returns the frame without styles, as lines without blanks at their ends.
func (f Frame) String() string {
	var b strings.Builder
	for _, l := range f {
		b.WriteString(strings.TrimRight(l.String(), " "))
		b.WriteByte('\n')
	}
	return b.String()
}

// Styled returns the frame with the codes of terminals for its styles.
func (f Frame) Styled() string {
	var b strings.Builder
	for i, l := range f {
		if i > 0 {
			b.WriteByte('\n')
		}
		for _, s := range l {
			if s.Style == Plain {
				b.WriteString(s.Text)
				continue
			}
			b.WriteString("\x1b[" + sgr[s.Style] + "m" + s.Text + "\x1b[m")
		}
	}
	return b.String()
}

// wrap breaks a text at its blanks into at most n lines of a width.
func wrap(s string, width, n int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(s) {
		switch {
		case line == "":
			line = word
		case Width(line)+1+Width(word) <= width, len(lines) == n-1:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	for i := range lines {
		lines[i] = cut(lines[i], width, start)
	}
	return lines
}

// flow puts parts into at most n lines of a width, without breaking one; those that have no room are left out.
func flow(parts []Span, width, n int) (lines []Line) {
	var line Line
	used := 0
	for _, p := range parts {
		w := Width(p.Text)
		switch {
		case used > 0 && used+gap+w <= width:
			line = append(line.add(Plain, strings.Repeat(" ", gap)), p)
			used += gap + w
		case used > 0 && len(lines) == n-1:
			continue // a shorter one may have room
		default:
			if used > 0 {
				lines = append(lines, line)
			}
			p.Text = cut(p.Text, width, start)
			line, used = Line{p}, min(w, width)
		}
	}
	if used > 0 {
		lines = append(lines, line)
	}
	return lines
}
