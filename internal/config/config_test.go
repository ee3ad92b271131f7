package config

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

const deployed = "../../deploy/config.yaml"

// The file that documents the keys has every one of them, with its default.
func TestDeployedFileEqualsDefaults(t *testing.T) {
	text, err := os.ReadFile(deployed)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse(deployed, text)
	if err != nil {
		t.Fatal(err)
	}
	want := Default().Settings()
	for i, s := range c.Settings() {
		if s.Value != want[i].Value {
			t.Errorf("%s is %s in the file, the default is %s", s.Key, s.Value, want[i].Value)
		}
		if !strings.HasPrefix(s.Origin, deployed+":") {
			t.Errorf("%s is not in the file", s.Key)
		}
	}
}

func TestDefaultsAreValid(t *testing.T) {
	if err := Default().Validate(); err != nil {
		t.Error(err)
	}
}

// What Settings prints can be read again, and means the same.
func TestSettingsRoundTrip(t *testing.T) {
	c := Default()
	for _, kv := range [][]string{
		{"hosts", "a/4", "[::1]:7,zstd"}, {"daemon.user", "no"}, {"log.file", "/a b/\"c\".log"},
		{"daemon.job-timeout", "90m"}, {"buffers.slot", "1025KiB"}, {"local.slots", "3"}, {"fallback.allow", "false"},
	} {
		if err := c.Set(kv[0], "test", kv[1:]...); err != nil {
			t.Fatal(err)
		}
	}
	var text strings.Builder
	section := ""
	for _, s := range c.Settings() {
		head, key, nested := strings.Cut(s.Key, ".")
		if !nested {
			text.WriteString(s.Key + ": " + s.Value + "\n")
			continue
		}
		if head != section {
			section = head
			text.WriteString(head + ":\n")
		}
		text.WriteString("  " + key + ": " + s.Value + "\n")
	}
	again, err := Parse("x", []byte(text.String()))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text.String())
	}
	want := c.Settings()
	for i, s := range again.Settings() {
		if s.Value != want[i].Value {
			t.Errorf("%s is %s after a round trip, want %s", s.Key, s.Value, want[i].Value)
		}
	}
}

