// Package config is the one schema of rdistcc's settings: the yaml file, its
// defaults, and what a flag overrides. It alone imports the yaml library.
//
// A key is named by its path, say "daemon.job-timeout". Flags override the file,
// the file overrides the defaults; Settings tells which one decided. Unknown and
// doubled keys, wrong types and values out of range are errors that name file,
// line and key. Durations and sizes carry a unit: "30s", "10m", "32MiB".
package config

import (
	"time"
)

// Config holds every setting. Its zero value is of no use: see Default and Load.
type Config struct {
	Hosts       []string   `yaml:"hosts"`
	Discovery   Discovery  `yaml:"discovery"`
	Local       Local      `yaml:"local"`
	Fallback    Fallback   `yaml:"fallback"`
	Diagnostics string     `yaml:"diagnostics"` // exact or fast: see deploy/config.yaml
	Auth        Auth       `yaml:"auth"`
	Sandbox     string     `yaml:"sandbox"` // of compiles on a daemon: auto, strict, off
	Limits      Limits     `yaml:"limits"`
	Toolchains  Toolchains `yaml:"toolchains"`
	HTTP        HTTP       `yaml:"http"`
	Log         Log        `yaml:"log"`
	Scheduler   Scheduler  `yaml:"scheduler"`
	Links       Links      `yaml:"links"`
	Buffers     Buffers    `yaml:"buffers"`
	Store       Store      `yaml:"store"`
	Manager     Manager    `yaml:"manager"`
	Daemon      Daemon     `yaml:"daemon"`

	path    string            // of the file, or empty
	origins map[string]string // key: where its value came from; absent = default
	entries []string          // of hosts, where each came from; nil = all from one place
}

// Discovery are the settings of finding hosts, and of being found.
type Discovery struct {
	Interval   time.Duration `yaml:"interval"`   // between two looks at a name of DNS
	Timeout    time.Duration `yaml:"timeout"`    // of one look
	Interfaces []string      `yaml:"interfaces"` // for mDNS; empty = all that take multicast, but the loopback
	MDNS       bool          `yaml:"mdns"`       // rdistccd announces itself
}

// Local bounds what runs on the build host itself.
type Local struct {
	Slots      int  `yaml:"slots"`      // compiles, links and the like at a time; 0 = cores
	Share      bool `yaml:"share"`      // compile here what a host could do, where that is sooner
	Preprocess int  `yaml:"preprocess"` // preprocessors at a time; 0 = twice the cores
}

// Fallback says what happens when hosts give trouble.
type Fallback struct {
	Allow    bool `yaml:"allow"`    // compile here in the end; RDISTCC_FALLBACK overrides
	Attempts int  `yaml:"attempts"` // hosts that are tried for one job that fails there; for one that loses its hosts a third at least
	// Patience is how long a command that may not be compiled here waits for a host that can come up.
	Patience time.Duration `yaml:"patience"`
}

// Auth says how both sides of a connection prove who they are: by a key that they
// share, or by certificates. Only one of the two may be set.
type Auth struct {
	PSKFile string `yaml:"psk-file"`
	TLS     TLS    `yaml:"tls"`
}

// TLS are the files, PEM, of mutual TLS: all three or none.
type TLS struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
	CA   string `yaml:"ca"` // who signs the other side's certificate
}

// Limits bound waiting and how many may come.
type Limits struct {
	IOTimeout      time.Duration `yaml:"io-timeout"`      // a job's whole remote part
	ConnectTimeout time.Duration `yaml:"connect-timeout"` // to reach a host, each step
	Heartbeat      time.Duration `yaml:"heartbeat"`       // pause between signs of life on a quiet connection
	Silence        time.Duration `yaml:"silence"`         // without one for so long a peer is lost
	Wrappers       int           `yaml:"wrappers"`        // commands that a manager serves at a time
	Clients        int           `yaml:"clients"`         // managers that a daemon serves at a time
	Memory         Size          `yaml:"memory"`          // that each program of a compile may take; 0 = no limit
	DiskFloor      Size          `yaml:"disk-floor"`      // bytes free in the work directory without which a daemon takes no work
	JobMemory      Size          `yaml:"job-memory"`      // that all processes of one compile may have together; 0 = three quarters of the machine's, or of the control group's
	Processes      int           `yaml:"processes"`       // that one compile may have at a time
	File           Size          `yaml:"file"`            // largest file that a compile may write
	Output         Size          `yaml:"output"`          // of a compiler's words, on each of stdout and stderr
	ClientRunning  int           `yaml:"client-running"`  // compiles that one client may have running on a daemon; 0 = all places
	ClientQueued   int           `yaml:"client-queued"`   // and waiting
	ClientBytes    Size          `yaml:"client-bytes"`    // of a daemon's memory for sources and results that one client may hold; 0 = half of what is large
}

// Toolchains says where a daemon looks for compilers.
type Toolchains struct {
	Dirs []string `yaml:"dirs"`
}

// HTTP are the addresses of the status pages; empty = none.
type HTTP struct {
	Manager string `yaml:"manager"`
	Daemon  string `yaml:"daemon"`
	Pprof   bool   `yaml:"pprof"`
}

