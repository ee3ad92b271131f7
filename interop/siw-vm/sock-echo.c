/*
 * sock-echo: an ordinary program of sockets, which knows nothing of RDMA.
 *
 *	sock-echo -l PORT                 serves one connection: sends back what it gets
 *	sock-echo HOST PORT BYTES         sends so much, and compares what comes back
 *
 * Both end the sending direction by shutdown, and print "BYTES bytes, sum SUM".
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static uint64_t bytes, sum = 14695981039346656037u; /* FNV-1a of what arrives */

static void die(const char *what)
{
	fprintf(stderr, "sock-echo: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void count(const unsigned char *p, ssize_t n)
{
	bytes += n;
	while (n-- > 0)
		sum = (sum ^ *p++) * 1099511628211u;
}

/* The bytes that a client sends: those of a linear congruential generator. */
static unsigned char next(uint32_t *x)
{
	*x = *x * 1664525 + 1013904223;
	return *x >> 24;
}

static void echo(int fd)
{
	static unsigned char buf[30000];
	ssize_t n, m, off;

	while ((n = recv(fd, buf, sizeof buf, 0)) > 0) {
		count(buf, n);
		for (off = 0; off < n; off += m)
			if ((m = send(fd, buf + off, n - off, 0)) <= 0)
				die("send");
	}
	if (n < 0)
		die("recv");
	if (shutdown(fd, SHUT_WR))
		die("shutdown");
}

static void compare(int fd, uint64_t total)
{
	static unsigned char out[7000], in[20000];
	uint32_t sx = 1, rx = 1;
	uint64_t sent = 0;
	ssize_t n, i, have = 0, at = 0;
	struct pollfd p = { .fd = fd };

	for (;;) {
		p.events = POLLIN | (sent < total ? POLLOUT : 0);
		if (poll(&p, 1, -1) < 0)
			die("poll");
		if (p.revents & POLLOUT && sent < total) {
			if (at == have) {
				have = sizeof out;
				if ((uint64_t)have > total - sent)
					have = total - sent;
				for (at = 0; at < have; at++)
					out[at] = next(&sx);
				at = 0;
			}
			n = send(fd, out + at, have - at, MSG_DONTWAIT);
			if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
				die("send");
			if (n > 0)
				at += n, sent += n;
			if (sent == total && shutdown(fd, SHUT_WR))
				die("shutdown");
		}
		if (p.revents & (POLLIN | POLLHUP | POLLERR)) {
			n = recv(fd, in, sizeof in, MSG_DONTWAIT);
			if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
				continue;
			if (n < 0)
				die("recv");
			if (n == 0)
				break;
			for (i = 0; i < n; i++)
				if (in[i] != next(&rx)) {
					fprintf(stderr, "sock-echo: byte %llu differs\n", (unsigned long long)(bytes + i));
					exit(1);
				}
			count(in, n);
		}
	}
	if (bytes != total) {
		fprintf(stderr, "sock-echo: the end after %llu bytes\n", (unsigned long long)bytes);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	int fd, lfd, one = 1, server = argc == 3 && !strcmp(argv[1], "-l");

	if (!server && argc != 4) {
		fprintf(stderr, "usage: sock-echo -l PORT | sock-echo HOST PORT BYTES\n");
		return 2;
	}
	a.sin_port = htons(atoi(argv[2]));
	if ((fd = socket(AF_INET, SOCK_STREAM, 0)) < 0)
		die("socket");
	if (server) {
		lfd = fd;
		setsockopt(lfd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
		if (bind(lfd, (struct sockaddr *)&a, sizeof a) || listen(lfd, 1))
			die("listen");
		if ((fd = accept(lfd, NULL, NULL)) < 0)
			die("accept");
		echo(fd);
		close(lfd);
	} else {
		inet_pton(AF_INET, argv[1], &a.sin_addr);
		if (connect(fd, (struct sockaddr *)&a, sizeof a))
			die("connect");
		compare(fd, strtoull(argv[3], NULL, 10));
	}
	close(fd);
	printf("%llu bytes, sum %016llx\n", (unsigned long long)bytes, (unsigned long long)sum);
	return 0;
}
