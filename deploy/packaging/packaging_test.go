// Package packaging holds what makes packages of rdistcc, and the tests that install them.
package packaging

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// The versions that are made of this checkout. The newer one has other settings.
const (
	older = "1.0"
	newer = "1.1"
)

// built is what the tests share: packages take half a minute to make.
var built struct {
	once sync.Once
	dir  string // two copies of the project are below, a and b
	err  error
}

func TestMain(m *testing.M) {
	if root := os.Getenv(inPod); root != "" {
		status, err := becomePod(root, os.Args)
		if err != nil {
			fmt.Fprintln(os.Stderr, "pod:", err)
			status = 1
		}
		os.Exit(status)
	}
	status := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(status)
}

// packages returns a directory with packages of both versions, and another one in which the older version was made again.
func packages(t *testing.T) (dir, again string) {
	t.Helper()
	part.Skip(t)
	for _, name := range []string{"gzip", "tar", "make"} {
		if _, err := exec.LookPath(name); err != nil {
			need.Skipf(t, need.Tools, "%s is not installed", name)
		}
	}
	if path, err := exec.Command("go", "env", "GOPATH").Output(); err != nil {
		t.Fatal(err)
	} else if _, err := os.Stat(filepath.Join(strings.TrimSpace(string(path)), "bin/nfpm")); err != nil {
		need.Skipf(t, need.Tools, "nfpm is not installed (make deps)")
	}
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "rdistcc-packages-"); built.err != nil {
			return
		}
		// b is a copy of a, not of what may have been edited meanwhile.
		built.err = errors.Join(build("../..", "a", older), build(filepath.Join(built.dir, "a"), "longer/name/b", older))
		if built.err == nil {
			built.err = change("a")
		}
		if built.err == nil {
			built.err = build("", "a", newer, "deb", "rpm")
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "a/out"), filepath.Join(built.dir, "longer/name/b/out")
}

// build makes packages in a directory with a copy of the project, and moves them to its directory out. If from is not
// empty, it makes the copy of that directory.
func build(from, name, version string, kinds ...string) error {
	dir := filepath.Join(built.dir, name)
	script := `set -e
mkdir -p "$2/out"
[ -z "$1" ] || tar -C "$1" --exclude=./.git --exclude=./bin --exclude=./dist --exclude=./out -cf - . | tar -xf - -C "$2"
cd "$2"
version=$3
shift 3
GO=go NFPM=none deploy/packaging/build "$version" "$@"
cat dist/SHA256SUMS >>out/SHA256SUMS
mv dist/*.* out/`
	cmd := exec.Command("bash", append([]string{"-c", script, "build", from, dir, version}, kinds...)...)
	cmd.Env = append(os.Environ(), "PKG_VERSION="+version, "SOURCE_DATE_EPOCH=1750000000", "MAKEFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s of %s: %w\n%s", version, name, err, out)
	}
	return nil
}

