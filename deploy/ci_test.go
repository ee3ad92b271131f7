package deploy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// step is what a runner executes at a time.
type step struct {
	Name, Uses, Run, If string
	Env                 map[string]string
	With                map[string]any
}

// workflow is as much of GitHub's syntax as the template uses.
type workflow struct {
	Name        string
	On          map[string]any
	Permissions map[string]string
	Jobs        map[string]struct {
		RunsOn   string `yaml:"runs-on"`
		Defaults struct{ Run struct{ Shell string } }
		Env      map[string]string
		Steps    []step
	}
}

// pipeline is as much of GitLab's syntax as the template uses.
type pipeline map[string]struct {
	Extends, Image string
	Variables      map[string]string
	Cache          struct {
		Key, When string
		Paths     []string
	}
	Rules []struct {
		If, When  string
		Variables map[string]string
	}
	BeforeScript []string `yaml:"before_script"`
	AfterScript  []string `yaml:"after_script"`
	Script       []string
}

// load decodes a template; a key that its type does not have is an error.
func load(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func github(t *testing.T) (w workflow) {
	t.Helper()
	load(t, "ci/github.yml", &w)
	if len(w.Jobs) != 1 || len(w.Jobs["build"].Steps) < 5 || len(w.On) == 0 || w.Permissions["contents"] != "read" || w.Jobs["build"].Defaults.Run.Shell != "bash" {
		t.Fatalf("ci/github.yml has not the parts of a workflow: %+v", w)
	}
	return w
}

func gitlab(t *testing.T) (p pipeline) {
	t.Helper()
	load(t, "ci/gitlab.yml", &p)
	if p["build"].Extends != ".rdistcc" || len(p["build"].Script) == 0 || len(p[".rdistcc"].BeforeScript) == 0 {
		t.Fatalf("ci/gitlab.yml has not the parts of a pipeline: %+v", p)
	}
	return p
}

// TestStepsOfWorkflows checks what needs no farm: a step is an action of a fixed version or a script; no script has
// an expression in it, with which the title of a pull request could become a command; and shells accept the scripts.
func TestStepsOfWorkflows(t *testing.T) {
	scripts := map[string]string{} // text: shell
	for _, s := range github(t).Jobs["build"].Steps {
		if (s.Uses == "") == (s.Run == "") {
			t.Errorf("a step is either an action or a script: %+v", s)
		}
		if s.Uses != "" && !regexp.MustCompile(`^[\w-]+/[\w-]+@v\d+$`).MatchString(s.Uses) {
			t.Errorf("%s names no version", s.Uses)
		}
		if strings.Contains(s.Run, "${{") {
			t.Errorf("%s: an expression becomes part of the script; pass it in env", s.Name)
		}
		if s.Run != "" {
			scripts[s.Run] = "bash"
		}
	}
	for _, job := range gitlab(t) {
		for _, part := range [][]string{job.BeforeScript, job.Script, job.AfterScript} {
			if len(part) > 0 {
				scripts[strings.Join(part, "\n")] = "sh"
			}
		}
	}
	for text, shell := range scripts {
		check := func(command ...string) {
			cmd := exec.Command(command[0], command[1:]...)
			cmd.Stdin = strings.NewReader("set -e\n" + text) // as runners do
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %v\n%s\n%s", command, err, out, text)
			}
		}
		check(shell, "-n")
		if _, err := exec.LookPath("shellcheck"); err != nil {
			need.Skipf(t, need.Tools, "shellcheck is not installed: only shells have read the scripts")
		}
		check("shellcheck", "--shell", shell, "-")
	}
}

// runner is a machine of a CI: a checkout, a home, and a farm that it can reach or not.
type runner struct {
	t         *testing.T
	dir, home string
	env       map[string]string
	groups    []int
}

