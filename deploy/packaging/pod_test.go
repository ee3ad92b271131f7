package packaging

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"golang.org/x/sys/unix"
	"gopkg.in/yaml.v3"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// inPod names the variable with the root directory of a process that is to become a pod.
const inPod = "RDISTCC_TEST_POD"

// firstUser is what root of the pod is outside of it.
const firstUser = 100000

// becomePod makes root this process's root directory, and runs a command in a user namespace there, as pods with `hostUsers: false` are run.
// It returns the command's exit status.
func becomePod(root string, argv []string) (int, error) {
	runtime.LockOSThread()
	mount := func(what, where, kind string, flags uintptr, data string) error {
		if err := unix.Mount(what, filepath.Join(root, where), kind, flags, data); err != nil {
			return fmt.Errorf("mount %s: %w", where, err)
		}
		return nil
	}
	err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		mount(root, "", "", unix.MS_BIND, ""),
		mount("proc", "proc", "proc", 0, ""),
		mount("/dev", "dev", "", unix.MS_BIND|unix.MS_REC, ""),
	)
	for _, dir := range []string{"work", "tmp", "var/cache"} {
		err = errors.Join(err, mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("mode=1777,uid=%d,gid=%d", firstUser, firstUser)))
	}
	if err = errors.Join(err, unix.Chdir(root), unix.PivotRoot(".", "."), unix.Unmount(".", unix.MNT_DETACH), unix.Chdir("/")); err != nil {
		return 0, err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: firstUser, Size: 1 << 16}}
	cmd := &exec.Cmd{Path: argv[0], Args: argv, Env: []string{"PATH=/usr/bin", "XDG_CACHE_HOME=/var/cache"}, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true,
			Credential: &syscall.Credential{}, Pdeathsig: syscall.SIGKILL}}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s) // it may have ended
		}
	}()
	_ = cmd.Wait() // its status says it
	return cmd.ProcessState.ExitCode(), nil
}

// container returns the settings and the command of the plain manifests' container.
func container(t *testing.T) (settings string, argv []string) {
	t.Helper()
	text, err := os.ReadFile("../kubernetes/rdistcc.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var object struct {
			Kind string
			Data map[string]string
			Spec struct {
				Template struct {
					Spec struct {
						Containers []struct{ Command, Args []string }
					}
				}
			}
		}
		if err := d.Decode(&object); err == io.EOF {
			return settings, argv
		} else if err != nil {
			t.Fatal(err)
		}
		switch object.Kind {
		case "ConfigMap":
			settings = object.Data["config.yaml"]
		case "StatefulSet":
			c := object.Spec.Template.Spec.Containers[0]
			argv = append(c.Command, c.Args...)
		}
	}
}

