package worker

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdistcc/rdistcc/pkg/worker/cluster"
)

// clustered collects what a cluster has done for the server, all 0 if there is no cluster.
type clustered struct{ s *Server }

var (
	clusterActionsDesc = prometheus.NewDesc("rdistccd_cluster_actions_total", "Actions that a cluster was given: run by a worker, answered with an earlier result, or without a result.", []string{"result"}, nil)
	clusterBlobsDesc   = prometheus.NewDesc("rdistccd_cluster_blobs_total", "Blobs of actions that a cluster was asked for: those that it held, and those that were sent.", []string{"result"}, nil)
	clusterBytesDesc   = prometheus.NewDesc("rdistccd_cluster_bytes_total", "Bytes of blobs sent to a cluster, and of outputs received.", []string{"direction"}, nil)
)

func (c clustered) Describe(to chan<- *prometheus.Desc) {
	to <- clusterActionsDesc
	to <- clusterBlobsDesc
	to <- clusterBytesDesc
}

func (c clustered) Collect(to chan<- prometheus.Metric) {
	var st cluster.Stats
	if c.s.o.Cluster != nil {
		st = c.s.o.Cluster.Stats()
	}
	for _, m := range []struct {
		d     *prometheus.Desc
		value uint64
		label string
	}{
		{clusterActionsDesc, st.Ran, "ran"}, {clusterActionsDesc, st.Cached, "cached"}, {clusterActionsDesc, st.Failed, "failed"},
		{clusterBlobsDesc, st.Held, "held"}, {clusterBlobsDesc, st.Blobs, "sent"},
		{clusterBytesDesc, st.Sent, "sent"}, {clusterBytesDesc, st.Received, "received"},
	} {
		to <- prometheus.MustNewConstMetric(m.d, prometheus.CounterValue, float64(m.value), m.label)
	}
}
