package worker

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/rdistcc/rdistcc/internal/sandbox"
)

// TestStatusAsJSON: all keys are in snake case, and the sandbox is described in words.
func TestStatusAsJSON(t *testing.T) {
	text, err := json.Marshal(Status{Clients: make([]ClientStatus, 1), Jobs: make([]JobStatus, 1),
		Sandbox: SandboxStatus{Mode: SandboxStrict, Measures: sandbox.Seccomp, Breach: "it leaks"}})
	if err != nil {
		t.Fatal(err)
	}
	keys := regexp.MustCompile(`"([^"]*)":`).FindAllStringSubmatch(string(text), -1)
	if len(keys) < 25 {
		t.Errorf("only %d keys in %s", len(keys), text)
	}
	for _, k := range keys {
		if !regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`).MatchString(k[1]) {
			t.Errorf("a key %q", k[1])
		}
	}
	if want := regexp.MustCompile(`"sandbox":\{"mode":"strict","level":"[a-z]+","measures":\["seccomp"\],"breach":"it leaks"\}`); !want.Match(text) {
		t.Errorf("the sandbox is missing in %s", text)
	}
}
