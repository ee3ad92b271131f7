package hostlist

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestParseHosts(t *testing.T) {
	tests := []struct {
		text string
		want Host
	}{
		{"build7", Host{Name: "build7", Port: 7632}},
		{"build7:8000", Host{Name: "build7", Port: 8000}},
		{"build7/8", Host{Name: "build7", Port: 7632, Slots: 8}},
		{"build7:8000/8", Host{Name: "build7", Port: 8000, Slots: 8}},
		{"build7/8:8000", Host{Name: "build7", Port: 8000, Slots: 8}}, // distcc's old form
		{"build7:3632", Host{Name: "build7", Port: 3632}},             // as typed, also distcc's port
		{"10.0.0.7:8000/8,zstd", Host{Name: "10.0.0.7", Port: 8000, Slots: 8, Compress: CompressZstd}},
		{"build7,plain", Host{Name: "build7", Port: 7632, Compress: CompressPlain}},
		{"build7,cpp,lzo", Host{Name: "build7", Port: 7632}},
		{"build7,auth=nfs@x", Host{}}, // an '@' means ssh, wherever it stands
		{"build7,auth=host", Host{Name: "build7", Port: 7632}},
		{"build7/2,down", Host{Name: "build7", Port: 7632, Slots: 2, Down: true}},
		{"[::1]", Host{Name: "::1", Port: 7632}},
		{"[::1]:8000/3", Host{Name: "::1", Port: 8000, Slots: 3}},
		{"[fe80::1%eth0]:8000", Host{Name: "fe80::1%eth0", Port: 8000}},
		{"localhost:8000/2", Host{Name: "localhost", Port: 8000, Slots: 2}}, // with a port: a daemon
		{"127.0.0.1/2", Host{Name: "127.0.0.1", Port: 7632, Slots: 2}},
	}
	for _, tt := range tests {
		l, err := Parse(tt.text)
		if tt.want.Name == "" {
			if err == nil {
				t.Errorf("Parse(%q) gave no error", tt.text)
			}
			continue
		}
		tt.want.Text = tt.text
		if err != nil || len(l.Hosts) != 1 || l.Hosts[0] != tt.want {
			t.Errorf("Parse(%q) = %+v, %v, want %+v", tt.text, l.Hosts, err, tt.want)
		}
	}
}

func TestParseWholeList(t *testing.T) {
	l, err := Parse("# the farm\n--randomize localhost/3   a/4 # first\n\n\tb:7000,lzo,cpp\r\n--localslots=5 --localslots_cpp=6 c,down\na/8\n")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, h := range l.Hosts {
		got = append(got, fmt.Sprintf("%s/%d", h.Addr(), h.Slots))
	}
	if want := []string{"a:7632/8", "b:7000/0", "c:7632/0"}; !reflect.DeepEqual(got, want) {
		t.Errorf("hosts are %q, want %q", got, want)
	}
	if l.Share != 3 || l.Local != 5 || l.LocalCPP != 6 || !l.Randomize {
		t.Errorf("share %d, local %d, cpp %d, randomize %t, want 3, 5, 6, true", l.Share, l.Local, l.LocalCPP, l.Randomize)
	}
	if len(l.Notes) != 1 || !strings.Contains(l.Notes[0], "a:7632 is listed twice") {
		t.Errorf("notes are %q, want one about a:7632", l.Notes)
	}
	if got := l.Slots(4); got != 3+8+4 {
		t.Errorf("Slots(4) = %d, want 15: c is down", got)
	}
	if got := l.Usable(); got != 2 {
		t.Errorf("Usable() = %d, want 2", got)
	}
}

func TestLocalhostIsTheLocalShare(t *testing.T) {
	for text, want := range map[string]int{"localhost": 2, "localhost/7": 7, "localhost/1 localhost/2": 3, "localhost,down": 0, "": 0} {
		l, err := Parse(text)
		if err != nil || l.Share != want || len(l.Hosts) != 0 {
			t.Errorf("Parse(%q): share %d, hosts %v, %v, want share %d and no host", text, l.Share, l.Hosts, err, want)
		}
	}
}

