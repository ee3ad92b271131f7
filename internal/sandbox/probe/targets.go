package probe

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
)

// Targets are what there is to reach. An empty or zero one is not tried, and so counts as refused: a caller
// that judges a report must set them all (NewHost makes them).
//
// Names are those of the host. The job's own directory is the working directory, its directory for temporary files is
// $TMPDIR.
type Targets struct {
	Token string // content of Secret

	Secret string // a file that the same user may read and write if nothing confines it
	Other  string // another runner's directory, with a file "source.c"
	Area   string // the work area's own directory
	Temp   string // a directory made in the host's /tmp
	VarTmp string // a directory made in /var/tmp
	Shm    string // a directory made in /dev/shm

	Root, Etc string // identities of the host's / and /etc
	Beside    string // of the directory that contains Toolchain; Args fills it in

	TCP4, TCP6     string // listening addresses, "127.0.0.1:9"
	UDP            string
	Unix, Abstract string // listening sockets: a path, and a name without its NUL

	Process int // a process of the same user, outside: sleeping, alone in its group
	ShmKey  int // of a System V segment, open to all
	Queue   string

	Toolchain string // a file that the compiler reads
	Program   string // one that it runs, which exits with 0 when given --version
}

// Args returns the targets as arguments of the program, NAME=VALUE.
func (t *Targets) Args() []string {
	if t.Toolchain != "" && t.Beside == "" {
		t.Beside = Identity(filepath.Dir(t.Toolchain))
	}
	var args []string
	v := reflect.ValueOf(t).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); !f.IsZero() {
			args = append(args, fmt.Sprintf("%s=%v", v.Type().Field(i).Name, f.Interface()))
		}
	}
	return args
}

// ParseTargets parses what Args returned.
func ParseTargets(args []string) (*Targets, error) {
	t := new(Targets)
	v := reflect.ValueOf(t).Elem()
	for _, a := range args {
		name, value, _ := strings.Cut(a, "=")
		f := v.FieldByName(name)
		if !f.IsValid() {
			return nil, fmt.Errorf("target %q: unknown target %s", a, name)
		}
		if f.Kind() == reflect.String {
			f.SetString(value)
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil {
			return nil, fmt.Errorf("target %q: %w", a, err)
		}
		f.SetInt(int64(n))
	}
	return t, nil
}
