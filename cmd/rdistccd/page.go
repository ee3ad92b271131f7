package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/telemetry"
	"github.com/rdistcc/rdistcc/pkg/worker"
)

// page returns the current status page.
func (d *daemon) page() telemetry.Page {
	st := d.w.Status()
	host, _ := os.Hostname() // a page without a host name is still useful
	p := telemetry.Page{
		Program: "rdistccd", Host: host, Version: build.Version, State: "ready",
		Facts: []telemetry.Fact{
			{Name: "compiling", Value: fmt.Sprintf("%d of %d", st.Load.Running, st.Load.Jobs), Share: float64(st.Load.Running) / float64(max(st.Load.Jobs, 1))},
			{Name: "waiting", Value: strconv.Itoa(int(st.Load.Queued))},
			{Name: "credits not granted", Value: strconv.Itoa(int(st.Load.Free))},
			{Name: "load average", Value: fmt.Sprintf("%d.%02d", st.Load.LoadAvg/100, st.Load.LoadAvg%100)},
			{Name: "memory available", Value: fmt.Sprintf("%d MiB", st.Load.MemoryFree>>20)},
		},
	}
	if note := d.note(); note != "" {
		p.Notes = append(p.Notes, "Just started: "+note+".")
	}
	files := telemetry.Fact{Name: "files kept for clients", Value: kept(st.Store)}
	if st.Store.Most > 0 { // each tenant may have so much
		files.Share = float64(st.Store.Bytes+st.Store.DiskBytes) / float64(st.Store.Most) / float64(max(st.Tenants, 1))
	}
	results := telemetry.Fact{Name: "results that clients can read", Value: fmt.Sprintf("%d, %d MiB of memory, %d MiB on disk", st.Results.Entries, (st.Results.Bytes-st.Results.Disk)>>20, st.Results.Disk>>20)}
	most := d.cfg.Store.Results
	if st.Results.Disk > 0 { // they are in files instead
		most = d.cfg.Store.ResultsDisk
	}
	if most > 0 {
		results.Share = float64(st.Results.Bytes) / float64(most)
	}
	p.Facts = append(p.Facts, files, results)
	if st.Received.Bytes > 0 {
		p.Facts = append(p.Facts, telemetry.Fact{Name: "compilers that clients have sent", Value: fmt.Sprintf("%d, %d MiB on disk", st.Received.Toolchains, st.Received.Bytes>>20)})
	}
	p.Facts = append(p.Facts, confinement(st.Sandbox))
	if st.Sandbox.Breach != "" {
		p.Notes = append(p.Notes, "The last canary found that the sandbox leaks or fails: "+st.Sandbox.Breach)
	}
	if err := d.w.Ready(); err != nil {
		p.State = err.Error()
	}
	if !st.Tree {
		note := "Cannot show private trees, so compiles that depend on paths stay with the clients: " + st.NoTree
		if d.cfg.Daemon.Tree == "off" {
			note = "Shows no private trees, as set: compiles that depend on paths stay with the clients."
		}
		p.Notes = append(p.Notes, note)
	}
	if allow := d.w.Settings().Allow; len(allow) > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("Takes jobs, not encrypted, from this machine and from %s.", strings.Trim(fmt.Sprint(allow), "[]")))
	}
	p.Tables = []telemetry.Table{jobs(st), clients(st), d.refusals(), d.toolchains()}
	return p
}

// kept describes in one line what the store holds.
func kept(s worker.StoreStatus) string {
	if s.Most == 0 {
		return "none"
	}
	text := fmt.Sprintf("%d, %d MiB of memory", s.Contents, s.Bytes>>20)
	if s.DiskBytes > 0 {
		text += fmt.Sprintf(", %d MiB on disk", s.DiskBytes>>20)
	}
	return text
}

// confinement describes how compiles are confined.
func confinement(s worker.SandboxStatus) telemetry.Fact {
	level := s.Measures.Level()
	f := telemetry.Fact{Name: "compiles are confined", Value: level.String() + ", set to " + s.Mode.String(), Tone: telemetry.ToneWarn}
	if names := s.Measures.Names(); len(names) > 0 {
		f.Value = fmt.Sprintf("%s (%s), set to %s", level, strings.Join(names, ", "), s.Mode)
	}
	switch {
	case s.Breach != "", level == sandbox.Off:
		f.Tone = telemetry.ToneBad
	case level >= sandbox.Confined:
		f.Tone = telemetry.ToneGood
	}
	return f
}

// refusals shows what this host has refused, and whom.
func (d *daemon) refusals() telemetry.Table {
	t := telemetry.Table{Title: "Refused", Empty: "nothing", Columns: []string{"what", "reason", "times"}}
	list, err := d.metrics.Refusals()
	if err != nil {
		t.Empty = err.Error()
	}
	for _, r := range list {
		t.Rows = append(t.Rows, []telemetry.Cell{{Text: r.What}, {Text: r.Cause}, {Text: strconv.FormatUint(r.Count, 10)}})
	}
	return t
}

func clients(st worker.Status) telemetry.Table {
	t := telemetry.Table{
		Title: "Managers", Empty: "no manager is connected",
		Columns: []string{"name", "tenant", "version", "address", "for", "jobs", "in hand", "credits", "weight", "has use for", "received", "sent"},
	}
	slices.SortFunc(st.Clients, func(a, b worker.ClientStatus) int { return strings.Compare(a.Name+a.Remote, b.Name+b.Remote) })
	for _, c := range st.Clients {
		var row []telemetry.Cell
		for _, text := range []string{
			c.Name, c.Tenant, cmp.Or(c.Version, c.Via, "-"), c.Remote, time.Since(c.Since).Round(time.Second).String(), strconv.FormatUint(c.Jobs, 10),
			strconv.Itoa(c.InHand), strconv.Itoa(c.Credits), strconv.Itoa(c.Weight), demand(c.Demand), kib(c.BytesIn), kib(c.BytesOut),
		} {
			row = append(row, telemetry.Cell{Text: text})
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// rowsOfJobs is how many running jobs the page shows.
const rowsOfJobs = 100

func jobs(st worker.Status) telemetry.Table {
	t := telemetry.Table{Title: "Under way", Empty: "nothing", Columns: []string{"file", "place", "manager", "address", "phase", "age"}}
	for i := range st.Jobs[:min(len(st.Jobs), rowsOfJobs)] {
		j := &st.Jobs[i]
		t.Rows = append(t.Rows, []telemetry.Cell{
			{Text: cmp.Or(j.Source, "-")}, {Text: place(j.Place)}, {Text: j.Client}, {Text: j.Remote}, {Text: j.Phase}, {Text: j.Age.Round(100 * time.Millisecond).String()},
		})
	}
	return t
}

func place(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

func demand(n int) string {
	if n < 0 {
		return "any number"
	}
	return strconv.Itoa(n)
}

func kib(n uint64) string { return fmt.Sprintf("%d KiB", n>>10) }

func (d *daemon) toolchains() telemetry.Table {
	t := telemetry.Table{
		Title: "Compilers", Empty: "no compiler was found; see toolchains.dirs in the configuration",
		Columns: []string{"path", "family", "version", "target", "id"},
	}
	for _, tc := range d.w.Toolchains() {
		t.Rows = append(t.Rows, []telemetry.Cell{
			{Text: tc.Exec}, {Text: tc.Family}, {Text: tc.Version}, {Text: tc.Target}, {Text: fmt.Sprintf("%x", tc.ID)},
		})
	}
	return t
}
