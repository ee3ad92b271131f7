#include "go_asm.h"
#include "textflag.h"

// See entrypoint.go. The kernel's stack is argc, argv, 0, environment, 0, auxiliary vector.

#define TIMER_SLACK \
	MOVD	$167, R8	/* prctl */ \
	MOVD	$30, R0	/* PR_GET_TIMERSLACK */ \
	SVC \
	MOVD	R0, ·slackBefore(SB) \
	MOVD	$167, R8 \
	MOVD	$29, R0	/* PR_SET_TIMERSLACK */ \
	MOVD	$const_slack, R1 \
	SVC

TEXT ·long(SB), NOSPLIT|NOFRAME|TOPFRAME, $0-0
	TIMER_SLACK
	B	_rt0_arm64_linux(SB)

TEXT ·short(SB), NOSPLIT|NOFRAME|TOPFRAME, $0-0
	TIMER_SLACK
	MOVD	$0x4f525058414d4f47, R3	// "GOMAXPRO"
	MOVD	RSP, R4
	MOVD	0(R4), R5	// argc
	ADD	$16, R4, R6
	ADD	R5<<3, R6	// environment
next:
	MOVD.P	8(R6), R7
	CBZ	R7, insert
	MOVD	0(R7), R9
	CMP	R3, R9
	BNE	next
	B	_rt0_arm64_linux(SB)	// the user has said how many

insert:
	// Two words, as the stack is aligned to 16 bytes.
	SUB	$16, R4, R6
	MOVD	R6, RSP
	ADD	$2, R5	// argc, and the 0 behind argv
move:
	MOVD.P	8(R4), R7
	MOVD.P	R7, 8(R6)
	SUBS	$1, R5
	BNE	move
	MOVD	$·oneProcessor(SB), R7
	MOVD	R7, 0(R6)
	MOVD	R7, 8(R6)
	MOVD	$1, R7
	MOVD	R7, ·inserted(SB)
	B	_rt0_arm64_linux(SB)

DATA	·oneProcessor+0(SB)/8, $"GOMAXPRO"
DATA	·oneProcessor+8(SB)/8, $"CS=1\x00\x00\x00\x00"
GLOBL	·oneProcessor(SB), RODATA|NOPTR, $16
