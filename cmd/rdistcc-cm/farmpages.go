package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/streams"
	"github.com/rdistcc/rdistcc/internal/telemetry"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// farmPages shows pages of the farm's hosts by the manager's address. They are fetched by the port of the hosts' jobs, on
// streams, so that Prometheus needs to reach no host, and hosts need to open no other port.
type farmPages struct {
	hosts func() []string // addresses of those that the manager knows
	pprof bool            // profiles too
	proxy *httputil.ReverseProxy
}

// Bounds of the streams to one host.
const (
	farmStreams  = 4
	farmIdle     = 3 * time.Minute // longer than Prometheus waits between two scrapes
	farmDialTime = 5 * time.Second
)

func newFarmPages(dev iwarp.Device, key func() *psk.Key, hosts func() []string, profiles bool, log *slog.Logger) *farmPages {
	return &farmPages{hosts: hosts, pprof: profiles, proxy: &httputil.ReverseProxy{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
				ctx, cancel := context.WithTimeout(ctx, farmDialTime)
				defer cancel()
				return streams.Dial(ctx, dev, addr, streams.Options{Service: streams.HTTP, Key: key()})
			},
			MaxConnsPerHost: farmStreams, MaxIdleConnsPerHost: 1, IdleConnTimeout: farmIdle,
		},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: r.In.PathValue("host")})
			r.Out.URL.Path, r.Out.URL.RawPath = "/"+r.In.PathValue("page"), ""
			r.Out.Host = r.In.PathValue("host")
		},
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			http.Error(w, r.PathValue("host")+": "+err.Error(), http.StatusBadGateway)
		},
	}}
}

// sendsToolchains returns what opens streams to hosts' service for toolchains.
func sendsToolchains(dev iwarp.Device, key func() *psk.Key) func(ctx context.Context, addr string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		return streams.Dial(ctx, dev, addr, streams.Options{Service: streams.Toolchains, Key: key()})
	}
}

// handlers returns the pages for a telemetry.Server.
func (p *farmPages) handlers() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"GET /hosts/{host}/{page...}": telemetry.Unhurried(p.page),
		"GET /targets":                p.targets,
	}
}

// page shows one page of a host.
func (p *farmPages) page(w http.ResponseWriter, r *http.Request) {
	host, page := r.PathValue("host"), r.PathValue("page")
	profile := strings.HasPrefix(page, "debug/pprof/")
	switch {
	case !slices.Contains(p.hosts(), host): // this is no proxy to anywhere
		http.Error(w, fmt.Sprintf("%s is no host of this manager's; /targets lists them", host), http.StatusNotFound)
	case profile && !p.pprof:
		http.Error(w, "profiles of hosts are shown where http.pprof is set for the manager too", http.StatusNotFound)
	case !profile && page != "metrics" && page != "healthz" && page != "readyz":
		http.Error(w, "of a host there are metrics, healthz, readyz and debug/pprof/", http.StatusNotFound)
	default:
		if !profile {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(10 * time.Second)) // it is a connection of a Server
		}
		p.proxy.ServeHTTP(w, r)
	}
}

// target is one entry of Prometheus' HTTP service discovery.
type target struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// targets lists the hosts for Prometheus, all at this address.
func (p *farmPages) targets(w http.ResponseWriter, r *http.Request) {
	list := []target{}
	for _, h := range p.hosts() {
		list = append(list, target{Targets: []string{r.Host}, Labels: map[string]string{"__metrics_path__": "/hosts/" + h + "/metrics", "instance": h}})
	}
	body, err := json.Marshal(list)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(body, '\n')) // the reader may have gone
}
