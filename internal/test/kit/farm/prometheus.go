package farm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Monitor starts a Prometheus server that watches the farm with the scrape configuration and rules of
// deploy, but at shorter intervals. It keeps its data below the farm's directory. page is its address, or
// empty for any free port.
//
// The error is an *exec.Error if Prometheus is not installed.
func (f *Farm) Monitor(ctx context.Context, deploy, page string) (Process, error) {
	program, err := exec.LookPath("prometheus")
	if err != nil {
		return Process{}, err
	}
	dir := filepath.Join(f.Dir, "prometheus")
	if err := os.MkdirAll(filepath.Join(dir, "targets"), 0o755); err != nil {
		return Process{}, err
	}
	for _, name := range []string{"prometheus.yml", "rules.yml"} {
		data, err := os.ReadFile(filepath.Join(deploy, "prometheus", name))
		if err != nil {
			return Process{}, err
		}
		// The farm lives for minutes: scrape it every second.
		text := strings.NewReplacer("_interval: 15s", "_interval: 1s", "_timeout: 10s", "_timeout: 1s").Replace(string(data))
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return Process{}, err
		}
	}
	var daemons []string
	for _, d := range f.Daemons {
		daemons = append(daemons, d.HTTP)
	}
	for job, pages := range map[string][]string{"rdistccd": daemons, "rdistcc-cm": {f.Manager.HTTP}} {
		text := fmt.Sprintf("- targets: ['%s']\n", strings.Join(pages, "', '"))
		if err := os.WriteFile(filepath.Join(dir, "targets", job+".yml"), []byte(text), 0o644); err != nil {
			return Process{}, err
		}
	}
	if page == "" {
		pages, err := FreePorts(1)
		if err != nil {
			return Process{}, err
		}
		page = pages[0]
	}
	p, err := f.Launch(ctx, "prometheus", page, program,
		"--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+page, "--log.level=warn")
	if err != nil {
		return p, err
	}
	return p, p.WaitReady(ctx, "/-/ready")
}
