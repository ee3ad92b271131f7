// Package config defines the one schema of rdistcc's settings: the yaml file, its
// defaults, and what flags override. It alone imports the yaml library.
//
// A key is named by its path, such as "daemon.job-timeout". Flags override the file,
// the file overrides the defaults; Settings shows which one decided. Unknown and
// duplicate keys, wrong types and values out of range are errors that name file,
// line and key. Durations and sizes carry a unit: "30s", "10m", "32MiB".
package config

import (
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Config holds every setting. Its zero value is not usable: see Default and Load.
type Config struct {
	Hosts       []string   `yaml:"hosts"`
	Discovery   Discovery  `yaml:"discovery"`
	Local       Local      `yaml:"local"`
	Fallback    Fallback   `yaml:"fallback"`
	Diagnostics string     `yaml:"diagnostics"` // exact or fast: see deploy/config.yaml
	Auth        Auth       `yaml:"auth"`
	Sandbox     string     `yaml:"sandbox"` // of compiles on a daemon: auto, strict, off
	Wait        string     `yaml:"wait"`    // how connections wait for completions, as iwarp.ParseWaiting takes it
	Limits      Limits     `yaml:"limits"`
	Toolchains  Toolchains `yaml:"toolchains"`
	HTTP        HTTP       `yaml:"http"`
	Log         Log        `yaml:"log"`
	Scheduler   Scheduler  `yaml:"scheduler"`
	Links       Links      `yaml:"links"`
	Buffers     Buffers    `yaml:"buffers"`
	Store       Store      `yaml:"store"`
	Cache       Cache      `yaml:"cache"`
	Manager     Manager    `yaml:"manager"`
	Daemon      Daemon     `yaml:"daemon"`
	Distcc      Distcc     `yaml:"distcc"`
	Cluster     Cluster    `yaml:"cluster"`

	path    string            // of the file, or empty
	origins map[string]string // key: where its value came from; absent = default
	entries []string          // of hosts, the origin of each; nil = all from one place
}

// Discovery configures how hosts are found, and how this one is.
type Discovery struct {
	Interval   time.Duration `yaml:"interval"`   // between two DNS look-ups of a name
	Timeout    time.Duration `yaml:"timeout"`    // of one look-up
	Interfaces []string      `yaml:"interfaces"` // for mDNS; empty = all that support multicast, except loopback
	MDNS       bool          `yaml:"mdns"`       // rdistccd announces itself
}

// Local bounds what runs on the build host itself.
type Local struct {
	Slots      int  `yaml:"slots"`      // compiles, links and the like at a time; 0 = number of cores
	Share      bool `yaml:"share"`      // compile here what a host could do, if that is sooner
	Preprocess int  `yaml:"preprocess"` // preprocessors at a time; 0 = twice the number of cores
}

// Fallback says what happens when hosts cause trouble.
type Fallback struct {
	Allow    bool `yaml:"allow"`    // compile here as the last resort; RDISTCC_FALLBACK overrides
	Attempts int  `yaml:"attempts"` // hosts tried for one job that fails there; if it loses its hosts, a third at least
	// Patience is how long a command that may not be compiled here waits for a host that can come up.
	Patience time.Duration `yaml:"patience"`
}

// Auth says how both sides of a connection prove their identity: by a shared key, or by certificates. Only
// one of the two may be set.
type Auth struct {
	PSKFile string `yaml:"psk-file"`
	TLS     TLS    `yaml:"tls"`
}

// TLS names the PEM files of mutual TLS: all three or none.
type TLS struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
	CA   string `yaml:"ca"` // signs the other side's certificate
}

