package toolchains

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// noteSource is a plugin that adds a note to each object, with what it is told, as annobin does.
const noteSource = `#include "gcc-plugin.h"
#include "plugin-version.h"
#include "output.h"
int plugin_is_GPL_compatible;
static const char *value = "";
static void note(void *, void *) {
	fprintf(asm_out_file, "\t.pushsection .note.plugin\n\t.asciz \"plugin says one\"\n\t.asciz \"%s\"\n\t.popsection\n", value);
}
int plugin_init(plugin_name_args *args, plugin_gcc_version *v) {
	for (int i = 0; i < args->argc; i++) value = args->argv[i].value ? args->argv[i].value : args->argv[i].key;
	register_callback(args->base_name, PLUGIN_FINISH_UNIT, note, nullptr);
	return plugin_default_version_check(v, &gcc_version) ? 0 : 1;
}
`

// withPlugin installs a gcc below a prefix, with the plugin of noteSource as annobin. It returns the compiler and the plugin.
func withPlugin(t *testing.T) (cc, plugin string) {
	t.Helper()
	gcc := compilers(t, "gcc")[0]
	headers := filepath.Join(ask(t, gcc, "-print-file-name=plugin"), "include")
	if _, err := os.Stat(filepath.Join(headers, "gcc-plugin.h")); err != nil {
		need.Skipf(t, need.Tools, "no headers for plugins of gcc (on Debian: the package gcc-12-plugin-dev)")
	}
	if _, err := exec.LookPath("g++"); err != nil {
		need.Skipf(t, need.Tools, "no g++")
	}
	cc = copyGCC(t, gcc, below(t, "/opt"))
	dir := filepath.Join(filepath.Dir(ask(t, cc, "-print-prog-name=cc1")), "plugin")
	plugin = filepath.Join(dir, "annobin.so")
	source := filepath.Join(t.TempDir(), "note.cc")
	if err := os.WriteFile(source, []byte(noteSource), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "g++", "-shared", "-fPIC", "-fno-rtti", "-I", headers, "-o", plugin, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return cc, plugin
}

// says fails the test unless x.o has a text.
func (s *site) says(text string) {
	s.Helper()
	if b, err := os.ReadFile(filepath.Join(s.work, "x.o")); err != nil || !bytes.Contains(b, []byte(text)) {
		s.Errorf("the object lacks %q, %v", text, err)
	}
}

// here runs a command and fails the test unless it runs locally, for a reason and with a status.
func (s *site) here(reason string, status int, args ...string) {
	s.Helper()
	if got := s.run(args...); !strings.HasPrefix(got.where, "local:"+reason) || got.status != status {
		s.Errorf("%s: exit %d, %s, want %d, %s: %s%s", strings.Join(args, " "), got.status, got.where, status, reason, got.out, s.log())
	}
}

// TestPlugins: a plugin that the settings name is sent as a part of its compiler, however the command names it; a change of it counts at
// once; and any other one stays here.
func TestPlugins(t *testing.T) {
	cc, plugin := withPlugin(t)
	s := prepare(t, bare)
	if err := s.AddSettings("farm.yaml", "cache: {dir: "+filepath.Join(s.Dir, "results")+"}\n"); err != nil {
		t.Fatal(err)
	}
	s.Vars = append(s.Vars, "RDISTCC_CACHE=on")
	s.start()
	s.write("x.c", cSource)
	compile := func(words ...string) []string {
		return append(append([]string{cc}, words...), "-c", "x.c", "-o", "x.o")
	}
	s.remote(compile("-O2", "-g", "-fplugin=annobin", "-fplugin-arg-annobin-mode=seven")...)
	s.says("plugin says one\x00seven")
	if got := s.run(compile("-O2", "-g", "-fplugin=annobin", "-fplugin-arg-annobin-mode=seven")...); strings.HasPrefix(got.where, "remote:") {
		t.Errorf("the result is not kept: %s", got.where)
	}
	s.remote(compile("-g", "-fplugin="+plugin)...)
	s.says("plugin says one")
	// The words of Fedora's redhat-annobin-cc1.
	s.write("annobin-cc1", "*cc1_options:\n+ %{!-fno-use-annobin:%{!iplugindir*:%:find-plugindir()} -fplugin=annobin}\n")
	s.remote(compile("-O2", "-g", "-grecord-gcc-switches", "-specs=annobin-cc1")...)
	s.says("plugin says one")
	s.write("words", "-specs=annobin-cc1 -O1")
	s.remote(compile("@words")...)
	s.says("plugin says one")

	b, err := os.ReadFile(plugin)
	if err == nil {
		err = os.WriteFile(plugin+".new", bytes.Replace(b, []byte("plugin says one"), []byte("plugin says two"), 1), 0o755)
	}
	if err == nil {
		err = os.Rename(plugin+".new", plugin)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.remote(compile("-O2", "-g", "-fplugin=annobin", "-fplugin-arg-annobin-mode=seven")...)
	s.says("plugin says two\x00seven")

	if err := os.WriteFile(filepath.Join(filepath.Dir(plugin), "other.so"), b, 0o755); err != nil {
		t.Fatal(err)
	}
	s.here("not-reproducible:plugin", 0, compile("-fplugin=other")...)
	s.says("plugin says one")
	s.here("not-reproducible:plugin", 1, compile("-fplugin=missing")...)
	// gcc would find another one of that name here.
	lib := filepath.Join(s.work, "lib")
	if err := os.CopyFS(filepath.Join(lib, "plugin"), os.DirFS(filepath.Dir(plugin))); err != nil {
		t.Fatal(err)
	}
	s.here("not-reproducible:tool-path", 0, compile("-Blib", "-fplugin=annobin")...)
	s.Vars = append(s.Vars, "ANNOBIN=x")
	s.here("not-reproducible:plugin", 0, compile("-fplugin=annobin")...)
	s.Vars = s.Vars[:len(s.Vars)-1]
	s.write("annobin.so", "int from_header;\n")
	s.write("x.c", "#include \"annobin.so\"\n")
	s.here("not-reproducible:plugin", 0, compile("-fplugin=annobin")...)
	s.says("plugin says two")
	s.remote(compile("-g")...)
}

// TestInstalledPlugin: a host that accepts no compilers uses its own with the plugin that is installed there, and no other.
func TestInstalledPlugin(t *testing.T) {
	cc, plugin := withPlugin(t)
	s := prepare(t, "toolchains: {dirs: ["+filepath.Dir(cc)+"], accept: none}\n")
	s.start()
	s.write("x.c", cSource)
	words := []string{cc, "-O2", "-g", "-fplugin=annobin", "-c", "x.c", "-o", "x.o"}
	s.remote(words...)
	s.says("plugin says one")
	// Another one of that name, elsewhere.
	b, err := os.ReadFile(plugin)
	if err == nil {
		err = os.WriteFile(filepath.Join(filepath.Dir(cc), "annobin.so"), b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	words[3] = "-fplugin=" + filepath.Join(filepath.Dir(cc), "annobin.so")
	s.here("refused:toolchain", 0, words...)
	s.says("plugin says one")
}