// TestPodCompiles: the image, in a user namespace and with what the manifests give it, compiles for a manager with a certificate. It has no
// compiler, so it is sent one. On SIGTERM it ends well.
func TestPodCompiles(t *testing.T) {
	if testing.Short() {
		t.Skip("sends a compiler")
	}
	part.Skip(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts")
	}
	probe := exec.Command("unshare", "--mount", "--user", "--map-root-user", "unshare", "--mount", "--pid", "--fork", "true")
	if out, err := probe.CombinedOutput(); err != nil {
		need.Skipf(t, need.Sandbox, "no user namespaces here: %v: %s", err, out)
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		need.Skipf(t, need.Tools, "gcc is not installed")
	}
	programs, dir := farmtest.Programs(t), farmtest.Dir(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()

	// The image, of the programs as they are.
	stage, at, root := filepath.Join(dir, "stage"), filepath.Join(dir, "image"), filepath.Join(dir, "root")
	for _, d := range []string{filepath.Join(stage, "usr/bin"), at, root} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, from := range map[string]string{"rdistcc": "rdistcc", "rdistcc-cm": "rdistcc-cm", "rdistccd": "rdistccd", "rdistcc-perf": "rdistccd"} {
		if err := os.Link(filepath.Join(programs, from), filepath.Join(stage, "usr/bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	pack := exec.CommandContext(ctx, "go", "run", "./image", "-root", stage, "-out", filepath.Join(dir, "oci.tar"))
	pack.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1750000000")
	if out, err := pack.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.CommandContext(ctx, "tar", "-xf", filepath.Join(dir, "oci.tar"), "-C", at).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	index, err := layout.ImageIndexFromPath(at)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	layer, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer layer.Close()
	unpack(t, layer, root)

	// What the manifests mount. A secret's files are links into a directory that changes as a whole.
	certs := exec.CommandContext(ctx, filepath.Join(programs, "rdistcc"), "certs", filepath.Join(dir, "farm"))
	if out, err := certs.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	addrs, err := farm.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	settings, argv := container(t)
	settings = strings.NewReplacer("'[::]:7632'", addrs[0], "'[::]:7633'", `""`).Replace(settings) // others may use these ports here
	files := map[string][]byte{"etc/rdistcc/settings/..data/config.yaml": []byte(settings)}
	for name, from := range map[string]string{"tls.crt": "rdistccd.crt", "tls.key": "rdistccd.key", "ca.crt": "ca.crt"} {
		if files["etc/rdistcc/auth/..data/"+name], err = os.ReadFile(filepath.Join(dir, "farm", from)); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"proc", "dev", "work", "etc/rdistcc/settings/..data", "etc/rdistcc/auth/..data"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		path := filepath.Join(root, name)
		link := filepath.Join(filepath.Dir(filepath.Dir(path)), filepath.Base(path))
		if err := errors.Join(os.WriteFile(path, text, 0o400), os.Chown(path, firstUser, firstUser), os.Symlink("..data/"+filepath.Base(path), link)); err != nil {
			t.Fatal(err)
		}
	}

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "pod.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	pod := exec.CommandContext(ctx, self)
	pod.Args = argv
	pod.Env = append(os.Environ(), inPod+"="+root)
	pod.Stderr, pod.SysProcAttr = log, &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	pod.Cancel = func() error { return pod.Process.Signal(syscall.SIGTERM) }
	if err := pod.Start(); err != nil {
		t.Fatal(err)
	}
	said := func() string {
		b, err := os.ReadFile(log.Name())
		return fmt.Sprintf("%s%v", b, err)
	}

	// A build host.
	client := filepath.Join(dir, "client.yaml")
	in := filepath.Join(dir, "farm")
	if err := os.WriteFile(client, fmt.Appendf(nil, "auth: {tls: {cert: %s/client.crt, key: %s/client.key, ca: %s/ca.crt}}\ncache: {use: false}\nhttp: {manager: \"\"}\n", in, in, in), 0o600); err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(dir, "x.c")
	if err := os.WriteFile(source, []byte("#include <stdio.h>\nint main(void) { return puts(\"pod\"); }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "RDISTCC_DIR="+filepath.Join(dir, "state"), "RDISTCC_CONFIG="+client, "RDISTCC_HOSTS="+addrs[0], "RDISTCC_MODE=remote",
			"RDISTCC_REPORT="+filepath.Join(dir, "report"), "XDG_STATE_HOME="+dir, "XDG_CACHE_HOME="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s\nthe pod: %s", args, err, out, said())
		}
	}
	wrapper := filepath.Join(programs, "rdistcc")
	run(wrapper, gcc, "-g", "-O2", "-c", "x.c", "-o", "pod.o")
	run(gcc, "-g", "-O2", "-c", "x.c", "-o", "here.o")
	run(wrapper, "stop")
	there, err := os.ReadFile(filepath.Join(dir, "pod.o"))
	here, err2 := os.ReadFile(filepath.Join(dir, "here.o"))
	if err != nil || err2 != nil || !bytes.Equal(there, here) {
		t.Errorf("another object than here: %d and %d bytes, %v, %v", len(there), len(here), err, err2)
	}
	if report, err := os.ReadFile(filepath.Join(dir, "report")); err != nil || string(report) != "remote:"+addrs[0]+"\n" {
		t.Errorf("%q, %v", report, err)
	}
	if err := pod.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := pod.Wait(); err != nil {
		t.Errorf("the pod ended with %v: %s", err, said())
	}
	if text := said(); !strings.Contains(text, "level=full") {
		t.Errorf("compiles in the pod are not fully confined: %s", text)
	}
}
