package report

// Demand says how many places a manager could use at the moment. An autoscaler reads it.
type Demand struct {
	Running int `json:"running"` // its jobs on hosts, or on the way there
	Queued  int `json:"queued"`  // jobs that are being prepared, or wait for a place on a host
	Here    int `json:"here"`    // jobs that run on the build host because hosts had no place
	Wanted  int `json:"wanted"`  // places that would serve all of these at once
	Places  int `json:"places"`  // on the hosts that take its jobs, for all managers
	Hosts   int `json:"hosts"`   // that take its jobs
}
