package sources

import "encoding/binary"

// token is a word that a scan looks for, about which the list of files says nothing.
type token uint8

const (
	tokTime         token = iota // __TIME__
	tokDate                      // __DATE__
	tokTimestamp                 // __TIMESTAMP__
	tokHasInclude                // __has_include, __has_include_next
	tokHasEmbed                  // __has_embed
	tokIncbin                    // .incbin
	tokAsmInclude                // .include
	tokDependency                // #pragma GCC dependency
	tokPCH                       // #pragma GCC pch_preprocess
	tokOnce                      // #pragma once
	tokImport                    // #import
	tokIncludeAlias              // #pragma include_alias
	tokSystem                    // #pragma GCC system_header
	numTokens
)

// tokenWords has for each token its text and the position of the window in it: seven bytes that are rare in
// headers.
var tokenWords = [numTokens]struct {
	text   string
	window int
}{
	tokTime:       {"__TIME__", 0},
	tokDate:       {"__DATE__", 0},
	tokTimestamp:  {"__TIMESTAMP__", 0},
	tokHasInclude: {"__has_include", 2},
	tokHasEmbed:   {"__has_embed", 2},
	tokIncbin:     {".incbin", 0},
	tokAsmInclude: {".include", 0},
	tokDependency: {"dependency", 3},
	tokPCH:        {"pch_preprocess", 0},
	tokOnce:       {"pragma once", 3},
	tokImport:     {"#import", 0},

	tokIncludeAlias: {"include_alias", 6},
	tokSystem:       {"system_header", 4},
}

// finder finds tokens. Wherever a window of seven bytes begins, it contains a whole word of four bytes at a
// multiple of four in the text. So only every fourth position is looked up, in a table of a few hashes, and
// only matches are compared.
type finder struct {
	table [1 << finderBits]uint8 // 1 + index in words, or 0
	words [4 * numTokens]finderWord
	n     int
}

const finderBits = 12

type finderWord struct {
	quad uint32
	next uint8 // 1 + index of the next one with the same hash
	tok  token
	at   uint8 // position of the word in the token's text
}

func finderHash(quad uint32) uint32 { return quad * 0x9e3779b1 >> (32 - finderBits) }

func (f *finder) init() {
	for t := range numTokens {
		w := &tokenWords[t]
		for k := range 4 {
			at := w.window + k
			quad := uint32(w.text[at]) | uint32(w.text[at+1])<<8 | uint32(w.text[at+2])<<16 | uint32(w.text[at+3])<<24
			h := finderHash(quad)
			f.words[f.n] = finderWord{quad: quad, next: f.table[h], tok: t, at: uint8(at)}
			f.n++
			f.table[h] = uint8(f.n)
		}
	}
}

// find calls hit with every position of a token in text, in order, until hit returns false. A token may be
// reported twice in a row.
func (f *finder) find(text []byte, hit func(t token, at int) bool) {
	for i := 0; i+4 <= len(text); i += 4 {
		// Eight bytes at a time, as long as there are as many.
		for i+8 <= len(text) {
			v := binary.LittleEndian.Uint64(text[i:])
			if f.table[finderHash(uint32(v))]|f.table[finderHash(uint32(v>>32))] != 0 {
				break
			}
			i += 8
		}
		for k := i; k < i+8 && k+4 <= len(text); k += 4 {
			quad := binary.LittleEndian.Uint32(text[k:])
			for e := f.table[finderHash(quad)]; e != 0; {
				w := &f.words[e-1]
				e = w.next
				if w.quad != quad {
					continue
				}
				start, word := k-int(w.at), tokenWords[w.tok].text
				if start >= 0 && len(text)-start >= len(word) && string(text[start:start+len(word)]) == word {
					if !hit(w.tok, start) {
						return
					}
				}
			}
		}
		i += 4 // two words were examined, so four more
	}
}
