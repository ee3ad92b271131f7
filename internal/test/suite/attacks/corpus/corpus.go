// Package corpus holds the texts of the hostile jobs; the head of internal/test/suite/attacks'
// corpus_test.go says what they look like.
package corpus

import "embed"

// Texts are the files, CLASS.txt each, and sources.txt.
//
//go:embed *.txt
var Texts embed.FS