// Limits bounds waiting times and numbers.
type Limits struct {
	IOTimeout      time.Duration `yaml:"io-timeout"`      // the whole remote part of a job
	ConnectTimeout time.Duration `yaml:"connect-timeout"` // each step of connecting to a host
	Heartbeat      time.Duration `yaml:"heartbeat"`       // interval of heartbeats on a quiet connection
	Silence        time.Duration `yaml:"silence"`         // a peer that sends nothing for this long is lost
	Wrappers       int           `yaml:"wrappers"`        // commands that a manager serves at a time
	Clients        int           `yaml:"clients"`         // managers that a daemon serves at a time
	Memory         Size          `yaml:"memory"`          // that each process of a compile may use; 0 = no limit
	DiskFloor      Size          `yaml:"disk-floor"`      // least free space in the work directory with which a daemon accepts work
	JobMemory      Size          `yaml:"job-memory"`      // that all processes of one compile may use together; 0 = three quarters of the machine's, or of the control group's
	Processes      int           `yaml:"processes"`       // of one compile at a time
	File           Size          `yaml:"file"`            // largest file that a compile may write
	Output         Size          `yaml:"output"`          // a compiler's messages, on each of stdout and stderr
	ClientRunning  int           `yaml:"client-running"`  // compiles of one client that a daemon runs at a time; 0 = all places
	ClientQueued   int           `yaml:"client-queued"`   // and that wait
	ClientBytes    Size          `yaml:"client-bytes"`    // of a daemon's memory for sources and results that one client may hold; 0 = half of buffers.large
}

// Toolchains says where a daemon looks for compilers, and from whom it accepts others.
type Toolchains struct {
	Dirs   []string `yaml:"dirs"`
	Accept string   `yaml:"accept"` // none, named (clients with a certificate, and this machine) or all
	Dir    string   `yaml:"dir"`    // for those that clients have sent; empty = toolchains below CACHE_DIRECTORY or the like
	Size   Size     `yaml:"size"`   // of all of these
	Send   bool     `yaml:"send"`   // a manager sends the compilers of this machine to hosts that lack them

	Plugins []string `yaml:"plugins"` // of gcc: those that compiles on hosts may load
}

// HTTP holds the addresses of the status pages; empty = none.
type HTTP struct {
	Manager string `yaml:"manager"`
	Daemon  string `yaml:"daemon"`
	Pprof   bool   `yaml:"pprof"`
	// Readers are names in certificates. They may read all of a daemon's pages and its log by the port of the jobs, which
	// others may read metrics by. "*" is every client that may send jobs.
	Readers []string `yaml:"readers"`
}

// Log says where the programs log to, and how much.
type Log struct {
	File  string `yaml:"file"` // empty = stderr
	Level string `yaml:"level"`
	Audit string `yaml:"audit"` // a daemon's audit log, JSON; empty = none
	// CaptureLimit is the number of bytes at which Daemon.Capture or Manager.Capture ends.
	CaptureLimit Size `yaml:"capture-limit"`
}

// Scheduler configures the choice of a host.
type Scheduler struct {
	Backoff      time.Duration `yaml:"backoff"`       // pause after the first loss of a host; doubles with each further one
	BackoffMax   time.Duration `yaml:"backoff-max"`   // longest pause
	Audit        float64       `yaml:"audit"`         // fraction of the jobs that a second host compiles too
	ConnectGrace time.Duration `yaml:"connect-grace"` // how long a job waits for a host that is being connected
}

// Links configures a manager's connections to one host.
type Links struct {
	Min  int           `yaml:"min"`  // number kept open
	Max  int           `yaml:"max"`  // most, under load
	Idle time.Duration `yaml:"idle"` // how long one beyond min may be without work
}

// Buffers sizes the memory for jobs. Source and sink of a slot are sparse files: only what was written takes memory.
type Buffers struct {
	Slot     Size `yaml:"slot"`     // largest arguments and source written into a slot
	Sink     Size `yaml:"sink"`     // largest result written into a sink
	Source   Size `yaml:"source"`   // largest arguments and source of a job; what exceeds a slot is fetched
	Result   Size `yaml:"result"`   // largest result of a job; what exceeds a sink is fetched
	Large    Size `yaml:"large"`    // everything fetched, together; 0 = nothing is fetched
	Prefault Size `yaml:"prefault"` // part of each that is kept in memory
	Slots    int  `yaml:"slots"`    // jobs in flight at a time; 0 = as many as there is memory for (SlotsFor)
	Eager    Size `yaml:"eager"`    // largest arguments and source that travel inside a message; 0 = none
}

// SlotsFor returns how many jobs may be in flight at a time on a machine with total bytes of memory. A total of 0 is not known.
func (b *Buffers) SlotsFor(total uint64) int {
	if b.Slots != 0 {
		return b.Slots
	}
	return int(min(max(total/4/(16*uint64(MiB)), 64), 1024))
}