// newRunner lays a machine out. What it builds is a text of its own for each test.
func newRunner(t *testing.T, home, pkg string) *runner {
	t.Helper()
	r := &runner{t: t, dir: farmtest.Dir(t), home: home}
	files := map[string]string{
		"src/Makefile": "OBJS = a.o b.o c.o\nall: $(OBJS)\n",
		"src/a.c":      "#include <stdio.h>\nint a(void) { return puts(\"" + t.Name() + "\"); }\n",
		"src/b.c":      "#include <string.h>\nint b(const char *s) { return strcmp(s, \"" + t.Name() + "\"); }\n",
		"src/c.c":      "const char *c(void) { return \"" + t.Name() + "\"; }\n",
	}
	for _, dir := range []string{"src", "temp"} {
		if err := os.Mkdir(filepath.Join(r.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	archive, err := os.ReadFile(pkg)
	if err != nil {
		t.Fatal(err)
	}
	r.env = map[string]string{
		"PATH": os.Getenv("PATH"), "HOME": home, "LC_ALL": "C", "TMPDIR": filepath.Join(r.dir, "temp"), "RUNNER_TEMP": filepath.Join(r.dir, "temp"),
		"RDISTCC_REPORT": filepath.Join(r.dir, "report"), "RDISTCC_PACKAGE": "file://" + pkg, "RDISTCC_SHA256": fmt.Sprintf("%x", sha256.Sum256(archive)),
	}
	t.Cleanup(func() {
		stop := exec.Command("rdistcc", "stop")
		stop.Env = r.environ(nil)
		if path, err := r.find("rdistcc"); err == nil {
			stop.Path, stop.Err = path, nil
			_ = stop.Run() // it may be gone
		}
		for _, g := range r.groups {
			_ = syscall.Kill(-g, syscall.SIGTERM)
		}
		for _, g := range r.groups { // what the runner would end with its machine
			for syscall.Kill(-g, 0) == nil && t.Context().Err() != nil {
				time.Sleep(10 * time.Millisecond)
			}
		}
	})
	return r
}

func (r *runner) find(program string) (string, error) {
	for dir := range strings.SplitSeq(r.env["PATH"], ":") {
		if file := filepath.Join(dir, program); exec.Command("test", "-x", file).Run() == nil {
			return file, nil
		}
	}
	return "", os.ErrNotExist
}

func (r *runner) environ(more map[string]string) (list []string) {
	all := maps.Clone(r.env)
	maps.Copy(all, more)
	for k, v := range all {
		list = append(list, k+"="+v)
	}
	return list
}

// run runs a script as the runner does, and fails the test if it fails.
func (r *runner) run(ctx context.Context, what, script string, env map[string]string, shell ...string) string {
	r.t.Helper()
	cmd := exec.CommandContext(ctx, shell[0], append(shell[1:], script)...)
	cmd.Dir, cmd.Env = filepath.Join(r.dir, "src"), r.environ(env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second // a daemon that it leaves has its outputs elsewhere
	out, err := cmd.CombinedOutput()
	if cmd.Process != nil {
		r.groups = append(r.groups, cmd.Process.Pid)
	}
	if err != nil {
		r.t.Fatalf("%s: %v\n%s", what, err, out)
	}
	return string(out)
}

// actions runs the workflow with these variables and secrets of the repository.
func (r *runner) actions(ctx context.Context, vars, secrets map[string]string) {
	r.t.Helper()
	job := github(r.t).Jobs["build"]
	expand := func(s string) string {
		return regexp.MustCompile(`\$\{\{ ([^}]+) \}\}`).ReplaceAllStringFunc(s, func(e string) string {
			e = strings.TrimSuffix(strings.TrimPrefix(e, "${{ "), " }}")
			kind, name, _ := strings.Cut(e, ".")
			switch {
			case kind == "vars":
				return vars[name]
			case kind == "secrets":
				return secrets[name]
			case e == "github.workspace":
				return filepath.Join(r.dir, "src")
			case e == "github.event.pull_request.head.repo.fork && 'read' || 'on'":
				return "on"
			}
			r.t.Errorf("the test does not know the expression %s", e)
			return ""
		})
	}
	for k, v := range job.Env {
		r.env[k] = expand(v)
	}
	for _, name := range []string{"GITHUB_ENV", "GITHUB_PATH", "GITHUB_STEP_SUMMARY"} {
		r.env[name] = filepath.Join(r.dir, name)
		if err := os.WriteFile(r.env[name], nil, 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, s := range job.Steps {
		if s.Run == "" || s.If == "failure()" {
			continue
		}
		env := map[string]string{}
		for k, v := range s.Env {
			env[k] = expand(v)
		}
		if env["LOCAL"] != "" {
			env["LOCAL"] = unusedAddr(r.t)
		}
		r.run(ctx, s.Name, s.Run, env, "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")
		for line := range strings.Lines(r.read("GITHUB_ENV")) {
			k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
			r.env[k] = v
		}
		for line := range strings.Lines(r.read("GITHUB_PATH")) {
			if dir := strings.TrimSpace(line); !strings.HasPrefix(r.env["PATH"], dir+":") {
				r.env["PATH"] = dir + ":" + r.env["PATH"]
			}
		}
	}
	if summary := r.read("GITHUB_STEP_SUMMARY"); !strings.Contains(summary, "PLACE") {
		r.t.Errorf("the summary has no figures:\n%s", summary)
	}
}

// gitlab runs the job with these variables of the project.
func (r *runner) gitlab(ctx context.Context, vars map[string]string) {
	r.t.Helper()
	p := gitlab(r.t)
	maps.Copy(r.env, vars)
	r.env["CI_PROJECT_DIR"] = filepath.Join(r.dir, "src")
	for k, v := range p[".rdistcc"].Variables {
		r.env[k] = os.Expand(v, func(name string) string { return r.env[name] })
	}
	r.env["RDISTCC_LOCAL"] = unusedAddr(r.t)
	r.env["XDG_CACHE_HOME"] = filepath.Join(r.home, ".cache") // the cache of the project, which runners restore
	script := slices.Concat([]string{"set -e"}, p[".rdistcc"].BeforeScript, p["build"].Script)
	r.run(ctx, "script", strings.Join(script, "\n"), nil, "sh", "-c")
	// A shell of its own, as of the runner.
	r.run(ctx, "after_script", strings.Join(append([]string{"set -e"}, p[".rdistcc"].AfterScript...), "\n"), nil, "sh", "-c")
	r.env["RDISTCC_DIR"], r.env["PATH"] = r.env["CI_PROJECT_DIR"]+".tmp/rdistcc-state", r.env["CI_PROJECT_DIR"]+".tmp/rdistcc/bin:"+r.env["PATH"]
}

func (r *runner) read(name string) string {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// TestWorkflowsBuild executes the scripts of both templates with the programs in a package: with a farm and its
// certificates; and without, on a second machine that has the results of the first.
func TestWorkflowsBuild(t *testing.T) {
	if testing.Short() {
		t.Skip("starts farms")
	}
	part.Skip(t)
	for _, tool := range []string{"gcc", "make", "bash", "curl", "sha256sum", "tar", "gzip"} {
		if _, err := exec.LookPath(tool); err != nil {
			need.Skipf(t, need.Tools, "%s is not installed", tool)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	f := farmtest.New(t, farmtest.Dir(t))
	if err := f.Secure(ctx, farm.Security{Auth: "tls"}); err != nil {
		t.Fatal(err)
	}
	host, err := f.StartDaemon(ctx, "farm1", "--jobs", "2")
	if err != nil {
		t.Fatal(err)
	}
	pkg := filepath.Join(farmtest.Dir(t), "rdistcc.tar.gz") // as `make package` makes it
	if out, err := exec.Command("tar", "-czf", pkg, "--transform", "s,^\\.,rdistcc-1-linux-amd64/bin,", "--exclude=./cache", "-C", f.Bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	identity, files := map[string]string{}, map[string]string{}
	for name, file := range map[string]string{"RDISTCC_CERT": "client.crt", "RDISTCC_KEY": "client.key", "RDISTCC_CA": "ca.crt"} {
		files[name] = filepath.Join(f.Dir, "certs", file)
		text, err := os.ReadFile(files[name])
		if err != nil {
			t.Fatal(err)
		}
		identity[name] = strings.TrimSpace(string(text))
	}
	for name, run := range map[string]func(r *runner, hosts string){
		"github": func(r *runner, hosts string) {
			secrets := identity
			if hosts == "" {
				secrets = nil
			}
			r.actions(ctx, map[string]string{"RDISTCC_HOSTS": hosts, "RDISTCC_PACKAGE": r.env["RDISTCC_PACKAGE"], "RDISTCC_SHA256": r.env["RDISTCC_SHA256"]}, secrets)
		},
		"gitlab": func(r *runner, hosts string) {
			if hosts == "" {
				r.gitlab(ctx, nil)
				return
			}
			vars := maps.Clone(files)
			vars["RDISTCC_HOSTS"] = hosts
			r.gitlab(ctx, vars)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, with := range []struct{ hosts, want string }{{host.Addr, "remote:" + host.Addr}, {"", "remote:127.0.0.1:"}} {
				home := farmtest.Dir(t)
				r := newRunner(t, home, pkg)
				run(r, with.hosts)
				if report := r.read("report"); strings.Count(report, with.want) < 3 || strings.Contains(report, "local:") {
					t.Errorf("with hosts %q, the first build's report is\n%s", with.hosts, report)
				}
				r = newRunner(t, home, pkg)
				run(r, with.hosts)
				if report := r.read("report"); strings.Count(report, "cached:manager") < 3 || strings.Contains(report, "local:") {
					t.Errorf("with hosts %q, the second build's report is\n%s", with.hosts, report)
				}
			}
		})
	}
}
