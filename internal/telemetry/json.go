package telemetry

import (
	"encoding/json"
	"net/http"
)

// JSON returns a page that shows a value, as it is at the time, as indented JSON.
func JSON(value func() any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		body, err := json.MarshalIndent(value(), "", "  ")
		if err != nil {
			plain(w, http.StatusInternalServerError, err.Error())
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(append(body, '\n')) // the reader may have gone
	}
}
