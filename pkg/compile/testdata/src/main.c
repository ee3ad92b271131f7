#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "once.h"
#include "sub/deep.h"
#include "once.h"

#define SQUARE(x) ((x) * (x))
#define STR(x) #x
#define XSTR(x) STR(x)
#define GLUE(a, b) a##b
#define XGLUE(a, b) GLUE(a, b)
#define UNIQUE XGLUE(unique_, __COUNTER__)
#define LOG(fmt, ...) fprintf(stderr, "%s:%d: " fmt "\n", __FILE__, __LINE__, ##__VA_ARGS__)
#ifndef LEVEL
#define LEVEL 1
#endif
#if LEVEL > 2 && defined(EXTRA)
#error "never"
#endif

/* a comment that ends
   here */ static int UNIQUE = 1, UNIQUE = 2; // and one to the end

static int pushed = LEVEL, popped = 1;

_Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wunused-function\"")
static int hidden(void) { return unique_0 + unique_1; }
_Pragma("GCC diagnostic pop")

#line 500 "other.c"
static const char *where(void) { return __FILE__ ":" XSTR(__LINE__); }
#line 45 "main.c"

static int sp\
lit(int a) { return a; }

int vsum(int n, ...)
{
	va_list ap;
	int sum = 0;
	va_start(ap, n);
	while (n-- > 0)
		sum += va_arg(ap, int);
	va_end(ap);
	return sum;
}

int classify(int c)
{
	switch (c) {
	case 1:
		c = SQUARE(c + 1);
		/* FALLTHROUGH */
	case 2:
		c += split(c);
		break;
	default:
		LOG("odd %d", c);
	}
	return c;
}

int shift(int a, int b, int *p)
{
	assert(p && "pointer");
	p[b] = SQUARE(a << b) / (b - 1);
	return p[a] + DEEP(a) + ONCE;
}

int main(int argc, char **argv)
{
	char buffer[64];
	snprintf(buffer, sizeof buffer, "%s", argc > 1 ? argv[1] : where());
	printf("%s %d %d %d %zu %s\n", buffer, pushed, popped, hidden(), strlen(buffer), INCLUDED_FROM);
	return classify(argc);
}