func TestFlagOverFileOverDefault(t *testing.T) {
	c, err := Parse("f.yaml", []byte("# c\ndaemon:\n  jobs: 3\n  nice: 7\n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Set("daemon.nice", "--nice", "9"); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]Setting)
	for _, s := range c.Settings() {
		got[s.Key] = s
	}
	for _, want := range []Setting{
		{"daemon.jobs", "3", "f.yaml:3"}, {"daemon.nice", "9", "--nice"}, {"daemon.job-timeout", "10m", "default"},
		{"daemon.listen", `["127.0.0.1:7632"]`, "default"}, {"hosts", "[]", "default"},
	} {
		if o := c.Origin(want.Key); o != want.Origin {
			t.Errorf("Origin(%q) = %q, want %q", want.Key, o, want.Origin)
		}
		if got[want.Key] != want {
			t.Errorf("setting is %+v, want %+v", got[want.Key], want)
		}
	}
	if c.Daemon.Jobs != 3 || c.Daemon.Nice != 9 || c.Daemon.JobTimeout != 10*time.Minute {
		t.Errorf("daemon is %+v", c.Daemon)
	}
}

func TestValues(t *testing.T) {
	c, err := Parse("f", []byte("hosts: build7/4\nbuffers: {slot: 65536KiB, prefault: 0}\nlimits:\n  io-timeout: 90s\nlocal:\ntoolchains:\n  dirs:\n  - /opt/bin\n"))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(c.Hosts, []string{"build7/4"}) || c.Buffers.Slot != 64*MiB || c.Buffers.Prefault != 0 ||
		c.Limits.IOTimeout != 90*time.Second || !reflect.DeepEqual(c.Toolchains.Dirs, []string{"/opt/bin"}) {
		t.Errorf("got %+v", c)
	}
	for _, text := range []string{"", "# nothing\n", "---\n", "{}"} {
		if c, err := Parse("f", []byte(text)); err != nil || !reflect.DeepEqual(c.Settings(), Default().Settings()) {
			t.Errorf("Parse(%q) = %v, want the defaults", text, err)
		}
	}
}

func TestErrorsNameLineAndKey(t *testing.T) {
	tests := []struct{ text, want string }{
		{"daemon:\n  jobs: 1\n  job: 2\n", `f:3: unknown key "daemon.job" (did you mean "daemon.jobs"?)`},
		{"deamon:\n  jobs: 1\n", `f:1: unknown key "deamon" (did you mean "daemon"?)`},
		{"jobs: 1\n", `f:1: unknown key "jobs" (did you mean "daemon.jobs"?)`},
		{"qwertz: 1\n", `f:1: unknown key "qwertz"`},
		{"limits:\n  io_timeout: 5m\n", `(did you mean "limits.io-timeout"?)`},
		{"daemon:\n  jobs: 1\n  jobs: 2\n", `f:3: "daemon.jobs" is already set in line 2`},
		{"daemon:\n  jobs: many\n", `f:2: daemon.jobs: "many" is not a whole number`},
		{"daemon:\n  jobs: [1]\n", `f:2: daemon.jobs: wants one value`},
		{"daemon:\n  jobs:\n", `f:2: daemon.jobs: wants one value`},
		{"daemon:\n  jobs: {a: 1}\n", `f:2: daemon.jobs: wants plain values`},
		{"scheduler:\n  audit: often\n", `f:2: scheduler.audit: "often" is not a number`},
		{"scheduler:\n  audit: 2\n", "f:2: scheduler.audit: 2 is not between 0 and 1"},
		{"scheduler:\n  audit: nan\n", "is not between 0 and 1"},
		{"daemon:\n  jobs: -1\n", "f:2: daemon.jobs: -1 is not between 0 and 10000"},
		{"daemon: 3\n", "f:1: daemon holds keys, not a value"},
		{"daemon:\n  job-timeout: 600\n", `f:2: daemon.job-timeout: "600" is not a duration; write a number and ms, s, m or h, as in 30s`},
		{"daemon:\n  job-timeout: -5m\n", "negative"},
		{"buffers:\n  slot: 32M\n", `f:2: buffers.slot: "32M" is not a size; write a whole number and B, KiB, MiB or GiB, as in 32MiB`},
		{"buffers:\n  slot: 99999999999GiB\n", "not a size"},
		{"buffers:\n  slot: 3GiB\n", "f:2: buffers.slot: 3GiB is not between 64KiB and 2GiB"},
		{"store:\n  memory: 1MiB\n", "f:2: store.memory: 1MiB is not between 16MiB and 1024GiB"},
		{"store:\n  dir: cache\n", "f:2: store.dir: \"cache\" is not an absolute path"},
		{"store:\n  keep: -1s\n", "f:2: store.keep: \"-1s\" is negative"},
		{"store:\n  groups: [alice, bob]\n", `f:2: store.groups: "alice" is not GROUP = CLIENT CLIENT ..., as in team = alice bob ci`},
		{"store:\n  groups: [team = alice]\n", "with two clients at least"},
		{"store:\n  groups: [our team = alice bob]\n", "the group's name \"our team\" is not 32 or fewer of letters"},
		{"store:\n  groups: [team = alice bob, team = carol dan]\n", "group team is there twice"},
		{"store:\n  groups: [team = alice bob, ci = bob dan]\n", "f:2: store.groups: client \"bob\" is in team and in ci: a client is in one group at most"},
		{"store:\n  groups: [team = alice alice]\n", "client \"alice\" is in team and in team"},
		{"store:\n  groups: [{team: alice}]\n", "wants plain values"},
		{"store:\n  groups: [team = alice bob]\n", "f:2: store.groups: without certificates (auth.tls)"},
		{"auth:\n  psk-file: /k\nstore:\n  groups: [team = alice bob]\n", "f:4: store.groups: without certificates"},
		{"auth: {tls: {cert: /a, key: /b, ca: /c}}\nsandbox: off\nstore:\n  groups: [team = alice bob]\n", "f:4: store.groups: with sandbox: off, any compile"},
		{"auth: {tls: {cert: /a, key: /b, ca: /c}}\nstore:\n  results: 0B\n  groups: [team = alice bob]\n", "f:4: store.groups: no results are kept here"},
		{"buffers:\n  prefault: 64MiB\n", "f:2: buffers.prefault: 64MiB is not between 0 and 32MiB"},
		{"limits:\n  heartbeat: 10s\n", "limits.silence: 4s is not between 20s and 24h"},
		{"log:\n  level: loud\n", `f:2: log.level: "loud" is none of debug, info, warn, error`},
		{"fallback:\n  allow: maybe\n", `"maybe" is not true or false`},
		{"daemon:\n  allow: [10.0.0.1/33]\n", "is not a network; write ADDR/BITS"},
		{"daemon:\n  allow: [localhost]\n", "is not a network; write ADDR/BITS"},
		{"auth:\n  psk-file: key\n", `f:2: auth.psk-file: "key" is not an absolute path`},
		{"auth:\n  tls:\n    cert: /a\n    ca: /b\n", "auth.tls.key: not set: TLS takes all three"},
		{"auth:\n  psk-file: /k\n  tls: {cert: /a, key: /b, ca: /c}\n", "f:2: auth.psk-file: auth.tls is set too"},
		{"daemon:\n  allow: [everybody]\n", "is not a network"},
		{"daemon:\n  listen: []\n", "names no address"},
		{"daemon:\n  listen: 7632\n", "is not ADDR:PORT"},
		{"daemon:\n  listen: \"::1:7632\"\n", "is not ADDR:PORT"},
		{"http:\n  daemon: \"127.0.0.1:x\"\n", "f:2: http.daemon"},
		{"toolchains:\n  dirs: [bin]\n", "not an absolute path"},
		{"toolchains:\n  plugins: [/x/annobin.so]\n", "leave out its directory"},
		{"hosts: [a:x]\n", `f:1: hosts: "a:x": "x" is not a port; write HOST:PORT`},
		{"hosts:\n- a\n- b,foo\n", `f:3: hosts: "b,foo": unknown option "foo"`},
		{"cache:\n  redis:\n    url: redis://user:s3cret@host/0\n", "f:3: cache.redis.url: a user or a password must not be in it: use cache.redis.password-file"},
		{"cache:\n  redis:\n    url: redis://:s3cret@ho st\n", "f:3: cache.redis.url: a user or a password must not be in it"},
		{"cache:\n  redis:\n    url: redis://host/3\n", "f:3: cache.redis.url: has more in it than a server's address: use cache.redis.database"},
		{"cache:\n  redis:\n    url: redis://host?password=s3cret\n", "has more in it than a server's address"},
		{"cache:\n  redis:\n    url: host:6379\n", "is not a URL that begins with redis:// or rediss:// or unix://"},
		{"cache:\n  redis:\n    url: \"redis://s3cret host\"\n", "is not a URL"},
		{"cache:\n  redis:\n    url: redis://:6379\n", "names no host"},
		{"cache:\n  redis:\n    url: unix://run/redis\n", "is not an absolute path behind unix://"},
		{"cache:\n  redis:\n    mode: readonly\n", `f:3: cache.redis.mode: "readonly" is none of read-write, read, write`},
		{"cache:\n  redis:\n    timeout: 1m\n", "f:3: cache.redis.timeout: 1m is not between 1ms and 10s"},
		{"cache:\n  redis:\n    prefix: \"a b\"\n", "has a character that cannot be in a name"},
		{"cache:\n  redis:\n    cert: /c\n", "f:3: cache.redis.cert: cert and key belong together"},
		{"cache:\n  redis:\n    password: s3cret\n", `unknown key "cache.redis.password"`},
		{"cache:\n  redis:\n    password-file: pw\n", `"pw" is not an absolute path`},
		{"cache:\n  s3:\n    endpoint: https://id:s3cret@host\n", "f:3: cache.s3.endpoint: a user or a password must not be in it: use cache.s3.credentials-file"},
		{"cache:\n  s3:\n    endpoint: https://host/bucket\n", "use cache.s3.bucket and cache.s3.prefix"},
		{"cache:\n  s3:\n    bucket: abc\n    endpoint: \"\"\n", "f:4: cache.s3.endpoint: is missing"},
		{"cache:\n  s3:\n    bucket: s3://abc\n", "is not the name of a bucket"},
		{"cache:\n  s3:\n    addressing: virtual\n", `f:3: cache.s3.addressing: "virtual" is none of auto, path, host`},
		{"cache:\n  reapi:\n    url: grpcs://s3cret@host:443\n", "f:3: cache.reapi.url: a user or a password must not be in it: use cache.reapi.token-file"},
		{"cache:\n  reapi:\n    url: grpc://host/main\n", "use cache.reapi.instance"},
		{"cache:\n  reapi:\n    url: http://host\n", "is not a URL that begins with grpc:// or grpcs:// or unix://"},
		{"cache:\n  reapi:\n    header: \"authorization: Bearer\"\n", "is not the name of a header for a token"},
		{"fallbak:\n  allow: true\n", `f:1: unknown key "fallbak" (did you mean "fallback"?)`},
		{"hosts: [a]\nlocal: x: y\n", "f:2: mapping values are not allowed"},
		{"a: &x [1]\n", "unknown key"},
		{"hosts: &x [a]\n", "anchors and aliases"},
		{"hosts: [&x a, *x]\n", "anchors and aliases"},
		{"daemon: &d\n  jobs: 1\n", "anchors and aliases"},
		{"- a\n", "list of"},
		{"[", "f:1: "},
		{"hosts: [a]\n---\nhosts: [b]\n", "more than one yaml document"},
		{"identity:\n  psk-file: /x\n", `unknown key "identity"`},
	}
	for _, tt := range tests {
		_, err := Parse("f", []byte(tt.text))
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("Parse(%q) gave %v, want %q in one line", tt.text, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("Parse(%q) shows what may be a password: %v", tt.text, err)
		}
	}
}

// config-permissions
func TestAliasBombIsRefused(t *testing.T) {
	text := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'l'; c++ {
		p := string(c - 1)
		text += string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+p+",", 8) + "*" + p + "]\n"
	}
	if _, err := Parse("f", []byte(text+"hosts: *k\n")); err == nil {
		t.Error("a bomb of aliases gave no error")
	}
	if _, err := Parse("f", []byte("hosts: "+strings.Repeat("[", 20000))); err == nil {
		t.Error("20,000 open brackets gave no error")
	}
}

func TestSetRefuses(t *testing.T) {
	c := Default()
	if err := c.Set("daemon.jobs", "--jobs", "x"); err == nil || err.Error() != `--jobs: "x" is not a whole number` {
		t.Errorf("Set gave %v", err)
	}
	if err := c.Set("daemon.job", "--job", "1"); err == nil {
		t.Error("Set of an unknown key gave no error")
	}
	if err := c.Set("daemon.jobs", "--jobs", "-4"); err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), "--jobs: ") {
		t.Errorf("Validate gave %v, want it to name --jobs", err)
	}
}

