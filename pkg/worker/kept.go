package worker

import "github.com/prometheus/client_golang/prometheus"

// contents collects the metrics of the store, all 0 if there is no store.
type contents struct{ s *Server }

var (
	storeBytesDesc     = prometheus.NewDesc("rdistccd_store_bytes", "Memory of contents that managers have sent, kept for their later jobs.", nil, nil)
	storeTreesDesc     = prometheus.NewDesc("rdistccd_store_tree_bytes", "Memory of files that private trees keep from one job to the next.", nil, nil)
	storeDiskDesc      = prometheus.NewDesc("rdistccd_store_disk_bytes", "Bytes on disk of contents that managers have sent.", nil, nil)
	storeLearntDesc    = prometheus.NewDesc("rdistccd_store_learnt_bytes", "Memory of the compile host's own headers, read before a job named them.", nil, nil)
	storeFilesDesc     = prometheus.NewDesc("rdistccd_store_files", "Contents kept.", nil, nil)
	storeEvictionsDesc = prometheus.NewDesc("rdistccd_store_evictions_total", "Contents dropped to make room.", nil, nil)
	storeHitsDesc      = prometheus.NewDesc("rdistccd_store_hits_total", "Contents named by a job that the host held.", nil, nil)
	storeOwnDesc       = prometheus.NewDesc("rdistccd_store_own_total", "Contents named by a job that the compile host has among its own system headers.", nil, nil)
	storeLacksDesc     = prometheus.NewDesc("rdistccd_store_lacks_total", "Contents named by a job that the host lacked: the job was refused, and is sent again with them.", nil, nil)
)

func (c contents) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{storeBytesDesc, storeTreesDesc, storeDiskDesc, storeLearntDesc, storeFilesDesc, storeEvictionsDesc, storeHitsDesc, storeOwnDesc, storeLacksDesc} {
		to <- d
	}
}

func (c contents) Collect(to chan<- prometheus.Metric) {
	st := c.s.storeStats()
	for _, m := range []struct {
		d     *prometheus.Desc
		kind  prometheus.ValueType
		value float64
	}{
		{storeBytesDesc, prometheus.GaugeValue, float64(st.Bytes)},
		{storeTreesDesc, prometheus.GaugeValue, float64(c.s.places.Kept())},
		{storeDiskDesc, prometheus.GaugeValue, float64(st.DiskBytes)},
		{storeLearntDesc, prometheus.GaugeValue, float64(st.Common)},
		{storeFilesDesc, prometheus.GaugeValue, float64(st.Contents)},
		{storeEvictionsDesc, prometheus.CounterValue, float64(st.Evictions)},
		{storeHitsDesc, prometheus.CounterValue, float64(st.Hits)},
		{storeOwnDesc, prometheus.CounterValue, float64(st.Own)},
		{storeLacksDesc, prometheus.CounterValue, float64(st.Lacks)},
	} {
		to <- prometheus.MustNewConstMetric(m.d, m.kind, m.value)
	}
}
