package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"
)

// result is the result of a measurement, as --json prints it; docs/perf.md explains the fields.
type result struct {
	Test     string  `json:"test"`
	Provider string  `json:"provider,omitempty"` // of the verbs; raw TCP has none
	Size     int     `json:"size"`
	QPs      int     `json:"qps"`
	Depth    int     `json:"depth"`
	FPDU     int     `json:"fpdu,omitempty"` // as requested
	Wait     string  `json:"wait,omitempty"` // of this side; not with TCP
	CRC      bool    `json:"crc"`
	Markers  bool    `json:"markers"`
	MPA      int     `json:"mpa,omitempty"` // revision
	RTR      string  `json:"rtr,omitempty"`
	Perftest bool    `json:"perftest,omitempty"`
	Messages int64   `json:"messages"`
	Bytes    int64   `json:"bytes"`
	Seconds  float64 `json:"seconds"`
	Rate     float64 `json:"messages_per_second"`
	// CPU time of the whole process during the measurement; the server's is 0 if it did not report it.
	ClientCPU  float64 `json:"client_cpu_seconds"`
	ServerCPU  float64 `json:"server_cpu_seconds"`
	ClientCost float64 `json:"client_cpu_ns_per_byte"`
	ServerCost float64 `json:"server_cpu_ns_per_byte"`
	// Bandwidth tests.
	GBps      float64 `json:"gb_per_second,omitempty"`
	GBpCPUSec float64 `json:"gb_per_cpu_second,omitempty"` // both ends
	// Latency tests: round trips in microseconds.
	P1    float64 `json:"p1_us,omitempty"`
	P50   float64 `json:"p50_us,omitempty"`
	P99   float64 `json:"p99_us,omitempty"`
	Worst float64 `json:"max_us,omitempty"`
}

// newResult describes what will be measured on connections like e.
func newResult(o *options, e *endpoint) *result {
	r := &result{Test: o.t.name, Size: int(o.size), QPs: o.qps, Depth: o.depth, FPDU: int(o.fpdu), Perftest: o.perftest}
	if e != nil {
		r.Provider, r.Wait = e.provider, o.wait.String()
		r.CRC, r.Markers, r.MPA = e.info.CRC, e.info.MarkersIn || e.info.MarkersOut, e.info.Rev
		if e.info.PeerToPeer {
			r.RTR = rtrName(e.info.RTR)
		} else {
			r.RTR = "none"
		}
	}
	return r
}

// rates computes the figures that follow from the others.
func (r *result) rates(o *options) {
	if r.Seconds > 0 {
		r.Rate = float64(r.Messages) / r.Seconds
	}
	if r.Bytes > 0 {
		r.ClientCost = r.ClientCPU * 1e9 / float64(r.Bytes)
		r.ServerCost = r.ServerCPU * 1e9 / float64(r.Bytes)
	}
	if o.t.latency {
		return
	}
	if r.Seconds > 0 {
		r.GBps = float64(r.Bytes) / r.Seconds / 1e9
	}
	if cpu := r.ClientCPU + r.ServerCPU; cpu > 0 {
		r.GBpCPUSec = float64(r.Bytes) / cpu / 1e9
	}
}

// latency computes the distribution of round trips.
func (r *result) latency(d []time.Duration) {
	if len(d) == 0 {
		return
	}
	slices.Sort(d)
	at := func(q float64) float64 { return float64(d[int(q*float64(len(d)-1))]) / 1e3 }
	r.P1, r.P50, r.P99, r.Worst = at(0.01), at(0.5), at(0.99), at(1)
}

func (r *result) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	_, err := fmt.Fprintf(w, "%s: %d messages of %d bytes in %.2f s, CRC %s", r.Test, r.Messages, r.Size, r.Seconds, onOff(r.CRC))
	if err != nil {
		return err
	}
	if r.P50 > 0 {
		_, err = fmt.Fprintf(w, "; round trip in us: p1 %.1f, p50 %.1f, p99 %.1f, max %.1f", r.P1, r.P50, r.P99, r.Worst)
	} else {
		_, err = fmt.Fprintf(w, ": %.2f GB/s, %.0f messages/s, %.2f GB a CPU second", r.GBps, r.Rate, r.GBpCPUSec)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "; CPU client %.2f s (%.3f ns a byte), server %s\n", r.ClientCPU, r.ClientCost, r.serverCPU())
	return err
}

func (r *result) serverCPU() string {
	if r.Perftest {
		return "unknown"
	}
	return fmt.Sprintf("%.2f s (%.3f ns a byte)", r.ServerCPU, r.ServerCost)
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

// cpuTime returns how much CPU time this process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