// TestLoadRefusesUnsafeFiles: files that others may write, and files that no person wrote.
//
// config-permissions
func TestLoadRefusesUnsafeFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config.yaml")
	write := func(size int, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(strings.Repeat("#", size)), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	write(10, 0o644)
	if c, err := Load(path); err != nil || c.Path() != path {
		t.Errorf("Load = %v, want the file", err)
	}
	write(10, 0o646)
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "chmod o-w") {
		t.Errorf("file that all may write: %v, want the remedy", err)
	}
	write(MaxFile+1, 0o644)
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "longer") {
		t.Errorf("file over MaxFile: %v", err)
	}
	if _, err := Load(dir); err == nil || err.Error() != dir+": is a directory" {
		t.Errorf("directory: %v", err)
	}
	if _, err := Load(filepath.Join(dir, "none")); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("missing file: %v", err)
	}
}

func TestLocate(t *testing.T) {
	home := t.TempDir()
	env := map[string]string{"HOME": home}
	get := func(k string) string { return env[k] }
	mine := filepath.Join(home, ".config/rdistcc/config.yaml")
	if p, _ := Locate(get); p == mine {
		t.Errorf("Locate = %q, which does not exist", p)
	}
	if err := os.MkdirAll(filepath.Dir(mine), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mine, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if p, explicit := Locate(get); p != mine || explicit {
		t.Errorf("Locate = %q, %t, want %q", p, explicit, mine)
	}
	env["RDISTCC_CONFIG"] = "/elsewhere"
	if p, explicit := Locate(get); p != "/elsewhere" || !explicit {
		t.Errorf("Locate = %q, %t, want /elsewhere", p, explicit)
	}
}

func TestSizeText(t *testing.T) {
	for text, want := range map[string]Size{"0": 0, "1B": 1, "3KiB": 3 << 10, "32MiB": 32 << 20, "1GiB": 1 << 30} {
		got, err := ParseSize(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("ParseSize(%q) = %d (%s), %v, want %d", text, got, got, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	text, err := os.ReadFile(deployed)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	f.Add("hosts: [a, &x b, *x]\ndaemon: {jobs: 1, <<: *x}\n")
	f.Add("? [a]\n: b\n!!map hosts: !!set {a}\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse("f", []byte(text))
		if err == nil {
			err = c.Validate()
			if err != nil {
				t.Fatalf("Parse took what Validate refuses: %v", err)
			}
		} else if strings.Contains(err.Error(), "\n") {
			t.Fatalf("error has several lines: %q", err)
		}
	})
}

// TestDiffering: what a reload takes, and what it leaves for a restart.
func TestDiffering(t *testing.T) {
	old, err := Parse("f", []byte("daemon: {jobs: 3}\nhosts: [a]\nlog:\n  file: /x\n"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse("f", []byte("# moved down\ndaemon: {jobs: 3}\nhosts: [a, b]\nbuffers: {slots: 3}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Differing(old), []string{"hosts", "log.file", "buffers.slots"}; !reflect.DeepEqual(got, want) {
		t.Errorf("differing are %q, want %q", got, want)
	}
	c.Keep(old, "log.file", "buffers.slots")
	if got := c.Differing(old); !reflect.DeepEqual(got, []string{"hosts"}) {
		t.Errorf("beside those that were kept %q differ", got)
	}
	if c.Log.File != "/x" || c.Origin("log.file") != "f:4" || c.Buffers.Slots != 0 || c.Origin("buffers.slots") != "default" {
		t.Errorf("kept were %+v of %s, %d of %s", c.Log, c.Origin("log.file"), c.Buffers.Slots, c.Origin("buffers.slots"))
	}
}

// TestParseNetwork: a network is what its bits say, however much of an address stands
// before them.
func TestParseNetwork(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.0/8":              "10.0.0.0/8",
		"10.1.2.3/8":              "10.0.0.0/8",
		"192.168.1.64/28":         "192.168.1.64/28",
		"192.168.1.70/28":         "192.168.1.64/28",
		"192.168.1.5":             "192.168.1.5/32",
		"fd00:1:2::3/16":          "fd00::/16",
		"::1":                     "::1/128",
		"fe80::1%eth0":            "fe80::1/128", // peers are compared without their zones
		"::ffff:192.168.1.70":     "192.168.1.70/32",
		"::ffff:192.168.1.70/124": "192.168.1.64/28",
		"0.0.0.0/0":               "0.0.0.0/0",
		"::/0":                    "::/0",
	} {
		got, err := ParseNetwork(text)
		if err != nil || got.String() != want {
			t.Errorf("%s: %v, %v, want %s", text, got, err, want)
		}
	}
}

// TestGroups: each client of a group is told apart by its name.
func TestGroups(t *testing.T) {
	c, err := Parse("f", []byte("auth: {tls: {cert: /a, key: /b, ca: /c}}\nstore:\n  groups:\n  - team = alice  bob\n  - ci=spiffe://farm/ci?a=b nightly\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"alice": "team", "bob": "team", "spiffe://farm/ci?a=b": "ci", "nightly": "ci"}
	if got := c.Groups(); !maps.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if got := Default().Groups(); len(got) != 0 {
		t.Errorf("by default %v", got)
	}
}

// TestSizesOfTheMachine: what a manager takes by default follows its machine's memory, within bounds, and a setting replaces it.
func TestSizesOfTheMachine(t *testing.T) {
	for _, k := range []struct {
		total  uint64
		slots  int
		inputs Size
	}{{0, 64, 128 * MiB}, {uint64(2 * GiB), 64, 128 * MiB}, {uint64(24 * GiB), 384, 1536 * MiB}, {uint64(1024 * GiB), 1024, 4 * GiB}} {
		c := Default()
		if n, in := c.Buffers.SlotsFor(k.total), c.Manager.InputsFor(k.total); n != k.slots || in != int64(k.inputs) {
			t.Errorf("%d bytes: %d slots and %d bytes for inputs, want %d and %d", k.total, n, in, k.slots, k.inputs)
		}
		c.Buffers.Slots, c.Manager.Inputs = 7, 16*MiB
		if n, in := c.Buffers.SlotsFor(k.total), c.Manager.InputsFor(k.total); n != 7 || in != int64(16*MiB) {
			t.Errorf("%d bytes: %d slots and %d bytes for inputs, and not those of the settings", k.total, n, in)
		}
	}
}
