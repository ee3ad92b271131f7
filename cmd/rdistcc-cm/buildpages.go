package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/internal/buildpage"
	"github.com/rdistcc/rdistcc/internal/builds"
	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/internal/telemetry"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// buildPages shows the past builds of the manager's user: a list, and a page on each. A page takes up to seconds of CPU time and hundreds of
// megabytes to make, so `rdistcc-cm ctl builds` makes it, one at a time, and those made last are kept.
type buildPages struct {
	store *builds.Store
	base  func() telemetry.Page                                // with the program's name and state
	make  func(ctx context.Context, ids []int) ([]byte, error) // with two, the first is compared with the second

	making sync.Mutex // held by who makes a page; guards made too
	made   []madePage // the newest last
}

// madePage is a page of builds that have ended, which stays as it is.
type madePage struct {
	ids   []int
	began []time.Time // tells them from others with the numbers
	page  []byte
}

// Bounds of what is kept, and of how long a page may take.
const (
	keptPages     = 4
	keptPageBytes = 8 << 20 // of one
	pageTime      = 2 * time.Minute
)

func newBuildPages(dir string, base func() telemetry.Page) *buildPages {
	return &buildPages{store: builds.Open(dir), base: base, make: makeBuildPage}
}

// handlers returns the pages for a telemetry.Server.
func (p *buildPages) handlers() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"GET /builds":                  telemetry.ServePage(p.list),
		"GET /builds/{id}":             telemetry.Unhurried(p.page),
		"GET /" + buildpage.StyleName:  telemetry.Asset("text/css; charset=utf-8", buildpage.Style),
		"GET /" + buildpage.ScriptName: telemetry.Asset("text/javascript; charset=utf-8", buildpage.Script),
	}
}

// list is the page with all builds.
func (p *buildPages) list() telemetry.Page {
	page := p.base()
	page.Facts, page.Notes = nil, nil
	t := telemetry.Table{Title: "Past builds", Empty: "none is kept yet: rdistcc build -- make -j32 runs one",
		Columns: []string{"build", "began", "took", "saved", "commands", "on hosts", "cached", "exit", "command"}}
	list, err := p.store.List()
	if err != nil {
		page.Notes = append(page.Notes, err.Error())
	}
	for i := range list {
		t.Rows = append(t.Rows, buildRow(&list[i]))
	}
	page.Tables = []telemetry.Table{t}
	return page
}

// buildRow is the row of a build, as `rdistcc builds` prints it.
func buildRow(b *builds.Build) []telemetry.Cell {
	took, saved, exit := "-", "-", telemetry.Cell{Text: strconv.Itoa(b.Exit)}
	switch {
	case b.Running:
		exit.Text = "runs"
	case b.Ended.IsZero():
		exit = telemetry.Cell{Text: "killed", Tone: telemetry.ToneWarn}
	default:
		took = figure.Digits(b.Wall())
		if b.Gain.Jobs > 0 {
			if saved = figure.Digits(b.Saved()); b.Saved() < 0 {
				saved = "-" + figure.Digits(-b.Saved())
			}
		}
		if b.Exit != 0 {
			exit.Tone = telemetry.ToneBad
		}
	}
	share := func(place string) telemetry.Cell {
		if b.Gain.Jobs == 0 {
			return telemetry.Cell{Text: "-"}
		}
		n := b.Gain.Of(place)
		return telemetry.Cell{Text: figure.Percent(uint64(n), uint64(b.Gain.Jobs)), Share: float64(n) / float64(b.Gain.Jobs)}
	}
	id := strconv.Itoa(b.ID)
	return []telemetry.Cell{{Text: id, Link: "builds/" + id}, {Text: b.Began.Format(time.DateTime)}, {Text: took}, {Text: saved}, {Text: strconv.Itoa(b.Gain.Jobs)},
		share(report.PlaceRemote), share(report.PlaceCached), exit, {Text: buildpage.CommandOf(b, true)}}
}

// page shows one build, compared with the one that the query names.
func (p *buildPages) page(w http.ResponseWriter, r *http.Request) {
	var ids []int
	for i, text := range append([]string{r.PathValue("id")}, r.URL.Query()["with"]...) {
		id, err := strconv.Atoi(text)
		if err != nil || id < 1 || strconv.Itoa(id) != text || i > 1 {
			http.Error(w, "builds have numbers; /builds lists them", http.StatusNotFound)
			return
		}
		ids = append(ids, id)
	}
	ctx, cancel := context.WithTimeout(r.Context(), pageTime)
	defer cancel()
	page, err := p.of(ctx, ids)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(10 * time.Second)) // it is a connection of a Server
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	telemetry.ServeHTML(w, page)
}

// of returns the page of a build, or of two.
func (p *buildPages) of(ctx context.Context, ids []int) ([]byte, error) {
	p.making.Lock()
	defer p.making.Unlock()
	if ctx.Err() != nil {
		return nil, ctx.Err() // it has waited too long, or its reader has gone
	}
	ended := true
	var began []time.Time
	for _, id := range ids {
		b, err := p.store.Find(id)
		if err != nil {
			return nil, fmt.Errorf("no build %d can be read; /builds lists those that can", id)
		}
		ended = ended && !b.Ended.IsZero()
		began = append(began, b.Began)
	}
	if len(ids) == 2 && began[0].Before(began[1]) {
		return nil, fmt.Errorf("build %d was later: /builds/%d?with=%d compares them", ids[1], ids[1], ids[0])
	}
	for _, m := range p.made {
		if slices.Equal(m.ids, ids) && slices.EqualFunc(m.began, began, time.Time.Equal) {
			return m.page, nil
		}
	}
	page, err := p.make(ctx, ids)
	if err == nil && ended && len(page) <= keptPageBytes {
		p.made = append(p.made, madePage{ids, began, page})
		p.made = p.made[max(len(p.made)-keptPages, 0):]
	}
	return page, err
}

// makeBuildPage has another process of this program make the page of builds.
func makeBuildPage(ctx context.Context, ids []int) ([]byte, error) {
	var out, errOut bytes.Buffer
	args := []string{"ctl", "builds", "--served"}
	for _, id := range ids {
		args = append(args, strconv.Itoa(id))
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...) // also if the file has been replaced
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		line, _, _ := strings.Cut(strings.TrimPrefix(errOut.String(), "rdistcc: "), "\n")
		return nil, fmt.Errorf("the page of build %d: %s", ids[0], cmp.Or(line, err.Error()))
	}
	return out.Bytes(), nil
}
