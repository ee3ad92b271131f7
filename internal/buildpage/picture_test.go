package buildpage

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/browser"
)

var (
	screenshots = flag.String("screenshots", "", "directory for the pictures of TestPictures; empty: none are made")
	pictured    = flag.String("page", "", "the page that they show, such as one that rdistcc builds --report wrote")
)

// TestPictures makes pictures of a page on a build, build-1400-light.png and build-500-dark.png, if it is told to, and says how long the
// browser takes for it.
func TestPictures(t *testing.T) {
	if *screenshots == "" || *pictured == "" {
		t.Skip("-screenshots names no directory, or -page no file")
	}
	chromium := browser.Start(t)
	for _, x := range []struct {
		width, height int
		dark          bool
	}{{1400, 1500, false}, {500, 1400, true}} {
		p := chromium.Open("file://"+*pictured, browser.Look{Width: x.width, Height: x.height, Dark: x.dark})
		p.WaitFor("the tables", `document.readyState === 'complete' && document.querySelectorAll('table.sorts [aria-sort]').length > 5`)
		var loaded, sorted float64
		p.Eval(`performance.getEntriesByType('navigation')[0].loadEventEnd`, &loaded)
		const heads = `[...document.querySelectorAll('table.sorts')].at(-1).tHead.querySelectorAll('button')`
		p.Eval(`(() => { const t = performance.now(); `+heads+`[0].click(); document.body.offsetWidth; return performance.now() - t; })()`, &sorted)
		t.Logf("%d pixels: shown in %.0f ms, the commands sorted in %.0f ms", x.width, loaded, sorted)
		p.Eval(`[...`+heads+`].find(b => b.textContent === 'Took').click()`, nil)
		name := fmt.Sprintf("build-%d-%s.png", x.width, map[bool]string{false: "light", true: "dark"}[x.dark])
		if err := os.WriteFile(filepath.Join(*screenshots, name), p.Screenshot(x.width, x.height), 0o644); err != nil {
			t.Error(err)
		}
		p.Close()
	}
}
