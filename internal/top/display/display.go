// Package display runs the display of `rdistcc top` on a terminal: it reads keys, asks the connection manager every so
// often, and draws what package top says.
package display

import (
	"cmp"
	"errors"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/rdistcc/rdistcc/internal/top"
)

// Options are what Run needs.
type Options struct {
	In, Out *os.File // a terminal
	Env     []string
	Every   time.Duration // between an answer and the next question
	// Ask asks the connection manager, and Obey has it do something and returns a line for the user. Both may take
	// long, and are called from other goroutines: Ask from one at a time.
	Ask  func() top.Answer
	Obey func(top.Order) (string, error)
}

// Run shows the display until the user quits or the program gets a SIGTERM. The terminal is as before then.
func Run(o Options) error {
	p := &program{o: o, model: top.New(o.Every, !utf8Terminal(o.Env))}
	_, err := tea.NewProgram(p, tea.WithInput(o.In), tea.WithOutput(o.Out), tea.WithEnvironment(o.Env)).Run()
	if errors.Is(err, tea.ErrInterrupted) {
		return nil
	}
	return err
}

// utf8Terminal reports whether a terminal shows what UTF-8 encodes beyond ASCII, by the locale and, as the console of Linux has few
// characters in its fonts, by the terminal's name.
func utf8Terminal(env []string) bool {
	value := func(name string) (v string) {
		for _, e := range env {
			if rest, ok := strings.CutPrefix(e, name+"="); ok {
				v = rest // of several, the last counts
			}
		}
		return v
	}
	locale := strings.ToLower(cmp.Or(value("LC_ALL"), value("LC_CTYPE"), value("LANG")))
	return value("TERM") != "linux" && (strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8"))
}

// program is the display as Bubble Tea wants it. One goroutine calls its methods.
type program struct {
	o      Options
	model  *top.Model
	asking bool
	turn   int // answers so far
}

// What comes back from commands.
type (
	tick     time.Time
	answered top.Answer
	obeyed   struct {
		line string
		err  error
	}
)

func (p *program) Init() tea.Cmd { return tea.Batch(p.ask(), p.tick()) }

// tick comes at least once a second, so that ages on the screen are those of now.
func (p *program) tick() tea.Cmd {
	return tea.Tick(min(p.o.Every, time.Second), func(t time.Time) tea.Msg { return tick(t) })
}

// ask asks the manager, unless it has not answered the last time yet.
func (p *program) ask() tea.Cmd {
	if p.asking {
		return nil
	}
	p.asking = true
	return func() tea.Msg { return answered(p.o.Ask()) }
}

// again is the time to ask again after so many answers. Once there was a question in between, it is none.
type again int

func (p *program) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		p.model.Resize(msg.Width, msg.Height)
	case tea.KeyPressMsg:
		return p, p.key(msg)
	case tea.PasteMsg:
		p.model.Type(msg.Content)
	case tick:
		return p, p.tick()
	case answered:
		p.asking = false
		p.turn++
		turn := again(p.turn)
		p.model.Take(top.Answer(msg), time.Now())
		return p, tea.Tick(p.o.Every, func(time.Time) tea.Msg { return turn })
	case again:
		if int(msg) == p.turn && !p.model.Paused() {
			return p, p.ask()
		}
	case obeyed:
		if msg.err != nil {
			msg.line = msg.err.Error()
		}
		p.model.Say(msg.line, msg.err != nil, time.Now())
		return p, p.ask()
	}
	return p, nil
}

func (p *program) key(k tea.KeyPressMsg) tea.Cmd {
	if k.String() == "ctrl+z" {
		return tea.Suspend
	}
	name := k.Text
	if name == "" {
		name = k.String()
	}
	a := p.model.Key(name)
	switch {
	case a.Quit:
		return tea.Quit
	case a.Order != nil:
		return func() tea.Msg {
			line, err := p.o.Obey(*a.Order)
			return obeyed{line, err}
		}
	case a.Ask:
		return p.ask()
	}
	return nil
}

func (p *program) View() tea.View {
	v := tea.NewView(p.model.View(time.Now()).Styled())
	v.AltScreen = true
	return v
}
