package simfarm

import (
	"bufio"
	"bytes"
	"embed"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"
)

// Job is one compile as it really is; the scheduler sees what a manager would.
type Job struct {
	Name  string
	CPU   time.Duration // of the compile, on a core of speed 1
	List  time.Duration // CPU time of listing or preprocessing, on the client
	RSS   uint64        // bytes
	Bytes uint64        // of source and headers
	Out   uint64        // bytes of result

	// Shared is the part of Bytes that other jobs read too: a host with a store is sent it once.
	Shared []Part
}

//go:embed testdata/*.tsv
var recordings embed.FS

// Recorded returns the jobs of a build that was recorded with ./record, in the order in which its compiles ended.
func Recorded(name string) ([]Job, error) {
	b, err := recordings.ReadFile("testdata/" + name + ".tsv")
	if err != nil {
		return nil, err
	}
	var jobs []Job
	for sc, line := bufio.NewScanner(bytes.NewReader(b)), 1; sc.Scan(); line++ {
		if strings.HasPrefix(sc.Text(), "#") {
			continue
		}
		var j Job
		var cpu, list int64
		if _, err := fmt.Sscan(strings.ReplaceAll(sc.Text(), "\t", " "), &j.Name, &cpu, &list, &j.RSS, &j.Bytes, &j.Out); err != nil {
			return nil, fmt.Errorf("testdata/%s.tsv:%d: %w", name, line, err)
		}
		j.Name = name + "/" + j.Name
		j.CPU, j.List = time.Duration(max(cpu, 1))*time.Millisecond, time.Duration(max(list, 1))*time.Millisecond
		j.RSS <<= 10
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// Shape describes a synthetic build. Times and sizes are lognormal, as those of real builds nearly are, and
// correlated: a unit with more headers takes longer.
type Shape struct {
	Jobs   int
	Median time.Duration // of CPU
	Sigma  float64       // of the logarithm of CPU; 0.8 is a C build, 1.4 one with a long tail
	Giants int           // units of 20 times the median and more, which come last
	Size   float64       // median of Bytes; 0 = 700e3
}

// Synthetic returns a build of a shape.
func Synthetic(r *rand.Rand, s Shape) []Job {
	median := s.Size
	if median == 0 {
		median = 700e3
	}
	jobs := make([]Job, s.Jobs)
	for i := range jobs {
		z := r.NormFloat64()
		if i >= s.Jobs-s.Giants {
			z = math.Log(20+10*r.Float64()) / s.Sigma
		}
		cpu := time.Duration(float64(s.Median) * math.Exp(s.Sigma*z))
		// The time explains only a part of the size's logarithm.
		size := median * math.Exp(0.5*s.Sigma*z+0.5*r.NormFloat64())
		jobs[i] = Job{
			Name: fmt.Sprintf("unit%d.cc", i), CPU: max(cpu, 5*time.Millisecond),
			List:  time.Duration(6e6 + size*8), // 8 ns per byte
			RSS:   uint64(40e6 + float64(cpu)/1e9*60e6),
			Bytes: uint64(size), Out: uint64(20e3 + float64(cpu)/1e9*100e3),
		}
	}
	return jobs
}

// Headers of a project with several libraries: the units of each read its headers from the most common one
// on, as many as their size allows, and the rest of Bytes is their own.
const (
	libraries  = 4
	inARow     = 25    // units of one library in a row
	commonest  = 100e3 // bytes of the headers that nearly all units of a library read
	furtherBy  = 1.25  // factor from one layer of headers to the next
	mostShared = 0.95  // fraction of a unit's bytes
)

// Headers determines which bytes of the jobs of a project are headers that others read too. Everything else
// stays as it is.
func Headers(jobs []Job) {
	layers := make([][]Part, libraries) // of each library
	for i := range jobs {
		j := &jobs[i]
		of := &layers[i/inARow%libraries]
		n, total := 0, uint64(0)
		for next := commonest; ; n++ {
			if next > mostShared*float64(j.Bytes) {
				break
			}
			if n == len(*of) {
				*of = append(*of, Part{ID: n*libraries + i/inARow%libraries, Bytes: uint64(next) - total})
			}
			total += (*of)[n].Bytes
			next *= furtherBy
		}
		j.Shared = (*of)[:n:n]
	}
}

// Repeat returns a longer build: n times the jobs, under other names.
func Repeat(jobs []Job, n int) []Job {
	var out []Job
	for i := range n {
		for _, j := range jobs {
			j.Name = fmt.Sprintf("%d/%s", i, j.Name)
			out = append(out, j)
		}
	}
	return out
}