// Each message is one line that names the entry and what to write instead.
func TestErrorsNameEntryAndRemedy(t *testing.T) {
	tests := []struct{ text, entry, say string }{
		{"a b:x", "b:x", "not a port"},
		{"a:0", "a:0", "not a port"},
		{"a:65536", "a:65536", "not a port"},
		{"a/0", "a/0", "HOST,down"},
		{"a/99999", "a/99999", "number of slots"},
		{"a/4/5", "a/4/5", "twice"},
		{"a:1/2:3", "a:1/2:3", "brackets"},
		{"::1", "::1", "[::1]:7632"},
		{"fe80::1/4", "fe80::1/4", "brackets"},
		{"[::1", "[::1", "']'"},
		{"[build7]", "[build7]", "IPv6"},
		{"[::1]x", "[::1]x", "unexpected"},
		{"[::1%]", "[::1%]", "IPv6"},
		{"/4", "/4", "names no host"},
		{",lzo", ",lzo", "names no host"},
		{"a,zst", "a,zst", "zstd, plain, down"},
		{"a,", "a,", "unknown option"},
		{"bui!d", "bui!d", "not a host name"},
		{"-a", "-a", "not a host name"},
		{"@build7", "@build7", `write "build7"`},
		{"me@build7/4:/usr/bin/distccd", "me@build7/4:/usr/bin/distccd", "ssh"},
		{"+zeroconf", "+zeroconf", "name the hosts"},
		{"--randomise", "--randomise", `unknown option "--randomise"`},
		{"--randomize=1", "--randomize=1", "no value"},
		{"--localslots", "--localslots", "--localslots=N"},
		{"--localslots_cpp=0", "--localslots_cpp=0", "--localslots_cpp=N"},
	}
	for _, tt := range tests {
		_, err := Parse(tt.text)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("Parse(%q) gave %v, want an *Error", tt.text, err)
			continue
		}
		if e.Entry != tt.entry || e.Remedy == "" || !strings.Contains(err.Error(), tt.say) || strings.Contains(err.Error(), "\n") {
			t.Errorf("Parse(%q): entry %q, message %q, want entry %q and %q in the one line", tt.text, e.Entry, err, tt.entry, tt.say)
		}
	}
	if _, err := Parse("a\nb\nc:x\n"); err == nil || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("error is %v, want it to name line 3", err)
	}
}

func TestForeignFileAsPackaged(t *testing.T) {
	for _, entry := range []string{"+zeroconf", "127.0.0.1"} {
		l, err := parse("# see the man page\n"+entry+"\n", true)
		if err != nil || len(l.Hosts) != 0 || len(l.Notes) != 1 {
			t.Errorf("%s: got %+v, %v, want no host and one note", entry, l, err)
		}
	}
	if l, err := parse("127.0.0.1/4 build7", true); err != nil || len(l.Hosts) != 2 {
		t.Errorf("got %+v, %v, want both hosts that someone wrote", l, err)
	}
	if _, err := parse("@build7", true); err == nil {
		t.Error("@build7 in distcc's file gave no error")
	}
}

func TestBounds(t *testing.T) {
	if _, err := Parse(strings.Repeat(" ", MaxText+1)); err == nil {
		t.Error("a text over MaxText gave no error")
	}
	var b strings.Builder
	for i := range MaxHosts + 1 {
		fmt.Fprintf(&b, "h%d ", i)
	}
	if _, err := Parse(b.String()); err == nil {
		t.Error("a list over MaxHosts gave no error")
	}
}

func TestEnvBeforeFilesInOrder(t *testing.T) {
	env := map[string]string{"DISTCC_HOSTS": "old", "HOME": "/home/u"}
	get := func(k string) string { return env[k] }
	lookup := func(k string) (string, bool) { v, ok := env[k]; return v, ok }
	l, where, err := FromEnv(lookup)
	if err != nil || where != "DISTCC_HOSTS" || l.Hosts[0].Name != "old" {
		t.Errorf("FromEnv = %+v, %q, %v, want old from DISTCC_HOSTS", l, where, err)
	}
	env["RDISTCC_HOSTS"] = "new"
	if l, where, err = FromEnv(lookup); err != nil || where != "RDISTCC_HOSTS" || l.Hosts[0].Name != "new" {
		t.Errorf("FromEnv = %+v, %q, %v, want new from RDISTCC_HOSTS", l, where, err)
	}
	env["RDISTCC_HOSTS"] = "new:x"
	if _, _, err = FromEnv(lookup); err == nil || !strings.Contains(err.Error(), "RDISTCC_HOSTS") {
		t.Errorf("error is %v, want it to name RDISTCC_HOSTS", err)
	}

	env["RDISTCC_HOSTS"] = ""
	if l, where, err = FromEnv(lookup); err != nil || where != "RDISTCC_HOSTS" || len(l.Hosts) != 0 {
		t.Errorf("FromEnv = %+v, %q, %v, want no host from the empty RDISTCC_HOSTS", l, where, err)
	}

	var got []string
	for _, f := range Files("/run/u/rdistcc", get) {
		got = append(got, f.Path)
	}
	want := []string{"/run/u/rdistcc/hosts", "/home/u/.config/rdistcc/hosts", "/etc/rdistcc/hosts", "/home/u/.distcc/hosts", "/etc/distcc/hosts"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Files = %q, want %q", got, want)
	}
	env["XDG_CONFIG_HOME"], env["DISTCC_DIR"] = "/c", "/d"
	got = nil
	for _, f := range Files("", get) {
		got = append(got, f.Path)
	}
	if want = []string{"/c/rdistcc/hosts", "/etc/rdistcc/hosts", "/d/hosts", "/home/u/.distcc/hosts", "/etc/distcc/hosts"}; !reflect.DeepEqual(got, want) {
		t.Errorf("Files = %q, want %q", got, want)
	}
}

