// Package telemetry has what a program shows of itself: its log, metrics, status page, and notifications to
// the service manager that started it.
package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
)

// Log is a program's log: slog's text form, to a file or to stderr.
type Log struct {
	*slog.Logger
	level slog.LevelVar
	out   *logFile
}

// OpenLog opens a log. path "" means stderr; level is "debug", "info", "warn" or "error". The file is
// created with mode 0640 and appended to.
func OpenLog(path, level string) (*Log, error) {
	l := &Log{out: &logFile{path: path, w: os.Stderr}}
	if err := l.SetLevel(level); err != nil {
		return nil, err
	}
	if err := l.Reopen(); err != nil {
		return nil, err
	}
	l.Logger = slog.New(slog.NewTextHandler(l.out, &slog.HandlerOptions{Level: &l.level}))
	return l, nil
}

// SetLevel changes how much is logged, from now on.
func (l *Log) SetLevel(level string) error {
	var v slog.Level
	switch level {
	case "debug":
		v = slog.LevelDebug
	case "info":
		v = slog.LevelInfo
	case "warn":
		v = slog.LevelWarn
	case "error":
		v = slog.LevelError
	default:
		return fmt.Errorf("log level %q is none of debug, info, warn, error", level)
	}
	l.level.Set(v)
	return nil
}

// Reopen opens the file again, after it has been moved away. On error the old one stays in use.
func (l *Log) Reopen() error { return l.out.reopen() }

// Close closes the file; what is logged later goes to stderr.
func (l *Log) Close() error { return l.out.close() }

// logFile is a file that can be replaced between two writes. slog writes each record at once, so that
// programs may share a file.
type logFile struct {
	path string // empty = stderr
	tail tail   // of what is written, for readers

	mu sync.Mutex
	f  *os.File  // guarded by mu
	w  io.Writer // guarded by mu
}

func (l *logFile) Write(p []byte) (int, error) {
	l.tail.add(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func (l *logFile) reopen() error {
	if l.path == "" {
		return nil
	}
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return fmt.Errorf("log file: %w", err)
	}
	l.mu.Lock()
	old := l.f
	l.f, l.w = f, f
	l.mu.Unlock()
	if old != nil {
		old.Close()
	}
	return nil
}

func (l *logFile) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	err := l.f.Close()
	l.f, l.w = nil, os.Stderr
	return err
}
