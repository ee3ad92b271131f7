//go:build !race

#include "textflag.h"

// func start()
//
// The kernel's stack is argc, argv, 0, environment, 0, auxiliary vector. Go code looks for its goroutine in R14, which the way from
// assembly loads from thread-local storage, and there for the end of its stack: so both are given something to look at. The
// end of the stack is 0, so no function tries to get a larger one. The runtime sets up its own later.
TEXT ·start(SB), NOSPLIT|NOFRAME|TOPFRAME, $0-0
	MOVQ	SP, ·stack(SB)
	LEAQ	·goroutine(SB), AX
	MOVQ	AX, ·local(SB)
	LEAQ	·local+8(SB), SI
	MOVQ	$0x1002, DI	// ARCH_SET_FS
	MOVQ	$158, AX	// arch_prctl
	SYSCALL
	SUBQ	$64, SP
	CALL	·run(SB)
	MOVQ	·stack(SB), SP
	JMP	github·com∕rdistcc∕rdistcc∕internal∕entrypoint·short(SB)

// func system(trap, a, b, c, d, e uintptr) int
TEXT ·system(SB), NOSPLIT, $0-56
	MOVQ	trap+0(FP), AX
	MOVQ	a+8(FP), DI
	MOVQ	b+16(FP), SI
	MOVQ	c+24(FP), DX
	MOVQ	d+32(FP), R10
	MOVQ	e+40(FP), R8
	SYSCALL
	MOVQ	AX, ret+48(FP)
	RET
