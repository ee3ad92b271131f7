/* A stand-in for gcc: speaks as much of its driver's interface as wrapper, manager
 * and daemon use, and instead of compiling does what a comment in the source says:
 *
 *   stand-in: sleep MS cpu MS memory KIB output BYTES exit STATUS
 *
 * in any order, none of them needed. The object's first line names the FNV-1a hash of
 * the source; what follows is made of that hash, so that every run gives the same. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define VERSION "10.2.0"
#define TARGET "x86_64-stand_in-linux-gnu"

static char *text;
static size_t length;

static void fail(const char *what, const char *name) {
	fprintf(stderr, "gcc: error: %s: %s: %s\n", name, what, strerror(errno));
	exit(1);
}

static void load(const char *name) {
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		fail("open", name);
	for (size_t room = 0;;) {
		if (length == room && !(text = realloc(text, (room = room ? 2 * room : 1 << 16) + 1)))
			fail("read", name);
		ssize_t n = read(fd, text + length, room - length);
		if (n < 0)
			fail("read", name);
		if (n == 0)
			break;
		length += n;
	}
	text[length] = 0;
	close(fd);
}

/* The number behind a word of the comment, or 0. */
static long told(const char *word) {
	const char *p = strstr(text, "stand-in:");
	if (!p)
		return 0;
	char line[256];
	snprintf(line, sizeof line, "%.*s", (int)strcspn(p, "\n"), p);
	p = strstr(line, word);
	return p ? atol(p + strlen(word)) : 0;
}

static double seconds(clockid_t clock) {
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* What a compile takes: memory for as long as it runs, time on and off the processor. */
static void work(void) {
	size_t memory = (size_t)told(" memory ") << 10;
	if (memory) {
		char *m = mmap(NULL, memory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (m == MAP_FAILED) {
			fprintf(stderr, "cc1: out of memory allocating %zu bytes\n", memory);
			exit(1);
		}
		for (size_t i = 0; i < memory; i += 4096)
			m[i] = 1;
	}
	double cpu = told(" cpu ") / 1e3;
	while (seconds(CLOCK_PROCESS_CPUTIME_ID) < cpu)
		;
	long ms = told(" sleep ");
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};
	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

static void object(const char *name) {
	uint64_t hash = 0xcbf29ce484222325;
	for (size_t i = 0; i < length; i++)
		hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3;
	FILE *f = fopen(name, "we");
	if (!f)
		fail("open", name);
	long left = told(" output ") - fprintf(f, "object %016lx\n", (unsigned long)hash);
	for (; left > 0; left -= 8) {
		hash ^= hash << 13, hash ^= hash >> 7, hash ^= hash << 17;
		fwrite(&hash, 1, left < 8 ? left : 8, f);
	}
	if (fclose(f))
		fail("write", name);
}

/* The rule for make: the source, and the headers that its lines name in quotes, which include nothing themselves. */
static void rule(const char *source) {
	static const char include[] = "#include \"";
	load(source);
	printf("x.o: %s", source);
	for (char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, include, sizeof include - 1)) {
			line += sizeof include - 1;
			printf(" %.*s", (int)strcspn(line, "\"\n"), line);
		}
	}
	puts("");
}

static void says(const char *option) {
	char self[4096] = "";
	if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
		fail("read", "/proc/self/exe");
	if (!strcmp(option, "cc1") || !strcmp(option, "cc1plus") || !strcmp(option, "as"))
		puts(self);
	else
		puts(option);
}

int main(int argc, char **argv) {
	const char *source = NULL, *out = NULL;
	int list = 0, text_only = 0, object_only = 0;
	for (int i = 1; i < argc; i++) {
		const char *a = argv[i];
		if (!strcmp(a, "-###")) {
			return 0;
		} else if (!strcmp(a, "-v") || !strcmp(a, "--version")) {
			fprintf(a[1] == 'v' ? stderr : stdout, "Target: " TARGET "\ngcc version " VERSION " (stand-in)\n");
			return 0;
		} else if (!strcmp(a, "-dumpmachine")) {
			return puts(TARGET) < 0;
		} else if (!strcmp(a, "-dumpversion") || !strcmp(a, "-dumpfullversion")) {
			return puts(VERSION) < 0;
		} else if (!strncmp(a, "-print-prog-name=", 17)) {
			says(a + 17);
			return 0;
		} else if (!strcmp(a, "-print-libgcc-file-name")) {
			return puts("libgcc.a") < 0;
		} else if (!strcmp(a, "-o") && i + 1 < argc) {
			out = argv[++i];
		} else if (!strcmp(a, "-x") && i + 1 < argc) {
			i++;
		} else if (!strcmp(a, "-M")) {
			list = 1;
		} else if (!strcmp(a, "-E")) {
			text_only = 1;
		} else if (!strcmp(a, "-c") || !strcmp(a, "-S")) {
			object_only = 1;
		} else if (a[0] != '-') {
			source = a;
		}
	}
	if (!source) {
		fprintf(stderr, "gcc: fatal error: no input files\n");
		return 1;
	}
	if (list) {
		rule(source);
		return 0;
	}
	load(source);
	if (text_only) {
		FILE *f = out ? fopen(out, "we") : stdout;
		return !f || fwrite(text, 1, length, f) != length || fflush(f);
	}
	if (!object_only) {
		fprintf(stderr, "gcc: fatal error: the stand-in does not link\n");
		return 1;
	}
	work();
	if (told(" exit ")) {
		fprintf(stderr, "%s:1:1: error: told to fail\n", source);
		return told(" exit ");
	}
	char name[4096];
	if (!out) {
		const char *base = strrchr(source, '/');
		snprintf(name, sizeof name - 2, "%s", base ? base + 1 : source);
		char *dot = strrchr(name, '.');
		strcpy(dot ? dot : name + strlen(name), ".o");
		out = name;
	}
	object(out);
	return 0;
}
