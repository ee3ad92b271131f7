// Package crsh speaks the protocol of ccache's storage helpers: programs that keep values for ccache, each of which
// serves a Unix socket (doc/remote_storage_helper_spec.md of ccache, version 1).
//
//	Server  serves one connection with a Values
//	Client  asks over one connection
//	Started is what a helper is told when it is started
//
// A connection begins with the server's greeting. Then each request has one answer. Numbers are in the byte order of
// the machine. Keys have at most 255 bytes, messages too; values have a length of 64 bits, so both ends bound what
// they accept, and values travel through them without being collected.
package crsh

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Version is the version of the protocol.
const Version = 1

// Kinds of requests.
const (
	reqGet = iota
	reqPut
	reqRemove
	reqStop
	reqInfo
	reqExists
)

// Answers.
const (
	ansOK = iota
	ansNoop
	ansErr
)

// Capabilities, as a greeting lists them.
const (
	capValues = iota // get, put, remove
	capInfo
	capExists
)

// overwrite is a flag of a put.
const overwrite = 1

// MaxMessage bounds a key and a message, in bytes.
const MaxMessage = 255

// ErrMissing says that there is no value for a key.
var ErrMissing = errors.New("no such value")

// Refusal is an answer that says why a request was not carried out. The connection goes on.
type Refusal string

func (r Refusal) Error() string { return string(r) }

// brief returns a message as it may be sent and logged: one line of UTF-8, of at most MaxMessage bytes.
func brief(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s)
	for len(s) > MaxMessage {
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
	}
	return s
}

// appendMessage appends a message with its length.
func appendMessage(b []byte, s string) []byte {
	s = brief(s)
	return append(append(b, byte(len(s))), s...)
}

func appendKey(b []byte, kind byte, key []byte) []byte {
	return append(append(b, kind, byte(len(key))), key...)
}

// readSmall reads a length in one byte, and so many bytes.
func readSmall(r io.Reader) ([]byte, error) {
	var n [1]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return nil, err
	}
	b := make([]byte, n[0])
	_, err := io.ReadFull(r, b)
	return b, err
}

func readByte(r io.Reader) (byte, error) {
	var b [1]byte
	_, err := io.ReadFull(r, b[:])
	return b[0], err
}

func readSize(r io.Reader) (uint64, error) {
	var b [8]byte
	_, err := io.ReadFull(r, b[:])
	return binary.NativeEndian.Uint64(b[:]), err
}

// Started is what a helper is told by its environment.
type Started struct {
	Endpoint   string        // path of the socket that it is to make
	URL        string        // of the store
	Idle       time.Duration // it ends after so long without a connection; 0: never
	Attributes []Attribute
}

// Attribute is a setting of a helper's own.
type Attribute struct{ Name, Value string }

// mostAttributes bounds the attributes of a helper.
const mostAttributes = 64

// Variables of a helper's environment.
const (
	varEndpoint = "CRSH_IPC_ENDPOINT"
	varURL      = "CRSH_URL"
	varIdle     = "CRSH_IDLE_TIMEOUT" // seconds
	varCount    = "CRSH_NUM_ATTR"
	varName     = "CRSH_ATTR_KEY_"
	varValue    = "CRSH_ATTR_VALUE_"
)

// Environ returns the variables that tell a helper s.
func (s *Started) Environ() []string {
	all := []string{
		varEndpoint + "=" + s.Endpoint, varURL + "=" + s.URL,
		varIdle + "=" + strconv.Itoa(int(s.Idle/time.Second)), varCount + "=" + strconv.Itoa(len(s.Attributes)),
	}
	for i, a := range s.Attributes {
		n := strconv.Itoa(i)
		all = append(all, varName+n+"="+a.Name, varValue+n+"="+a.Value)
	}
	return all
}

// ReadStarted reads what Environ has written. endpoint is set even if something else is wrong: a helper that does
// not listen costs each of ccache's compiles ten seconds, so it had better listen and say what is wrong.
func ReadStarted(getenv func(string) string) (s Started, err error) {
	s.Endpoint, s.URL = getenv(varEndpoint), getenv(varURL)
	number := func(name string, most int) int {
		text := getenv(name)
		if text == "" {
			return 0
		}
		n, e := strconv.Atoi(text)
		if e != nil || n < 0 || n > most {
			err = errors.Join(err, fmt.Errorf("%s=%.40q: want a whole number up to %d", name, text, most))
			return 0
		}
		return n
	}
	s.Idle = time.Duration(number(varIdle, 1<<31-1)) * time.Second
	for i := range number(varCount, mostAttributes) {
		n := strconv.Itoa(i)
		s.Attributes = append(s.Attributes, Attribute{getenv(varName + n), getenv(varValue + n)})
	}
	return s, err
}
