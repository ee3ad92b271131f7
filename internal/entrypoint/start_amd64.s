#include "go_asm.h"
#include "textflag.h"

// See entrypoint.go. The kernel's stack is argc, argv, 0, environment, 0, auxiliary vector.

#define TIMER_SLACK \
	MOVQ	$157, AX	/* prctl */ \
	MOVQ	$30, DI	/* PR_GET_TIMERSLACK */ \
	SYSCALL \
	MOVQ	AX, ·slackBefore(SB) \
	MOVQ	$157, AX \
	MOVQ	$29, DI	/* PR_SET_TIMERSLACK */ \
	MOVQ	$const_slack, SI \
	SYSCALL

TEXT ·long(SB), NOSPLIT|NOFRAME|TOPFRAME, $0-0
	TIMER_SLACK
	JMP	_rt0_amd64_linux(SB)

TEXT ·short(SB), NOSPLIT|NOFRAME|TOPFRAME, $0-0
	TIMER_SLACK
	MOVQ	$0x4f525058414d4f47, R8	// "GOMAXPRO"
	MOVQ	0(SP), CX
	LEAQ	16(SP)(CX*8), BX	// environment
next:
	MOVQ	0(BX), R9
	TESTQ	R9, R9
	JZ	insert
	ADDQ	$8, BX
	CMPQ	0(R9), R8
	JNE	next
	JMP	_rt0_amd64_linux(SB)	// the user has said how many

insert:
	// Two words, as the stack is aligned to 16 bytes.
	MOVQ	SP, SI
	SUBQ	$16, SP
	MOVQ	SP, DI
	ADDQ	$2, CX	// argc, and the 0 behind argv
	CLD
	REP
	MOVSQ
	LEAQ	·oneProcessor(SB), AX
	MOVQ	AX, 0(DI)
	MOVQ	AX, 8(DI)
	MOVQ	$1, ·inserted(SB)
	JMP	_rt0_amd64_linux(SB)

DATA	·oneProcessor+0(SB)/8, $"GOMAXPRO"
DATA	·oneProcessor+8(SB)/8, $"CS=1\x00\x00\x00\x00"
GLOBL	·oneProcessor(SB), RODATA|NOPTR, $16
