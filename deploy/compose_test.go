package deploy

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
)

// composeService is a service of a Compose file, as far as ours uses it (compose-spec). Anything else is an error.
type composeService struct {
	Build           string
	Image           string
	Command         []string
	Entrypoint      []string
	Environment     map[string]string
	Volumes         []string
	Tmpfs           []string
	ReadOnly        bool     `yaml:"read_only"`
	CapDrop         []string `yaml:"cap_drop"`
	SecurityOpt     []string `yaml:"security_opt"`
	StopSignal      string   `yaml:"stop_signal"`
	StopGracePeriod string   `yaml:"stop_grace_period"`
	Restart         string
	Profiles        []string
	User            string
	WorkingDir      string `yaml:"working_dir"`
	Deploy          struct{ Replicas int }
}

// TestCompose: the daemon knows the options that the Compose file gives it, gets the files that they name, and has more time to end than
// a compile may take. The build's settings are settings, and it looks for hosts under the name of their service.
func TestCompose(t *testing.T) {
	text, err := os.ReadFile("compose/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Name     string
		Services map[string]composeService
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		t.Fatal(err)
	}
	hosts, build := file.Services["hosts"], file.Services["build"]
	defaults, err := config.Parse("", nil)
	if err != nil {
		t.Fatal(err)
	}
	if grace, err := time.ParseDuration(hosts.StopGracePeriod); err != nil || grace <= defaults.Daemon.JobTimeout {
		t.Errorf("hosts have %s to end, and a compile may take %v", hosts.StopGracePeriod, defaults.Daemon.JobTimeout)
	}
	dir := farmtest.Dir(t)
	bin := farmtest.Programs(t)
	if out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "rdistcc"), "certs", filepath.Join(dir, "farm")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// A setting that is wrong ends the daemon, with a status of its own, before anything else is looked at.
	args := append([]string(nil), hosts.Command...)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "=/farm/", "="+dir+"/farm/")
		if strings.HasPrefix(args[i], "--listen=") {
			args[i] = "--listen=192.0.2.1:7632" // an address that no machine has
		}
	}
	out, _ := exec.CommandContext(t.Context(), filepath.Join(bin, "rdistccd"), args...).CombinedOutput() // its text says it
	if !strings.Contains(string(out), "listen on 192.0.2.1:7632") {
		t.Errorf("rdistccd %s: %s", args, out)
	}
	for _, arg := range hosts.Command {
		if _, name, ok := strings.Cut(arg, "=/farm/"); ok && !strings.Contains(strings.Join(hosts.Volumes, "\n"), ":/farm/"+name+":ro") {
			t.Errorf("%s is not mounted", name)
		}
	}
	client, err := os.ReadFile("compose/client.yaml")
	if err == nil {
		_, err = config.Parse("client.yaml", client)
	}
	if err != nil || build.Environment["RDISTCC_HOSTS"] != "dns+hosts:7632" || build.Image != hosts.Image {
		t.Errorf("the build: %+v, %v", build, err)
	}
}
