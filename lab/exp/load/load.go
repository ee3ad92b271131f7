// Package load makes compiles: sources that are generated, so that the same ones are compiled everywhere, and a
// fixed number of them at a time.
package load

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// Source returns C with n functions, which gcc compiles in about 1 ms each with -O2. Sources with other
// seeds have other constants.
func Source(n, seed int) []byte {
	var b bytes.Buffer
	b.WriteString("struct point { int x, y; struct point *next; };\n")
	for i := range n {
		k := seed*31 + i*7 + 3
		fmt.Fprintf(&b, `static int step%[1]d(struct point *p, int n)
{
	int sum = %[2]d;
	for (int i = 0; i < n && p; i++, p = p->next) {
		switch ((p->x + i) %% 5) {
		case 0: sum += p->y * %[2]d; break;
		case 1: sum ^= p->x << (i & 7); break;
		case 2: sum -= p->y / (i + %[2]d); break;
		default: sum += n > i ? p->x : p->y;
		}
	}
	return sum;
}
int use%[1]d(struct point *p) { return step%[1]d(p, %[2]d) + step%[1]d(p->next, %[2]d); }
`, i, k)
	}
	return b.Bytes()
}

// Heavy is C++ with standard headers, as much of a real program's compile is.
const Heavy = `#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>
struct shape { virtual ~shape() = default; virtual double area() const = 0; };
struct square : shape { double a; explicit square(double s) : a(s) {} double area() const override { return a * a; } };
double total(const std::vector<std::unique_ptr<shape>> &all)
{
	std::map<std::string, double> by;
	for (const auto &s : all)
		by[std::to_string(s->area())] += s->area();
	std::vector<std::pair<double, std::string>> v;
	for (const auto &[name, area] : by)
		v.emplace_back(area, name);
	std::sort(v.begin(), v.end());
	std::function<double(double)> f = [&](double x) { return x + v.size(); };
	double sum = 0;
	for (const auto &[area, name] : v)
		sum += f(area);
	return sum;
}
`

// Available returns what is missing for compiles, or nil.
func Available(compiler string) error {
	if _, err := exec.LookPath(compiler); err != nil {
		return fmt.Errorf("%s is not installed", compiler)
	}
	return nil
}

// Build compiles a fixed amount, several at a time.
type Build struct {
	dir   string
	units int
	jobs  int
}

// NewBuild writes the sources of a build of so many units of n functions into dir.
func NewBuild(dir string, units, functions, jobs int) (*Build, error) {
	for i := range units {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("unit%d.c", i)), Source(functions, i), 0o644); err != nil {
			return nil, err
		}
	}
	return &Build{dir, units, jobs}, nil
}

// Run compiles everything once.
func (b *Build) Run(ctx context.Context) error {
	next := make(chan int)
	errs := make([]error, b.jobs)
	var wg sync.WaitGroup
	for j := range b.jobs {
		wg.Go(func() {
			for i := range next {
				cmd := exec.CommandContext(ctx, "gcc", "-O2", "-c", fmt.Sprintf("unit%d.c", i), "-o", fmt.Sprintf("unit%d.o", i))
				cmd.Dir = b.dir
				if out, err := cmd.CombinedOutput(); err != nil {
					errs[j] = fmt.Errorf("gcc: %w: %s", err, strings.TrimSpace(string(out)))
				}
			}
		})
	}
	for i := range b.units {
		next <- i
	}
	close(next)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}
