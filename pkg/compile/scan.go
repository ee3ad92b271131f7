package compile

import "bytes"

// ScanText looks for what cannot travel in a text that the preprocessor wrote:
// it returns the word behind "not-reproducible:", or "". It errs on the side of
// compiling here.
func ScanText(text []byte) string {
	for _, t := range &telltales {
		if bytes.Contains(text, []byte(t.token)) {
			return t.what
		}
	}
	return ""
}

var telltales = [...]struct{ token, what string }{
	{"__TIME__", "time"}, // not "__TIME": the C library has macros that begin so
	{"__TIMESTAMP__", "time"},
	{"__DATE__", "time"},
	{"__BASE_FILE__", "base-file"},
	{".incbin", "incbin"},
	{".include", "incbin"},
	{"GCC pch_preprocess", "pch"},
	{"#embed", "embed"},
}
