package compile

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestKnowsInstalledOptions: what the compilers here list of themselves has a row
// or a place in the lists of flags. Of a compiler that nobody has looked at yet,
// the log says what is new.
func TestKnowsInstalledOptions(t *testing.T) {
	// Offloading compiles for other processors with other tools; the rest is of
	// other languages.
	strange := regexp.MustCompile(`^-(-?|f|m|ccc-|f?no-|fno-|-no-)(cuda|hip|gpu|offload|rocm|libomptarget|ptxas|sycl|openmp-target|openmp-new|opencl|cl-|objcmt|arcmt|amdgpu|ccc|nogpu|nohip|swift|ada-|go|use-cuid|building|Xarch|Xcuda|Xopenmp)|^-(cl-|cuid|rewrite|Xanalyzer|dsym|extract-api|migrate|f?target-help)` +
		// No longer supported, internal, or for whatever comes behind.
		`|^-f(chkp|cilkplus|mudflap|gimple|rtl$|name-mangling-version-|no-pch-|validate-ast)|^-g(coff|xcoff|en-|ant)|^-(mllvm|module-)`)
	option := regexp.MustCompile(`^\s{1,3}(-[fmgWO][A-Za-z0-9+][^\s,<>\[]*=?)`)
	for _, c := range []struct {
		cc, major string
		args      []string
	}{
		{"gcc", "12", []string{"--help=common", "--help=optimizers", "--help=target", "--help=c", "--help=c++", "--help=objc", "--help=warnings", "--help=undocumented"}},
		{"clang", "14", []string{"--help", "--help-hidden"}},
	} {
		path, err := exec.LookPath(c.cc)
		if err != nil {
			t.Logf("no %s here", c.cc)
			continue
		}
		out, err := exec.Command(path, "-dumpversion").Output()
		must(t, err)
		complain := t.Logf
		if strings.TrimSpace(string(out)) == c.major || strings.HasPrefix(string(out), c.major+".") {
			complain = t.Errorf
		}
		n := 0
		for _, arg := range c.args {
			out, err := exec.Command(path, arg).Output()
			must(t, err)
			for _, line := range strings.Split(string(out), "\n") {
				m := option.FindStringSubmatch(line)
				if m == nil || strange.MatchString(m[1]) {
					continue
				}
				n++
				row := find(strings.TrimSuffix(m[1], "."))
				if row == nil || row.gcc == unknown && row.clang == unknown {
					complain("%s %s lists %q, which no row or list has", c.cc, arg, m[1])
				}
			}
		}
		if n < 300 {
			t.Errorf("%s: only %d options found in its help", c.cc, n)
		}
	}
}