// Log says where the programs log to, and how much.
type Log struct {
	File  string `yaml:"file"` // empty = stderr
	Level string `yaml:"level"`
	Audit string `yaml:"audit"` // a daemon's, who had what compiled, JSON; empty = none
}

// Scheduler are the settings of the choice of a host.
type Scheduler struct {
	Backoff      time.Duration `yaml:"backoff"`       // pause after a first loss; doubles with each further one
	BackoffMax   time.Duration `yaml:"backoff-max"`   // at most
	Audit        float64       `yaml:"audit"`         // part of the jobs that a second host compiles too
	ConnectGrace time.Duration `yaml:"connect-grace"` // how long a job waits for a host that is being connected
}

// Links are the settings of a manager's connections to one host.
type Links struct {
	Min  int           `yaml:"min"`  // that are kept
	Max  int           `yaml:"max"`  // at most, when there is much to do
	Idle time.Duration `yaml:"idle"` // without work, until one beyond min ends
}

// Buffers sizes the memory of jobs. Source and sink of a slot are sparse files:
// only what was written takes memory.
type Buffers struct {
	Slot     Size `yaml:"slot"`     // largest arguments and source that are written into a slot
	Sink     Size `yaml:"sink"`     // largest result that is written into a sink
	Source   Size `yaml:"source"`   // largest arguments and source of a job; beyond a slot they are fetched
	Result   Size `yaml:"result"`   // largest result of a job; beyond a sink it is fetched
	Large    Size `yaml:"large"`    // all together that are fetched; 0 = none is
	Prefault Size `yaml:"prefault"` // kept in memory of each
	Slots    int  `yaml:"slots"`    // jobs in flight at a time
}

// Store are the settings of what a daemon keeps of its clients' files for their later jobs.
type Store struct {
	Use    bool          `yaml:"use"`
	Memory Size          `yaml:"memory"` // of all clients; 0 = a sixteenth of the machine's, or of the control group's
	Disk   Size          `yaml:"disk"`   // beside that, of all clients; 0 = none
	Dir    string        `yaml:"dir"`    // empty = store in the daemon's cache directory
	Keep   time.Duration `yaml:"keep"`   // how long a client's outlive its last connection; 0 = not at all
}

// Manager are rdistcc-cm's own settings.
type Manager struct {
	Socket   string        `yaml:"socket"`    // empty = cm.sock in the state directory
	IdleExit time.Duration `yaml:"idle-exit"` // 0 = never; the default is for managers that a wrapper started
}

// Daemon are rdistccd's own settings.
type Daemon struct {
	Listen     []string      `yaml:"listen"`
	Provider   string        `yaml:"provider"` // of the verbs: soft, ibverbs, ibverbs:DEVICE
	Jobs       int           `yaml:"jobs"`     // compiles at a time; 0 = cores
	Nice       int           `yaml:"nice"`
	Allow      []string      `yaml:"allow"`    // networks; needed beyond loopback
	User       string        `yaml:"user"`     // to become when started as root
	WorkDir    string        `yaml:"work-dir"` // base of the work area; empty = workdir.DefaultBase
	JobTimeout time.Duration `yaml:"job-timeout"`
	PIDFile    string        `yaml:"pid-file"`
	Tree       string        `yaml:"tree"` // private trees for compiles: auto, require, off
	// CompileUsers is the first of the user numbers that confined compiles run as, one for each at a time, where the
	// daemon stays root; 0 = its own.
	CompileUsers int `yaml:"compile-users"`
}

// Default returns the settings without any file or flag.
func Default() *Config {
	return &Config{
		Local:       Local{Share: true},
		Fallback:    Fallback{Allow: true, Attempts: 2, Patience: time.Minute},
		Discovery:   Discovery{Interval: 5 * time.Second, Timeout: 2 * time.Second},
		Diagnostics: "exact",
		Sandbox:     "auto",
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
		Toolchains: Toolchains{Dirs: []string{"/usr/local/bin", "/usr/bin"}},
		HTTP:       HTTP{Manager: "127.0.0.1:7634", Daemon: "127.0.0.1:7633"},
		Log:        Log{Level: "info"},
		Scheduler: Scheduler{
			Backoff:      100 * time.Millisecond,
			BackoffMax:   5 * time.Second,
			ConnectGrace: time.Second,
			Audit:        0.002,
		},
		Links:   Links{Min: 1, Max: 2, Idle: time.Minute},
		Buffers: Buffers{Slot: 32 * MiB, Sink: 32 * MiB, Source: 256 * MiB, Result: 256 * MiB, Large: 512 * MiB, Prefault: MiB, Slots: 64},
		Store:   Store{Use: true, Keep: 10 * time.Minute},
		Manager: Manager{IdleExit: 10 * time.Minute},
		Daemon: Daemon{
			Listen:     []string{"127.0.0.1:7632"},
			Provider:   "soft",
			Nice:       5,
			JobTimeout: 10 * time.Minute,
			Tree:       "auto",
			// Of the numbers that systemd gives to services for as long as they run.
			CompileUsers: 61184,
		},
	}
}

// Path is the file that was read, or empty.
func (c *Config) Path() string { return c.path }

// Origin says where the value of a key comes from: "default", "FILE:LINE", or
// what Set was told.
func (c *Config) Origin(key string) string {
	if o, ok := c.origins[key]; ok {
		return o
	}
	return "default"
}
