package main

import (
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// record holds what is known of one command, for the report, the trace and the manager.
type record struct {
	start    time.Time
	compiler string // real path
	source   string
	form     string // form that the host got: "sources", "text", or empty
	output   string
	inputs   string // how the files read were found: "scan", "memo", "list", "text", or empty
	files    int    // number of files read, as far as known

	remote bool
	host   string
	reason string // set when the job was not remote
	exit   int

	sourceBytes uint64 // of preprocessed text
	lease       time.Duration
	preprocess  time.Duration
	submit      time.Duration // Submit to Result
	place       time.Duration
	local       time.Duration
	cpu         time.Duration // of what ran here, with its children
	total       time.Duration
	result      ipc.Result // its times and byte counts, where there was a result
}

// write appends the record to RDISTCC_REPORT and RDISTCC_TRACE. A file that
// cannot be written costs a line, not the build.
func (r *record) write(s *settings) {
	if s.Report != "" {
		if err := appendFile(s.Report, append(oneLine(r.where()), '\n')); err != nil {
			s.say(1, "RDISTCC_REPORT=", s.Report, ": ", err.Error())
		}
	}
	if s.Trace != "" {
		if err := appendFile(s.Trace, r.appendJSON(nil)); err != nil {
			s.say(1, "RDISTCC_TRACE=", s.Trace, ": ", err.Error())
		}
	}
}

// where returns the report's line.
func (r *record) where() string {
	if !r.remote {
		return "local:" + r.reason
	}
	return r.result.Where()
}

// tier returns the tier of the cache that the result is from, or "".
func (r *record) tier() string {
	if !r.remote {
		return ""
	}
	return r.result.Cached
}

// twice reports whether a host compiled the source before it was compiled here.
func (r *record) twice() bool {
	return !r.remote && (r.result.Host != "" || strings.HasPrefix(r.reason, reason.Doubt))
}

// oneLine keeps a reason that quotes an option on a single line.
func oneLine(s string) []byte {
	b := []byte(s)
	for i := range b {
		if b[i] == '\n' || b[i] == '\r' {
			b[i] = ' '
		}
	}
	return b
}

// appendJSON adds the record as one object on a line of its own. Times are
// milliseconds, "start" counts from 1970.
func (r *record) appendJSON(b []byte) []byte {
	where, _, _ := strings.Cut(r.where(), ":")
	for i, f := range [...]struct{ name, value string }{
		{`{"id":`, itoa(syscall.Getpid()) + "-" + itoa(int(r.start.UnixMicro()))}, {`,"compiler":`, r.compiler}, {`,"source":`, r.source}, {`,"output":`, r.output},
		{`,"where":`, where}, {`,"host":`, r.host}, {`,"reason":`, r.reason}, {`,"form":`, r.form}, {`,"inputs":`, r.inputs}, {`,"cache":`, r.tier()},
	} {
		if i == 6 && r.remote {
			f.value = ""
		}
		b = appendJSONString(append(b, f.name...), f.value)
	}
	if r.twice() {
		b = append(b, `,"twice":true`...)
	}
	b = strconv.AppendInt(append(b, `,"exit":`...), int64(r.exit), 10)
	b = strconv.AppendInt(append(b, `,"files":`...), int64(r.files), 10)
	b = strconv.AppendUint(append(b, `,"sent_files":`...), uint64(r.result.SentFiles), 10)
	b = strconv.AppendUint(append(b, `,"bytes_sent":`...), r.result.BytesOut, 10)
	b = appendMS(append(b, `,"start":`...), time.Duration(r.start.UnixNano()))
	b = strconv.AppendUint(append(b, `,"attempts":`...), uint64(r.result.Attempts), 10)
	b = strconv.AppendUint(append(b, `,"bytes":{"source":`...), r.sourceBytes, 10)
	b = strconv.AppendUint(append(b, `,"out":`...), r.result.BytesOut, 10)
	b = strconv.AppendUint(append(b, `,"in":`...), r.result.BytesIn, 10)
	us := func(n uint32) time.Duration { return time.Duration(n) * time.Microsecond }
	b = append(b, `},"ms":`...)
	for i, p := range [...]struct {
		name string
		d    time.Duration
	}{
		{"lease", r.lease}, {"preprocess", r.preprocess}, {"submit", r.submit},
		{"credit", us(r.result.CreditUS)}, {"write", us(r.result.WriteUS)}, {"queue", us(r.result.QueueUS)},
		{"compile", us(r.result.CompileUS)}, {"return", us(r.result.ReturnUS)},
		{"place", r.place}, {"local", r.local}, {"total", r.total},
	} {
		if i == 0 {
			b = append(b, '{')
		} else {
			b = append(b, ',')
		}
		b = appendMS(append(append(append(b, '"'), p.name...), '"', ':'), p.d)
	}
	return append(b, "}}\n"...)
}

func appendMS(b []byte, d time.Duration) []byte {
	return strconv.AppendFloat(b, float64(d)/float64(time.Millisecond), 'f', 3, 64)
}

// appendJSONString quotes s by RFC 8259 §7. File names need not be valid UTF-8 but JSON
// must be, so an invalid byte becomes U+FFFD.
func appendJSONString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < 0x20 || r == 0x7f:
			b = append(b, '\\', 'u', '0', '0', hex[r>>4], hex[r&0xf])
		default:
			b = utf8.AppendRune(b, r) // range gives RuneError for a bad byte
		}
	}
	return append(b, '"')
}
