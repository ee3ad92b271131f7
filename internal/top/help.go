package top

// keys are the keys and what they do.
var keys = [...][2]string{
	{"tab, 1 2 3", "next view: hosts, files under way, reasons for runs on this machine"},
	{"up down, j k", "select a row; PgUp, PgDn, Home and End go further"},
	{"s, S", "sort by the next column, or by the one before"},
	{"r", "reverse the order"},
	{"/", "show rows with a text only; Enter keeps it, Esc ends it"},
	{"d", "drain the selected host: it gets no new jobs from this machine. On a drained one: end that"},
	{"u", "undrain the selected host, or end its quarantine"},
	{"p, space", "pause, and continue"},
	{"q", "quit"},
}

// words are the columns that need a word.
var words = [...][2]string{
	{"USED", "compiles that the host runs, of its places, for all its clients"},
	{"QUEUE", "jobs that wait there"},
	{"MINE", "jobs of this machine that are there or on the way"},
	{"JOBS/S", "what it did for this machine in the last 10 seconds"},
	{"RTT, RATE", "round trip and estimated bytes a second of the connection"},
	{"SPEED", "of one of its cores; 1 is the average"},
	{"LOAD", "the load average of the host"},
	{"last minute", "commands that ended a second, and which part of its compiles the cache had, from left to right"},
}

const helpKeys = 14 // the width of the first column

func (m *Model) helpLines() (lines Frame) {
	add := func(pairs [][2]string) {
		for _, p := range pairs {
			if m.width < wide {
				lines = append(lines, Line{{Title, p[0]}})
				for _, l := range wrap(p[1], m.width-1, len(p[1])) {
					lines = append(lines, text(" "+l))
				}
				continue
			}
			first := Line{{Title, pad(p[0], helpKeys, false, start)}}
			for _, l := range wrap(p[1], m.width-helpKeys, len(p[1])) {
				lines = append(lines, first.add(Plain, l))
				first = text(pad("", helpKeys, false, start))
			}
		}
	}
	add(keys[:])
	lines = append(lines, nil)
	add(words[:])
	return lines
}

// helpFrame explains the keys and the columns.
func (m *Model) helpFrame() Frame {
	lines := m.helpLines()
	room := max(m.height-1, 1)
	m.scroll = max(min(m.scroll, len(lines)-room), 0)
	more := "any key goes back"
	if len(lines) > room {
		more = "down: more; q: back"
	}
	return append(lines[m.scroll:min(m.scroll+room, len(lines))], Line{{Faint, more}})
}

func (m *Model) helpKey(key string) Action {
	switch key {
	case "down", "j":
		m.scroll++
	case "up", "k":
		m.scroll--
	case "pgdown", " ":
		m.scroll += max(m.height-2, 1)
	case "pgup":
		m.scroll -= max(m.height-2, 1)
	default:
		m.help = false
	}
	return Action{}
}