func TestFirstFileThatExistsDecides(t *testing.T) {
	content := map[string]string{"/b": "b1 b2", "/c": "c1"}
	read := func(p string) ([]byte, bool, error) {
		if p == "/bad" {
			return nil, true, errors.New("permission denied")
		}
		s, ok := content[p]
		return []byte(s), ok, nil
	}
	l, where, err := FromFiles([]File{{Path: "/a"}, {Path: "/b"}, {Path: "/c"}}, read)
	if err != nil || where != "/b" || len(l.Hosts) != 2 {
		t.Errorf("FromFiles = %+v, %q, %v, want two hosts from /b", l, where, err)
	}
	if _, where, err = FromFiles([]File{{Path: "/a"}}, read); err != nil || where != "" {
		t.Errorf("FromFiles without a file = %q, %v, want nothing", where, err)
	}
	if _, _, err = FromFiles([]File{{Path: "/bad"}}, read); err == nil || !strings.Contains(err.Error(), "/bad") {
		t.Errorf("error is %v, want it to name /bad", err)
	}
	content["/b"] = "x\ny:z\n"
	if _, _, err = FromFiles([]File{{Path: "/b"}}, read); err == nil || !strings.Contains(err.Error(), "host list /b:2: ") {
		t.Errorf("error is %v, want it to name /b:2", err)
	}
}

// FuzzParse: any text gives a list within the limits or one line of error, and
// an entry that was taken means the same when it is read alone.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"a:1/2,zstd b/3:4 [::1]:5 localhost/2 # x\n--localslots=3", "@a", "+zeroconf", "::1", "[fe80::1%e]:1/2", "--randomize\n\n#", "a,,b", "a/4:5/6", "dns+a:1/2,zstd b srv+_x._tcp.y mdns+/3 file+/a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := Parse(text)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Remedy == "" {
				t.Fatalf("Parse(%q): error %v has no remedy", text, err)
			}
			return
		}
		if len(l.Hosts) > MaxHosts {
			t.Fatalf("%d hosts", len(l.Hosts))
		}
		for _, h := range l.Hosts {
			if h.Name == "" || h.Port < 1 || h.Port > 65535 || h.Slots < 0 || h.Slots > MaxSlots {
				t.Fatalf("Parse(%q) gave %+v", text, h)
			}
			again, err := Parse(h.Text)
			if err != nil || len(again.Hosts) != 1 || again.Hosts[0].Addr() != h.Addr() {
				t.Fatalf("Parse(%q) = %+v, %v, want %s again", h.Text, again, err, h.Addr())
			}
		}
	})
}

// TestWords: what --show-hosts prints, as distcc 3.4 does for the same lists.
func TestWords(t *testing.T) {
	for _, tt := range []struct {
		text    string
		words   []string
		refused bool
	}{
		{"localhost localhost/3 127.0.0.1", []string{"localhost", "localhost/3", "127.0.0.1"}, false},
		{"--randomize a,down b:3632/4,lzo,cpp --localslots=3 [::1]:33/2 a/2:99", []string{"a,down", "b:3632/4,lzo,cpp", "[::1]:33/2", "a/2:99"}, false},
		{"a # b\n \tc a a:7632\r\n#d\n", []string{"a", "c", "a", "a:7632"}, false},
		{"joe@a/3:/bin/distccd,lzo b", []string{"joe@a/3:/bin/distccd,lzo", "b"}, true},
		{"+zeroconf b", []string{"+zeroconf", "b"}, true},
		{"mdns+ file+/x", []string{"mdns+", "file+/x"}, false},
	} {
		l, err := Parse(tt.text)
		var e *Error
		if !reflect.DeepEqual(l.Words, tt.words) || errors.As(err, &e) != tt.refused || tt.refused && !e.Distcc {
			t.Errorf("Parse(%q): words %q, %v; want %q", tt.text, l.Words, err, tt.words)
		}
	}
	if l, _ := parse("127.0.0.1 a", true); !reflect.DeepEqual(l.Words, []string{"a"}) {
		t.Errorf("of distcc's file: %q", l.Words)
	}
	var e *Error
	if _, err := Parse("a:x"); !errors.As(err, &e) || e.Distcc {
		t.Errorf("a port that is none: %v", err)
	}
}