// change gives the copy other settings.
func change(name string) error {
	f, err := os.OpenFile(filepath.Join(built.dir, name, "deploy/config.yaml"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("# a newer default\n")
	return errors.Join(err, f.Close())
}

// TestReproducible: packages that are made at another time, in a directory with another name, are equal byte for byte.
func TestReproducible(t *testing.T) {
	a, b := packages(t)
	sums := func(dir string) []string {
		text, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(string(text), "\n")[:4]
	}
	for i, want := range sums(a) {
		if got := sums(b)[i]; got != want {
			t.Errorf("made twice:\n%s\n%s", want, got)
		}
	}
}

// TestLintian: Debian's checker of packages finds no error.
func TestLintian(t *testing.T) {
	dir, _ := packages(t)
	if _, err := exec.LookPath("lintian"); err != nil {
		need.Skipf(t, need.Tools, "lintian is not installed")
	}
	out, err := exec.Command("lintian", "--allow-root", filepath.Join(dir, "rdistcc_"+older+"-1_"+runtime.GOARCH+".deb")).CombinedOutput()
	if err != nil { // it exits with 2 if there are errors
		t.Errorf("lintian: %v\n%s", err, out)
	}
}

// TestInstall installs, upgrades and removes packages in roots of their own, and compiles with what they bring.
func TestInstall(t *testing.T) {
	dir, _ := packages(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("the scripts name packages of amd64")
	}
	if os.Geteuid() != 0 {
		need.Skipf(t, need.Network, "needs root: mount and network namespaces")
	}
	for kind, tool := range map[string]string{"deb": "dpkg", "rpm": "rpm"} {
		t.Run(kind, func(t *testing.T) {
			if _, err := exec.LookPath(tool); err != nil {
				need.Skipf(t, need.Tools, "%s is not installed", tool)
			}
			over := t.TempDir()
			probe := exec.Command("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c",
				`mount -t tmpfs none "$0" && mkdir "$0/u" "$0/w" "$0/m" && mount -t overlay overlay -o "lowerdir=/,upperdir=$0/u,workdir=$0/w" "$0/m"`, over)
			if out, err := probe.CombinedOutput(); err != nil {
				t.Skipf("no file system can be laid over this machine's: %v: %s", err, out)
			}
			scripts, err := filepath.Abs("testdata")
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child",
				"sh", filepath.Join(scripts, kind+".sh"))
			cmd.Env = append(os.Environ(), "T="+over, "SCRIPTS="+scripts, "PACKAGES="+dir, "OLD="+older, "NEW="+newer)
			out, err := cmd.CombinedOutput()
			if err != nil || !bytes.HasSuffix(out, []byte("\ndone\n")) {
				t.Fatalf("%v\n%s", err, out)
			}
			for line := range strings.Lines(string(out)) {
				if strings.HasPrefix(line, "first remote object") {
					t.Log(strings.TrimSpace(line))
				}
			}
		})
	}
}

// TestTarball: what the tarball holds runs from wherever it was unpacked.
func TestTarball(t *testing.T) {
	dir, _ := packages(t)
	to := t.TempDir()
	name := "rdistcc-" + older + "-linux-" + runtime.GOARCH
	if out, err := exec.Command("tar", "-xzf", filepath.Join(dir, name+".tar.gz"), "-C", to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, program := range []string{"rdistcc", "rdistcc-cm", "rdistccd", "rdistcc-perf"} {
		out, err := exec.Command(filepath.Join(to, name, "bin", program), "--version").CombinedOutput()
		if err != nil || !strings.Contains(string(out), older) {
			t.Errorf("%s --version: %v: %s", program, err, out)
		}
	}
	if links, err := os.ReadDir(filepath.Join(to, name, "lib/rdistcc")); err == nil && len(links) > 0 {
		t.Errorf("there are links for compilers that may not be there: %v", links)
	}
	if out, err := exec.Command(filepath.Join(to, name, "bin/rdistcc"), "install-links", filepath.Join(to, name, "lib/rdistcc")).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if link, err := os.Readlink(filepath.Join(to, name, "lib/rdistcc/gcc")); err != nil || link != "../../bin/rdistcc" {
		t.Errorf("lib/rdistcc/gcc leads to %q, %v", link, err)
	}
}

// TestImage: the OCI image is sound, and its layer is all that its programs need.
func TestImage(t *testing.T) {
	dir, _ := packages(t)
	at := t.TempDir()
	if out, err := exec.Command("tar", "-xf", filepath.Join(dir, "rdistcc-"+older+"-linux-"+runtime.GOARCH+".oci.tar"), "-C", at).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	index, err := layout.ImageIndexFromPath(at)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
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
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c := config.Config; config.Architecture != runtime.GOARCH || c.User != "65534:65534" || len(c.Entrypoint) != 1 || c.Labels["org.opencontainers.image.version"] != older {
		t.Errorf("config %+v", config)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	r, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if os.Geteuid() != 0 {
		t.Skip("needs root: chroot")
	}
	root := t.TempDir()
	unpack(t, r, root)
	for _, program := range []string{config.Config.Entrypoint[0], "/usr/bin/rdistcc-cm", "/usr/bin/rdistcc"} {
		out, err := exec.Command("chroot", "--userspec="+config.Config.User, root, program, "--version").CombinedOutput()
		if err != nil || !strings.Contains(string(out), older) {
			t.Errorf("%s --version: %v: %s", program, err, out)
		}
	}
	// It starts with nothing but what the image's configuration says.
	// /proc and /dev come from whatever runs containers.
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", `mkdir "$0/proc" "$0/dev"
mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot --userspec="$1" "$0" "$2" --listen 127.0.0.1:0 --http ""`,
		root, config.Config.User, config.Config.Entrypoint[0])
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, config.Config.Env[1:]...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines, said := bufio.NewScanner(stderr), ""
	for lines.Scan() {
		said += lines.Text() + "\n"
		if strings.Contains(lines.Text(), "listening") {
			break
		}
	}
	if !strings.Contains(said, "listening") {
		t.Errorf("the daemon of the image does not listen:\n%s", said)
	}
	_ = cmd.Process.Signal(os.Interrupt)
	_, _ = io.Copy(io.Discard, stderr)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the daemon of the image ended: %v\n%s", err, said)
	}
}

// unpack writes the files of a layer below root.
func unpack(t *testing.T, layer io.Reader, root string) {
	t.Helper()
	for r := tar.NewReader(layer); ; {
		h, err := r.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(root, h.Name)
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(name, 0o755)
		} else {
			var b []byte
			if b, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(name, b, h.FileInfo().Mode().Perm())
			}
		}
		if err == nil {
			err = errors.Join(os.Chmod(name, h.FileInfo().Mode()), os.Chown(name, h.Uid, h.Gid))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
