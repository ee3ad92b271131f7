// Package browser has tests look at pages in a real browser: a Chromium without a window, told what to do by its DevTools
// protocol over a pipe.
package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// patience is how long an answer may take before a test fails. A browser starts slowly on a busy machine.
const patience = 90 * time.Second

// Browser is a running browser. It is safe for concurrent use.
type Browser struct {
	t     testing.TB
	to    *os.File
	ended chan struct{} // closed when it says no more

	mu      sync.Mutex
	last    int                 // number of the last command
	waiting map[int]chan answer // by command
	pages   map[string]*Page    // by session
}

// answer is what the browser says: to a command, or of an event.
type answer struct {
	ID      int             `json:"id"`
	Method  string          `json:"method"`
	Session string          `json:"sessionId"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// Start starts a browser, which ends with the test. Without one the test is skipped.
func Start(t testing.TB) *Browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		need.Skipf(t, need.Tools, "no Chromium: %v", err)
	}
	dir, err := os.MkdirTemp("", "browser-")
	if err != nil {
		t.Fatal(err)
	}
	in, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "--headless", "--remote-debugging-pipe", "--user-data-dir="+dir,
		"--no-sandbox", // which root cannot have; the pages are our own
		"--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking", "--disable-component-update",
		"--disable-extensions", "--disable-sync", "--hide-scrollbars", "about:blank")
	cmd.Env = append(os.Environ(), "HOME="+dir) // it writes there
	cmd.ExtraFiles = []*os.File{in, out}        // 3 and 4, as the protocol has it
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	out.Close()
	b := &Browser{t: t, to: to, ended: make(chan struct{}), waiting: make(map[int]chan answer), pages: make(map[string]*Page)}
	go b.listen(from)
	t.Cleanup(func() {
		if _, err := b.call("", "Browser.close", nil); err != nil {
			t.Logf("close the browser: %v", err)
		}
		to.Close()
		select {
		case <-b.ended:
		case <-time.After(10 * time.Second):
		}
		cancel()
		_ = cmd.Wait() // its status says nothing about the test
		from.Close()
		if err := os.RemoveAll(dir); err != nil {
			t.Log(err)
		}
		if t.Failed() {
			t.Logf("the browser said:\n%s", said.Bytes())
		}
	})
	return b
}

// listen passes on what the browser says: messages that end with a zero byte.
func (b *Browser) listen(from *os.File) {
	defer close(b.ended)
	for r := bufio.NewReaderSize(from, 1<<20); ; {
		line, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var a answer
		if json.Unmarshal(line[:len(line)-1], &a) != nil {
			continue
		}
		b.mu.Lock()
		if c := b.waiting[a.ID]; c != nil && a.ID != 0 {
			delete(b.waiting, a.ID)
			c <- a // it has room
		} else if p := b.pages[a.Session]; p != nil {
			p.noteLocked(&a)
		}
		b.mu.Unlock()
	}
}

// call has the browser do something. session is that of a page, or empty.
func (b *Browser) call(session, method string, params any) (json.RawMessage, error) {
	c := make(chan answer, 1)
	b.mu.Lock()
	b.last++
	id := b.last
	b.waiting[id] = c
	message := map[string]any{"id": id, "method": method}
	if params != nil {
		message["params"] = params
	}
	if session != "" {
		message["sessionId"] = session
	}
	line, err := json.Marshal(message)
	if err == nil {
		_, err = b.to.Write(append(line, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case a := <-c:
		if a.Error != nil {
			return nil, fmt.Errorf("%s: %s", method, a.Error.Message)
		}
		return a.Result, nil
	case <-b.ended:
		return nil, errors.New(method + ": the browser has ended")
	case <-time.After(patience):
		return nil, fmt.Errorf("%s: no answer for %v", method, patience)
	}
}

// Page is an open page.
type Page struct {
	b       *Browser
	session string
	target  string

	complaints []string // guarded by b.mu
}

// Look says how a page is looked at.
type Look struct {
	Width, Height int
	Dark          bool
	Still         bool // motion is to be reduced
	NoScript      bool
	Print         bool // as it is printed
}

// Open opens a page and returns when it has loaded.
func (b *Browser) Open(url string, look Look) *Page {
	b.t.Helper()
	p := &Page{b: b}
	var made struct{ TargetID string }
	b.must("", "Target.createTarget", map[string]any{"url": "about:blank"}, &made)
	p.target = made.TargetID
	var attached struct{ SessionID string }
	b.must("", "Target.attachToTarget", map[string]any{"targetId": p.target, "flatten": true}, &attached)
	p.session = attached.SessionID
	b.mu.Lock()
	b.pages[p.session] = p
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		p.must(domain+".enable", nil, nil)
	}
	p.Resize(look.Width, look.Height)
	scheme, motion := "light", "no-preference"
	if look.Dark {
		scheme = "dark"
	}
	if look.Still {
		motion = "reduce"
	}
	media := ""
	if look.Print {
		media = "print"
	}
	p.must("Emulation.setEmulatedMedia", map[string]any{"media": media, "features": []map[string]string{
		{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": motion}}}, nil)
	p.must("Emulation.setScriptExecutionDisabled", map[string]any{"value": look.NoScript}, nil)
	p.must("Page.navigate", map[string]any{"url": url}, nil)
	return p
}

// Resize gives the page another size, in CSS pixels.
func (p *Page) Resize(width, height int) {
	p.b.t.Helper()
	p.must("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
}

// Eval evaluates an expression in the page and stores its value in to, as JSON. A promise is waited for.
func (p *Page) Eval(expression string, to any) {
	p.b.t.Helper()
	if err := p.eval(expression, to); err != nil {
		p.b.t.Fatalf("%s: %v", expression, err)
	}
}

func (p *Page) eval(expression string, to any) error {
	raw, err := p.b.call(p.session, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true})
	if err != nil {
		return err
	}
	var out struct {
		Result struct {
			Value json.RawMessage
		}
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		return err
	}
	if out.ExceptionDetails != nil {
		return errors.New(out.ExceptionDetails.Exception.Description)
	}
	if to == nil || out.Result.Value == nil {
		return nil
	}
	return json.Unmarshal(out.Result.Value, to)
}

// WaitFor waits until an expression is true.
func (p *Page) WaitFor(what, expression string) {
	p.b.t.Helper()
	var text string
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		var ok bool
		if p.eval("!!("+expression+")", &ok) == nil && ok {
			return
		}
	}
	_ = p.eval("document.body.innerText", &text) // for the message
	p.b.t.Fatalf("%s: not so after %v; complaints: %q; the page shows:\n%s", what, patience, p.Complaints(), text)
}

// Press presses a key: Tab, Enter or Space.
func (p *Page) Press(key string) {
	p.b.t.Helper()
	of := map[string]map[string]any{
		"Tab":   {"key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9},
		"Enter": {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"},
		"Space": {"key": " ", "code": "Space", "windowsVirtualKeyCode": 32, "text": " "},
	}[key]
	for _, kind := range []string{"keyDown", "keyUp"} {
		of["type"] = kind
		p.must("Input.dispatchKeyEvent", of, nil)
	}
}

// Screenshot returns the page as PNG: its first height pixels, or all of it if that is less.
func (p *Page) Screenshot(width, height int) []byte {
	p.b.t.Helper()
	var shot struct{ Data string }
	p.must("Page.captureScreenshot", map[string]any{"format": "png", "clip": map[string]any{"x": 0, "y": 0, "width": width, "height": height, "scale": 1}, "captureBeyondViewport": true}, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		p.b.t.Fatal(err)
	}
	return data
}

// Close closes the page.
func (p *Page) Close() {
	p.b.t.Helper()
	p.b.must("", "Target.closeTarget", map[string]any{"targetId": p.target}, nil)
}

// Complaints returns what the browser and scripts have complained about: errors, and what a policy forbade.
func (p *Page) Complaints() []string {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	return append([]string(nil), p.complaints...)
}

func (p *Page) noteLocked(a *answer) {
	switch a.Method {
	case "Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled":
		p.complaints = append(p.complaints, string(a.Params))
	}
}

func (p *Page) must(method string, params, to any) {
	p.b.t.Helper()
	p.b.must(p.session, method, params, to)
}

func (b *Browser) must(session, method string, params, to any) {
	b.t.Helper()
	raw, err := b.call(session, method, params)
	if err == nil && to != nil {
		err = json.Unmarshal(raw, to)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}
