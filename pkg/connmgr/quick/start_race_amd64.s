//go:build race

#include "textflag.h"

// The race detector's code needs a runtime from the first function on.
TEXT ·start(SB), NOSPLIT|NOFRAME|TOPFRAME, $0-0
	JMP	github·com∕rdistcc∕rdistcc∕internal∕entrypoint·short(SB)
