package deploy

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/rdistcc/rdistcc/internal/config"
)

// TestManifestsSettings: the settings in the plain manifests are settings that the daemon knows, and the container's arguments name their file.
// `make charts` holds the manifests against Kubernetes.
func TestManifestsSettings(t *testing.T) {
	text, err := os.ReadFile("kubernetes/rdistcc.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var object struct {
			Kind string
			Data map[string]string
		}
		if err := d.Decode(&object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if object.Kind != "ConfigMap" {
			continue
		}
		found++
		c, err := config.Parse("config.yaml", []byte(object.Data["config.yaml"]))
		if err != nil {
			t.Fatal(err)
		}
		if c.Sandbox != "strict" || c.Daemon.Jobs != 4 || c.Auth.TLS.Cert == "" || c.HTTP.Daemon != "[::]:7633" || c.Daemon.Listen[0] != "[::]:7632" {
			t.Errorf("the settings are %+v", c)
		}
	}
	if found != 1 {
		t.Errorf("%d documents with settings", found)
	}
}
