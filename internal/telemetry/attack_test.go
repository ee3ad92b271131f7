package telemetry

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestSlowReaders: readers that ask for metrics and do not read them lose their
// connections, and with these the places that a scrape needs.
//
// metrics-exposed
func TestSlowReaders(t *testing.T) {
	reg := prometheus.NewRegistry()
	many := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "many", Help: strings.Repeat("x", 1000)}, []string{"n"})
	for i := range 500 { // more than sockets hold, some 10 MB; few series, as each scrape sorts them
		many.WithLabelValues(fmt.Sprintf("%020000d", i)).Set(1)
	}
	reg.MustRegister(many)
	s := serve(t, ServerOptions{Registry: reg, WriteTime: 100 * time.Millisecond})
	var slow []net.Conn
	for range maxConns {
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := fmt.Fprint(c, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		slow = append(slow, c)
	}
	// With every connection taken, and every place of a scrape, the next one waits until
	// those are over, and is answered.
	patient := http.Client{Timeout: time.Minute}
	resp, err := patient.Get("http://" + s.Addr().String() + "/healthz")
	if err != nil {
		t.Fatalf("beside %d slow readers: %v", len(slow), err)
	}
	if resp.Body.Close(); resp.StatusCode != 200 {
		t.Errorf("/healthz beside %d slow readers: %d", len(slow), resp.StatusCode)
	}
}