// Store configures what a daemon keeps of its clients' files for their later jobs.
type Store struct {
	Use    bool   `yaml:"use"`
	Memory Size   `yaml:"memory"` // for all clients; 0 = a sixteenth of the machine's, or of the control group's
	Disk   Size   `yaml:"disk"`   // in addition, for all clients; 0 = none
	Dir    string `yaml:"dir"`    // empty = store in the daemon's cache directory
	// Results is the memory of results that clients can read, for all of them together; 0 = none are kept.
	Results     Size   `yaml:"results"`
	ResultsDisk Size   `yaml:"results-disk"` // in files instead of that; 0 = in memory only
	ResultsDir  string `yaml:"results-dir"`  // empty = results in the daemon's cache directory
	// Groups are of clients that share these results, each "GROUP = CLIENT CLIENT ...", by the names in their certificates.
	Groups []string      `yaml:"groups"`
	Keep   time.Duration `yaml:"keep"` // how long a client's files outlive its last connection; 0 = not at all
}

// Cache configures the cache of results, which a manager asks before any host.
type Cache struct {
	Use  bool   `yaml:"use"`
	Dir  string `yaml:"dir"`  // empty = results in rdistcc's directory in the user's cache directory
	Size Size   `yaml:"size"` // of all results in it; 0 = none are kept there
	Farm bool   `yaml:"farm"` // read results that hosts keep, and have them kept there
	// Replicas is the number of hosts that keep a result, with the one that has compiled it.
	Replicas int `yaml:"replicas"`
	// BaseDir is a directory whose place does not matter: builds of the same files below another one share results.
	BaseDir string `yaml:"base-dir"`
	// Tiers are those that are used, in the order in which they are asked, each NAME or NAME:MODE; none = all that are set up.
	Tiers    []string `yaml:"tiers"`
	BackFill bool     `yaml:"back-fill"` // what is found in a tier is kept in those in front of it
	Ahead    Size     `yaml:"ahead"`     // of results that are fetched from stores before they are asked for; 0 = none are
	Here     string   `yaml:"here"`      // whether what compiles on this machine come to is kept as well: auto, true, false
	// Trust says whose results are taken from the stores that follow; none = the farm's, or without certificates anyone's.
	Trust   []string `yaml:"trust"`
	Redis   Redis    `yaml:"redis"`
	S3      S3       `yaml:"s3"`
	REAPI   REAPI    `yaml:"reapi"`
	Helpers []string `yaml:"helpers"` // ccache's storage helpers that are tiers, each "NAME = URL [PROPERTY=VALUE]..."
}

// Manager holds rdistcc-cm's own settings.
type Manager struct {
	Socket   string        `yaml:"socket"`    // empty = cm.sock in the state directory
	IdleExit time.Duration `yaml:"idle-exit"` // 0 = never; the default is for managers that a wrapper started
	Carrier  string        `yaml:"carrier"`   // how sources get to hosts: auto, write, eager, pull
	Inputs   Size          `yaml:"inputs"`    // memory of what is known of commands and files; 0 = a part of the machine's (InputsFor)
	Capture  string        `yaml:"capture"`   // pcapng file of its iWARP connections, without what they carry; empty = none
}

// InputsFor returns how much memory a manager may take, of total bytes, for what it knows of commands and files. A total of 0 is
// not known.
func (m *Manager) InputsFor(total uint64) int64 {
	if m.Inputs != 0 {
		return int64(m.Inputs)
	}
	return int64(min(max(total/16, 128*uint64(MiB)), 4*uint64(GiB)))
}

// Daemon holds rdistccd's own settings.
type Daemon struct {
	Listen     []string      `yaml:"listen"`
	Provider   string        `yaml:"provider"` // of the verbs: soft, ibverbs, ibverbs:DEVICE
	Carriers   []string      `yaml:"carriers"` // how sources may get here: write, eager, pull; at least one of write and pull
	Jobs       int           `yaml:"jobs"`     // compiles at a time; 0 = number of cores
	Nice       int           `yaml:"nice"`
	Allow      []string      `yaml:"allow"`    // networks that may send jobs; required beyond loopback
	User       string        `yaml:"user"`     // user to become when started as root
	Capture    string        `yaml:"capture"`  // as Manager.Capture; only with provider soft
	WorkDir    string        `yaml:"work-dir"` // base of the work area; empty = workdir.DefaultBase
	JobTimeout time.Duration `yaml:"job-timeout"`
	PIDFile    string        `yaml:"pid-file"`
	Tree       string        `yaml:"tree"` // private trees for compiles: auto, require, off
	// CompileUsers is the first of the user IDs that confined compiles run as, one for each compile at a time, if the
	// daemon stays root; 0 = its own user.
	CompileUsers int `yaml:"compile-users"`
	// SlotAccess says how clients get access to slots: auto, anew (for each job), kept (while they are connected).
	SlotAccess string `yaml:"slot-access"`
}

