package exp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// part is the name of the part of the document that heads it.
const part = "verdicts"

// marks returns the lines of a document that enclose a generated part.
func marks(name string) (begin, end string) {
	return "<!-- written by make exp: " + name + ": begin -->\n", "<!-- written by make exp: " + name + ": end -->\n"
}

// replace returns text with a part replaced.
func replace(text []byte, name string, by string) ([]byte, error) {
	begin, end := marks(name)
	head, rest, ok1 := bytes.Cut(text, []byte(begin))
	_, tail, ok2 := bytes.Cut(rest, []byte(end))
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("it lacks the lines %q and %q", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return bytes.Join([][]byte{head, []byte(begin), []byte(by), []byte(end), tail}, nil), nil
}

// HasPart reports whether a document has a place for what an experiment finds.
func HasPart(text []byte, id string) bool {
	_, err := replace(text, id, "")
	return err == nil
}

// WriteDocument rewrites the generated parts of the document at path and draws the pictures into img beside it. The
// table of verdicts is rewritten as a whole: all has every experiment's results.
func WriteDocument(path string, all []*Results, command string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if text, err = replace(text, part, verdicts(all, command)); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, r := range all {
		if text, err = replace(text, r.of.ID, r.section()); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	for _, r := range all {
		if err := r.draw(filepath.Join(filepath.Dir(path), "img"), func(v *View) bool { return !v.Table && !v.Aside }); err != nil {
			return err
		}
	}
	return os.WriteFile(path, text, 0o644)
}

// Draw writes all pictures into dir.
func (r *Results) Draw(dir string) error {
	return r.draw(dir, func(v *View) bool { return !v.Table })
}

// draw writes the pictures of the wanted views into dir.
func (r *Results) draw(dir string, wanted func(*View) bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i := range r.of.Views {
		v := &r.of.Views[i]
		if !wanted(v) {
			continue
		}
		var b bytes.Buffer
		if err := r.WriteSVG(&b, i); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, v.Name(r.of, i)), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// verdicts counts the verdicts on all predicates, and says where they were found.
func verdicts(all []*Results, command string) string {
	n := make(map[Word]int)
	for _, r := range all {
		for i := range r.of.Claims {
			n[r.of.Claims[i].Verdict(r).Word]++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "`%s`", command)
	if len(all) > 0 {
		fmt.Fprintf(&b, ", %s", all[0].Header.machine())
	}
	fmt.Fprintf(&b, ". Of the claims, %d hold, %d fail, and %d are %s.\n", n[Holds], n[Fails], n[NotHere], NotHere)
	return b.String()
}

// compared is what a verdict's reason says about the two cells of a claim before their ratio.
var compared = regexp.MustCompile(`\S+ \S+ against \S+, ratio `)

// brief is a verdict's reason without the cells that it compares, which the claim describes, and without their values: a ratio
// in most cases.
func brief(reason string) string {
	if i := strings.LastIndex(reason, ": "); i >= 0 {
		first := strings.LastIndex(reason[:i], "; ") + 1
		reason = strings.TrimSpace(reason[:first] + reason[i+1:])
	}
	return compared.ReplaceAllString(reason, "")
}

// machine describes where a run was made, in one line.
func (h *Header) machine() string {
	s := fmt.Sprintf("%s, %d cores of %s, Linux %s, %s", h.Time.Format("2006-01-02"), h.Cores, h.Processor, h.Kernel, h.Go)
	if h.Load != "" {
		s += ", load before " + h.Load
	}
	return s
}

// section returns the generated part of an experiment's section: verdicts and pictures. Print has the tables.
func (r *Results) section() string {
	var b strings.Builder
	h := &r.Header
	fmt.Fprintf(&b, "`rdistcc-perf exp %s --size %s --rounds %d --seed %d`\n\n", r.of.Name, h.Size, h.Rounds, h.Seed)
	n := make(map[Word]int)
	var fails []string
	for i := range r.of.Claims {
		p := &r.of.Claims[i]
		v := p.Verdict(r)
		if n[v.Word]++; v.Word == Fails {
			fails = append(fails, fmt.Sprintf("- **%s**: %s (%s): %s\n", v.Word, p.Claim, p.Says, brief(v.Reason)))
		}
	}
	fmt.Fprintf(&b, "Claims: %d hold, %d fail, %d %s.\n\n", n[Holds], n[Fails], n[NotHere], NotHere)
	if len(fails) > 0 {
		b.WriteString(strings.Join(fails, "") + "\n")
	}
	for i := range r.of.Views {
		if v := &r.of.Views[i]; !v.Aside && !v.Table {
			fmt.Fprintf(&b, "![%s](img/%s)\n\n", v.Title, v.Name(r.of, i))
		}
	}
	var why []string
	for _, key := range r.order {
		if m := r.cells[key]; m.untold != "" {
			why = append(why, fmt.Sprintf("- not measured: %s: %s\n", key, m.untold))
		}
	}
	if len(why) > 0 {
		b.WriteString(strings.Join(why, "") + "\n")
	}
	if len(r.of.Defaults) > 0 {
		b.WriteString("Defaults that rest on it:")
		for i, d := range r.of.Defaults {
			if i > 0 {
				b.WriteByte(';')
			}
			fmt.Fprintf(&b, " %s (`%s`)", d.What, d.Where)
		}
		b.WriteString(".\n\n")
	}
	return b.String()
}

// Print writes what a run found for a person: medians and verdicts.
func (r *Results) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: %s\n%s", r.of.ID, r.of.Name, r.of.Question, r.Header.machine())
	if r.Header.CPU != "" {
		fmt.Fprintf(&b, "; CPU time by %s", r.Header.CPU)
	}
	b.WriteString("\n\n")
	for i := range r.of.Views {
		r.table(&b, &r.of.Views[i])
	}
	for i := range r.of.Claims {
		p := &r.of.Claims[i]
		v := p.Verdict(r)
		fmt.Fprintf(&b, "%s: %s (%s)\n    %s\n", v.Word, p.Claim, p.Says, v.Reason)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// PrintJSON writes the same as one JSON object.
func (r *Results) PrintJSON(w io.Writer) error {
	type value struct {
		Cell    Cell                `json:"cell"`
		Untold  string              `json:"untold,omitempty"`
		Metrics map[string]Interval `json:"metrics,omitempty"`
	}
	type claim struct {
		Claim string `json:"claim"`
		Says  string `json:"says"`
		Verdict
	}
	out := struct {
		Header Header  `json:"header"`
		Cells  []value `json:"cells"`
		Claims []claim `json:"claims"`
	}{Header: r.Header}
	for _, key := range r.order {
		m := r.cells[key]
		v := value{Cell: m.cell, Untold: m.untold, Metrics: make(map[string]Interval)}
		for name := range m.values {
			v.Metrics[name] = r.Of(m.cell, name)
		}
		out.Cells = append(out.Cells, v)
	}
	for i := range r.of.Claims {
		p := &r.of.Claims[i]
		out.Claims = append(out.Claims, claim{p.Claim, p.Says, p.Verdict(r)})
	}
	return json.NewEncoder(w).Encode(out)
}
