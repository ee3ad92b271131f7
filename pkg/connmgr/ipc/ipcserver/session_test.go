package ipcserver

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// TestSessionIsWatched: Next returns a message that comes during a Watch, and the context ends if the wrapper
// goes away instead.
func TestSessionIsWatched(t *testing.T) {
	client, server := pair(t, serve(t, filepath.Join(t.TempDir(), "s")))
	s := NewSession(t.Context(), server, slog.New(slog.DiscardHandler))
	s.Watch()
	s.Watch() // does not start a second reader
	if err := client.Send((&ipc.Finish{TotalUS: 7}).Append(nil)); err != nil {
		t.Fatal(err)
	}
	if f, ok := s.Next().(*ipc.Finish); !ok || f.TotalUS != 7 {
		t.Errorf("got %+v, want the Finish that came meanwhile", f)
	}
	s.Watch()
	if s.Context().Err() != nil {
		t.Error("the context has ended with the wrapper there")
	}
	client.Close()
	<-s.Context().Done()
	if m := s.Next(); m != nil {
		t.Errorf("got %+v of a wrapper that is gone", m)
	}
	s.End()
}

// TestSessionOfAnotherVersion: a frame of another version gives a message of its own, and a kind that
// wrappers do not send ends the session.
func TestSessionOfAnotherVersion(t *testing.T) {
	client, server := pair(t, serve(t, filepath.Join(t.TempDir(), "s")))
	s := NewSession(t.Context(), server, slog.New(slog.DiscardHandler))
	defer s.End()
	defer client.Close()
	if err := client.Send((&ipc.Control{Version: ipc.Version + 1, Args: []string{"status"}}).Append(nil)); err != nil {
		t.Fatal(err)
	}
	if m := s.Next(); m != (OtherVersion{}) {
		t.Errorf("got %T %+v, want OtherVersion", m, m)
	}
	if err := client.Send(ipc.AppendBare(nil, ipc.KindWait)); err != nil {
		t.Fatal(err)
	}
	if m := s.Next(); m != nil {
		t.Errorf("got %T %+v for a Wait", m, m)
	}
}