// Distcc lets a daemon serve clients of distcc as well, which prove nothing.
type Distcc struct {
	Listen []string `yaml:"listen"` // empty = not at all
	Allow  []string `yaml:"allow"`  // networks whose clients are served; required beyond loopback
	// WithoutProof accepts that clients of distcc prove nothing, on a daemon whose own clients have to.
	WithoutProof bool `yaml:"without-proof"`
}

// Default returns the settings without any file or flag.
func Default() *Config {
	return &Config{
		Local:       Local{Share: true},
		Fallback:    Fallback{Allow: true, Attempts: 2, Patience: time.Minute},
		Discovery:   Discovery{Interval: 5 * time.Second, Timeout: 2 * time.Second},
		Diagnostics: "exact",
		Sandbox:     "auto",
		Wait:        iwarp.Waiting{}.String(),
		Limits: Limits{
			IOTimeout:      5 * time.Minute,
			ConnectTimeout: 4 * time.Second,
			Heartbeat:      time.Second,
			Silence:        4 * time.Second,
			Wrappers:       1024,
			Clients:        256,
			DiskFloor:      32 * MiB,
			Processes:      64,
			File:           GiB,
			Output:         MiB,
			ClientQueued:   1024,
		},
		Toolchains: Toolchains{Dirs: []string{"/usr/local/bin", "/usr/bin"}, Accept: "named", Size: 4 * GiB, Send: true, Plugins: []string{"annobin", "gcc-annobin"}},
		HTTP:       HTTP{Manager: "127.0.0.1:7634", Daemon: "127.0.0.1:7633"},
		Log:        Log{Level: "info", CaptureLimit: 64 * MiB},
		Scheduler: Scheduler{
			Backoff:      100 * time.Millisecond,
			BackoffMax:   5 * time.Second,
			ConnectGrace: time.Second,
			Audit:        0.002,
		},
		Links:   Links{Min: 1, Max: 2, Idle: time.Minute},
		Buffers: Buffers{Slot: 32 * MiB, Sink: 32 * MiB, Source: 256 * MiB, Result: 256 * MiB, Large: 512 * MiB, Prefault: MiB, Eager: 16 * KiB},
		Store:   Store{Use: true, Keep: 10 * time.Minute, Results: 64 * MiB, ResultsDisk: GiB},
		Cluster: Cluster{Header: "authorization"},
		Cache:   Cache{Use: true, Farm: true, Replicas: 1, Size: 5 * GiB, BackFill: true, Ahead: 64 * MiB, Here: "auto", Redis: defaultRedis(), S3: defaultS3(), REAPI: defaultREAPI()},
		Manager: Manager{IdleExit: 10 * time.Minute, Carrier: "auto"},
		Daemon: Daemon{
			Listen:     []string{"127.0.0.1:7632"},
			Provider:   "soft",
			Carriers:   []string{"write", "eager", "pull"},
			Nice:       5,
			JobTimeout: 10 * time.Minute,
			Tree:       "auto",
			// From the range that systemd gives to services while they run.
			CompileUsers: 61184,
			SlotAccess:   "auto",
		},
	}
}

// Waiting returns Wait for the verbs.
func (c *Config) Waiting() iwarp.Waiting {
	w, _ := iwarp.ParseWaiting(c.Wait) // checked by Load
	return w
}

// Path returns the name of the file that was read, or "".
func (c *Config) Path() string { return c.path }

// Origin returns where the value of a key comes from: "default", "FILE:LINE", or the where of Set.
func (c *Config) Origin(key string) string {
	if o, ok := c.origins[key]; ok {
		return o
	}
	return "default"
}
