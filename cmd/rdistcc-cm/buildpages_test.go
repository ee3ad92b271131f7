package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/builds"
	"github.com/rdistcc/rdistcc/internal/telemetry"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// TestBuildPages: the list has each build, without the words of its command; a page is made once if its build has ended, and each
// time otherwise; and what is no build is no page.
func TestBuildPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "builds")
	p := newBuildPages(dir, func() telemetry.Page { return telemetry.Page{Program: "rdistcc-cm"} })
	made := make(map[string]int)
	p.make = func(_ context.Context, ids []int) ([]byte, error) {
		if made[fmt.Sprint(ids)]++; ids[0] == 3 {
			return nil, errors.New("the page of build 3: out of memory")
		}
		return fmt.Appendf(nil, "page %d", ids), nil
	}
	mux := http.NewServeMux()
	for pattern, h := range p.handlers() {
		mux.HandleFunc(pattern, h)
	}
	get := func(path string, code int, words ...string) string {
		t.Helper()
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != code {
			t.Errorf("%s: status %d, want %d", path, w.Code, code)
		}
		for _, word := range words {
			if !strings.Contains(w.Body.String(), word) {
				t.Errorf("%s lacks %q:\n%s", path, word, w.Body)
			}
		}
		if code == http.StatusOK && strings.HasPrefix(path, "/builds") && !strings.Contains(w.Header().Get("Content-Security-Policy"), "script-src 'self'") {
			t.Errorf("%s has the policy %q", path, w.Header().Get("Content-Security-Policy"))
		}
		return w.Body.String()
	}
	get("/builds", http.StatusOK, "none is kept yet")
	s := builds.Open(dir)
	began := time.Now().Add(-time.Minute)
	for range 3 {
		began = began.Add(time.Second)
		l := s.New(builds.Build{Command: []string{"/usr/bin/make", "TOKEN=secret<b>"}, Began: began, Cores: 2})
		l.Add([]report.JobRecord{{Began: began, Ended: began, Host: "h", Finished: true}})
		l.Build.Exit = 2
		l.Finish(began.Add(2 * time.Second))
	}
	running := s.New(builds.Build{Command: []string{"ninja"}, Began: began})
	text := get("/builds", http.StatusOK, `href="builds/1"`, "make ...", "runs", "100%", "2 s")
	if strings.Contains(text, "secret") {
		t.Error("the list shows words of a command")
	}
	for range 3 {
		get("/builds/1", http.StatusOK, "page [1]")
		get("/builds/2?with=1", http.StatusOK, "page [2 1]")
		get("/builds/4", http.StatusOK, "page [4]")
	}
	if made["[1]"] != 1 || made["[2 1]"] != 1 || made["[4]"] != 3 {
		t.Errorf("pages were made %v times", made)
	}
	running.Finish(time.Now())
	get("/builds/3", http.StatusNotFound, "out of memory")
	get("/builds/1?with=2", http.StatusNotFound, "build 2 was later: /builds/2?with=1 compares them")
	get("/builds/2?with=9", http.StatusNotFound, "no build 9 can be read")
	for _, path := range []string{"/builds/2?with=", "/builds/2?with=x", "/builds/2?with=01", "/builds/2?with=1&with=1", "/builds/9", "/builds/0", "/builds/x", "/builds/01", "/builds/-1", "/builds/99999999999999999999", "/builds/1%2f..%2f2"} {
		get(path, http.StatusNotFound)
	}
	get("/build.css", http.StatusOK, "color-scheme")
	get("/build.js", http.StatusOK, "table.sorts")
}
