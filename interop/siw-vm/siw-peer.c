/*
 * siw-peer: a small verbs program for the guest. It drives single RDMA
 * operations through rdma_cm, in a given order, so that a peer (another
 * siw-peer, or an iWARP implementation under test) can be checked against them.
 *
 *   siw-peer -s ADDR -p PORT [-n CONNECTIONS] [-x]     server; -x: reject
 *   siw-peer -c ADDR -p PORT [-S BUFSIZE] OP...        client
 *
 * Both sides register a buffer filled with pattern(seed 1) and carry
 *   be64 address, be32 rkey, be32 length, be32 second rkey, be32 zero
 * as their connection private data (the second rkey is of a region that only
 * exists to be invalidated; libsiw does not tell when it is). The client then does its OPs one after the other:
 *
 *   send:N  sendse:N       Send, Send with Solicited Event (N bytes)
 *   sendinv                Send with Invalidate of the server's second rkey
 *   write:N[:SEED]         RDMA Write N bytes of pattern(SEED) to the server,
 *                          Send "V N SEED", wait for its verdict (a Send)
 *   read:N                 RDMA Read N bytes, compare with what must be there
 *   swrite:N  sread:N      have the server RDMA Write to / Read from us
 *   reply:N                have the server Send N bytes
 *   csend:N[:SEED]         Send N bytes of pattern(SEED), which the server checks
 *   fread:N[:SEED]         have the server fill its buffer anew, then RDMA Read it
 *   reads:K:N              K RDMA Reads of N bytes each, posted together
 *   mixed:MB[:SEED]        all of these with random sizes, until MB megabytes have moved
 *   badwrite  badread      use a wrong rkey;  oob: write past the end
 *   stream:MB              write:bufsize with changing seeds, MB megabytes
 *   sleep:MS
 *
 * Commands to the server are Sends of text: "V n seed" (check my write), "W n
 * seed" (write to me), "R n seed" (read from me and check), "S n" (send to me),
 * "C n seed" (check the next message), "F n seed" (fill your buffer). Anything else
 * is only counted. The answer to all but S is "ok" or "bad".
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NRECV 16
#define RSZ 65536

struct info {
	uint64_t addr;
	uint32_t rkey, len, rkey2, zero;
} __attribute__((packed));

struct conn {
	struct rdma_cm_id *id;
	uint8_t *buf, *tmp, *rbuf, *sbuf;
	size_t len;
	struct ibv_mr *mr, *mr2, *tmr, *rmr, *smr;
	struct info peer;
	int have_peer;
};

static int quiet;

static void pattern(uint8_t *p, size_t n, uint32_t seed)
{
	uint64_t x = 0x9e3779b97f4a7c15ull * (seed + 1), le;

	for (size_t i = 0; i < n; i += 8) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		le = htole64(x);
		memcpy(p + i, &le, n - i < 8 ? n - i : 8);
	}
}

static int check(const uint8_t *p, size_t n, uint32_t seed, uint8_t *tmp)
{
	pattern(tmp, n, seed);
	return memcmp(p, tmp, n) == 0;
}

static int setup(struct conn *c, size_t len)
{
	int acc = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

	c->len = len;
	if (posix_memalign((void **)&c->buf, 4096, len) || posix_memalign((void **)&c->tmp, 4096, len) ||
	    posix_memalign((void **)&c->rbuf, 4096, NRECV * RSZ) || posix_memalign((void **)&c->sbuf, 4096, RSZ))
		return -1;
	pattern(c->buf, len, 1);
	c->mr = ibv_reg_mr(c->id->pd, c->buf, len, acc);
	c->mr2 = ibv_reg_mr(c->id->pd, c->buf, len, acc);
	c->tmr = ibv_reg_mr(c->id->pd, c->tmp, len, acc);
	c->rmr = ibv_reg_mr(c->id->pd, c->rbuf, NRECV * RSZ, IBV_ACCESS_LOCAL_WRITE);
	c->smr = ibv_reg_mr(c->id->pd, c->sbuf, RSZ, IBV_ACCESS_LOCAL_WRITE);
	if (!c->mr || !c->mr2 || !c->tmr || !c->rmr || !c->smr) {
		perror("ibv_reg_mr");
		return -1;
	}
	for (long i = 0; i < NRECV; i++)
		if (rdma_post_recv(c->id, (void *)i, c->rbuf + i * RSZ, RSZ, c->rmr))
			return -1;
	return 0;
}

static void teardown(struct conn *c)
{
	struct ibv_mr *m[] = { c->mr, c->mr2, c->tmr, c->rmr, c->smr };

	rdma_destroy_qp(c->id);
	for (size_t i = 0; i < sizeof(m) / sizeof(m[0]); i++)
		if (m[i])
			ibv_dereg_mr(m[i]);
	free(c->buf);
	free(c->tmp);
	free(c->rbuf);
	free(c->sbuf);
	rdma_destroy_id(c->id);
}

static void myinfo(struct conn *c, struct info *i)
{
	i->addr = htobe64((uintptr_t)c->buf);
	i->rkey = htonl(c->mr->rkey);
	i->len = htonl(c->len);
	i->rkey2 = htonl(c->mr2->rkey);
	i->zero = 0;
}

static void peerinfo(struct conn *c, const struct rdma_conn_param *p)
{
	struct info i;

	if (p->private_data_len < sizeof(i)) {
		printf("peer gave %d bytes of private data\n", p->private_data_len);
		return;
	}
	memcpy(&i, p->private_data, sizeof(i));
	c->peer.addr = be64toh(i.addr);
	c->peer.rkey = ntohl(i.rkey);
	c->peer.len = ntohl(i.len);
	c->peer.rkey2 = ntohl(i.rkey2);
	c->have_peer = 1;
	printf("peer buffer %#" PRIx64 " rkey %#x len %u rkey2 %#x; ord %d ird %d\n", c->peer.addr, c->peer.rkey,
	       c->peer.len, c->peer.rkey2, p->initiator_depth, p->responder_resources);
}

static int reap(struct ibv_cq *cq, struct ibv_wc *wc, const char *what, int ms)
{
	struct timespec t0, t;
	int n;

	clock_gettime(CLOCK_MONOTONIC, &t0);
	while ((n = ibv_poll_cq(cq, 1, wc)) == 0) {
		clock_gettime(CLOCK_MONOTONIC, &t);
		if ((t.tv_sec - t0.tv_sec) * 1000 + (t.tv_nsec - t0.tv_nsec) / 1000000 > ms) {
			printf("%s: timed out\n", what);
			return -1;
		}
		usleep(20);
	}
	if (n < 0)
		return -1;
	if (wc->status) {
		printf("%s: %s (%d)\n", what, ibv_wc_status_str(wc->status), wc->status);
		return -1;
	}
	return 0;
}

static int post(struct conn *c, enum ibv_wr_opcode op, void *p, size_t n, struct ibv_mr *mr, uint64_t raddr,
		uint32_t rkey, int flags, const char *what)
{
	struct ibv_sge sge = { (uintptr_t)p, n, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED | flags };
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	if (op == IBV_WR_SEND_WITH_INV)
		wr.invalidate_rkey = rkey;
	wr.wr.rdma.remote_addr = raddr;
	wr.wr.rdma.rkey = rkey;
	if (op == IBV_WR_SEND_WITH_INV)
		wr.invalidate_rkey = rkey;
	if (ibv_post_send(c->id->qp, &wr, &bad)) {
		printf("%s: post failed: %s\n", what, strerror(errno));
		return -1;
	}
	return reap(c->id->send_cq, &wc, what, 20000);
}

static int sendtext(struct conn *c, const char *s)
{
	strcpy((char *)c->sbuf, s);
	return post(c, IBV_WR_SEND, c->sbuf, strlen(s), c->smr, 0, 0, 0, s);
}

/* The next message; copied out, and its buffer posted again. */
static int getmsg(struct conn *c, char *out, size_t max, int ms)
{
	struct ibv_wc wc;
	long i;
	size_t n;

	if (reap(c->id->recv_cq, &wc, "recv", ms))
		return -1;
	i = wc.wr_id;
	n = wc.byte_len < max - 1 ? wc.byte_len : max - 1;
	memcpy(out, c->rbuf + i * RSZ, n);
	out[n] = 0;
	if (wc.wc_flags & IBV_WC_WITH_INV)
		printf("peer invalidated rkey %#x\n", wc.invalidated_rkey);
	rdma_post_recv(c->id, (void *)i, c->rbuf + i * RSZ, RSZ, c->rmr);
	return wc.byte_len;
}

static int verdict(struct conn *c, const char *op)
{
	char m[64];

	if (getmsg(c, m, sizeof(m), 20000) < 0)
		return -1;
	if (!quiet || strcmp(m, "ok"))
		printf("%s: %s\n", op, m);
	return strcmp(m, "ok") ? -1 : 0;
}

/* Waits for the end of the connection. siw sends its Terminate from another thread,
 * and not at all when the QP is gone before that thread has run. */
static void await_end(struct conn *c)
{
	struct timeval tv = { 5, 0 };
	fd_set f;
	int fd = c->id->channel->fd;

	FD_ZERO(&f);
	FD_SET(fd, &f);
	select(fd + 1, &f, NULL, NULL, &tv);
}

/* Serves one connection; tells whether the peer has closed it. */
static int serve(struct conn *c)
{
	static char m[RSZ + 1];
	struct rdma_cm_event *ev;
	struct ibv_wc wc;
	unsigned long n, seed, wantn = 0, wantseed = 0;
	long total = 0, msgs = 0;
	int want = 0;
	int r, fl, ok, gone = 0;

	/* Poll the receive queue; look for the disconnect in between. */
	for (;;) {
		r = ibv_poll_cq(c->id->recv_cq, 1, &wc);
		if (r < 0)
			break;
		if (r == 0) {
			struct timeval tv = { 0, 100 };
			fd_set f;

			FD_ZERO(&f);
			fl = c->id->channel->fd;
			FD_SET(fl, &f);
			if (select(fl + 1, &f, NULL, NULL, &tv) == 1) {
				if (rdma_get_cm_event(c->id->channel, &ev))
					break;
				printf("event %s\n", rdma_event_str(ev->event));
				rdma_ack_cm_event(ev);
				gone = 1;
				break;
			}
			continue;
		}
		if (wc.status) {
			printf("recv: %s (%d)\n", ibv_wc_status_str(wc.status), wc.status);
			await_end(c);
			break;
		}
		memcpy(m, c->rbuf + wc.wr_id * RSZ, wc.byte_len);
		m[wc.byte_len] = 0;
		msgs++;
		total += wc.byte_len;
		if (wc.wc_flags & IBV_WC_WITH_INV)
			printf("peer invalidated rkey %#x\n", wc.invalidated_rkey);
		rdma_post_recv(c->id, (void *)wc.wr_id, c->rbuf + wc.wr_id * RSZ, RSZ, c->rmr);
		seed = 0;
		if (want) {
			want = 0;
			sendtext(c, wc.byte_len == wantn && check((uint8_t *)m, wantn, wantseed, c->tmp) ? "ok" : "bad");
		} else if (sscanf(m, "C %lu %lu", &n, &seed) == 2 && n <= RSZ) {
			want = 1;
			wantn = n;
			wantseed = seed;
		} else if (sscanf(m, "F %lu %lu", &n, &seed) == 2 && n <= c->len) {
			pattern(c->buf, n, seed);
			sendtext(c, "ok");
		} else if (sscanf(m, "V %lu %lu", &n, &seed) >= 1 && m[0] == 'V') {
			ok = n <= c->len && check(c->buf, n, seed, c->tmp);
			sendtext(c, ok ? "ok" : "bad");
		} else if (m[0] == 'W' && sscanf(m, "W %lu %lu", &n, &seed) >= 1 && n <= c->len && c->have_peer) {
			pattern(c->tmp, n, seed);
			if (post(c, IBV_WR_RDMA_WRITE, c->tmp, n, c->tmr, c->peer.addr, c->peer.rkey, 0, "W"))
				break;
			sendtext(c, "ok");
		} else if (m[0] == 'R' && sscanf(m, "R %lu %lu", &n, &seed) >= 1 && n <= c->len && c->have_peer) {
			if (post(c, IBV_WR_RDMA_READ, c->buf, n, c->mr, c->peer.addr, c->peer.rkey, 0, "R"))
				break;
			ok = check(c->buf, n, seed, c->tmp);
			pattern(c->buf, c->len, 1); /* before the peer may write again */
			sendtext(c, ok ? "ok" : "bad");
		} else if (m[0] == 'S' && sscanf(m, "S %lu", &n) == 1 && n <= RSZ) {
			pattern(c->sbuf, n, 7);
			if (post(c, IBV_WR_SEND, c->sbuf, n, c->smr, 0, 0, 0, "S"))
				break;
		}
	}
	printf("served: %ld messages, %ld bytes\n", msgs, total);
	return gone;
}

static int doop(struct conn *c, const char *op);

/* Several Reads under way at a time. */
static int reads(struct conn *c, unsigned long k, unsigned long n, const char *op)
{
	struct ibv_sge sge[16];
	struct ibv_send_wr wr[16] = { 0 }, *bad;
	struct ibv_wc wc;
	char t[64];

	if (k < 1 || k > 16 || k * n > c->len)
		return -1;
	snprintf(t, sizeof(t), "F %lu %lu", k * n, n + k);
	if (sendtext(c, t) || verdict(c, t))
		return -1;
	memset(c->buf, 0, k * n);
	for (unsigned long i = 0; i < k; i++) {
		sge[i] = (struct ibv_sge){ (uintptr_t)c->buf + i * n, n, c->mr->lkey };
		wr[i].sg_list = &sge[i];
		wr[i].num_sge = 1;
		wr[i].opcode = IBV_WR_RDMA_READ;
		wr[i].send_flags = IBV_SEND_SIGNALED;
		wr[i].wr.rdma.remote_addr = c->peer.addr + i * n;
		wr[i].wr.rdma.rkey = c->peer.rkey;
		wr[i].next = i + 1 < k ? &wr[i + 1] : NULL;
	}
	if (ibv_post_send(c->id->qp, wr, &bad))
		return -1;
	for (unsigned long i = 0; i < k; i++)
		if (reap(c->id->send_cq, &wc, op, 20000))
			return -1;
	if (!check(c->buf, k * n, n + k, c->tmp)) {
		printf("%s: bad\n", op);
		return -1;
	}
	if (!quiet)
		printf("%s: ok\n", op);
	return 0;
}

/* A random size: the edges, then anything up to max, small ones as often as large. */
static unsigned long somesize(uint64_t *r, unsigned long max)
{
	unsigned long n;

	*r ^= *r << 13;
	*r ^= *r >> 7;
	*r ^= *r << 17;
	n = 1ul << (*r >> 8) % 21;
	n += (*r >> 16) % n;
	return *r % 8 == 0 ? *r % 16 / 8 + (*r >> 4) % 4 : n < max ? n : max;
}

static int mixed(struct conn *c, unsigned long mb, unsigned long seed, const char *op)
{
	static const char *const ops[] = { "write", "fread", "swrite", "sread", "csend", "reply", "write", "fread", "swrite", "sread" };
	uint64_t r = 0x2545f4914f6cdd1dull * (seed + 1);
	unsigned long long moved = 0, limit = (unsigned long long)mb << 20;
	unsigned long k, n, count = 0;
	char t[64];

	quiet = 1;
	while (moved < limit) {
		k = (r >> 40) % 11;
		n = somesize(&r, k == 4 || k == 5 ? RSZ : k == 10 ? c->len / 16 : c->len);
		if (n == 0 && k != 0) /* siw answers some Reads of nothing with octets of before */
			n = 1;
		if (k == 10) {
			n = n ? n : 1;
			snprintf(t, sizeof(t), "reads:%lu:%lu", 1 + (r >> 44) % 16, n);
		} else {
			snprintf(t, sizeof(t), "%s:%lu:%lu", ops[k], n, count % 251);
		}
		if (doop(c, t)) {
			printf("%s: failed at operation %lu: %s\n", op, count, t);
			return -1;
		}
		moved += k == 10 ? n * (1 + (r >> 44) % 16) : n;
		count++;
	}
	quiet = 0;
	printf("%s: ok, %lu operations, %llu bytes\n", op, count, moved);
	return 0;
}

static int doop(struct conn *c, const char *op)
{
	static char m[RSZ + 1];
	unsigned long n = 0, seed = 2;
	char t[64];
	struct timespec t0, t1;

	if (strchr(op, ':'))
		sscanf(strchr(op, ':') + 1, "%lu:%lu", &n, &seed);
#define IS(s) (strncmp(op, s, sizeof(s) - 1) == 0 && (op[sizeof(s) - 1] == 0 || op[sizeof(s) - 1] == ':'))
	if (IS("send") || IS("sendse")) {
		memset(c->sbuf, '.', n);
		return post(c, IBV_WR_SEND, c->sbuf, n, c->smr, 0, 0, IS("sendse") ? IBV_SEND_SOLICITED : 0, op);
	}
	if (IS("sendinv")) {
		strcpy((char *)c->sbuf, "goodbye, key");
		return post(c, IBV_WR_SEND_WITH_INV, c->sbuf, 12, c->smr, 0, c->peer.rkey2, 0, op);
	}
	if (IS("write")) {
		if (n > c->len)
			return -1;
		pattern(c->buf, n, seed);
		if (post(c, IBV_WR_RDMA_WRITE, c->buf, n, c->mr, c->peer.addr, c->peer.rkey, 0, op))
			return -1;
		snprintf(t, sizeof(t), "V %lu %lu", n, seed);
		return sendtext(c, t) ? -1 : verdict(c, op);
	}
	if (IS("read")) {
		if (n > c->len || post(c, IBV_WR_RDMA_READ, c->buf, n, c->mr, c->peer.addr, c->peer.rkey, 0, op))
			return -1;
		if (!check(c->buf, n, strchr(op, ':') && strchr(strchr(op, ':') + 1, ':') ? seed : 1, c->tmp)) {
			printf("%s: bad\n", op);
			return -1;
		}
		printf("%s: ok\n", op);
		return 0;
	}
	if (IS("swrite")) {
		snprintf(t, sizeof(t), "W %lu %lu", n, seed);
		memset(c->buf, 0, n);
		if (sendtext(c, t) || verdict(c, op))
			return -1;
		return check(c->buf, n, seed, c->tmp) ? 0 : (printf("%s: bad data\n", op), -1);
	}
	if (IS("sread")) {
		snprintf(t, sizeof(t), "R %lu %lu", n, seed);
		pattern(c->buf, n, seed);
		return sendtext(c, t) ? -1 : verdict(c, op);
	}
	if (IS("reply")) {
		snprintf(t, sizeof(t), "S %lu", n);
		if (sendtext(c, t) || getmsg(c, m, sizeof(m), 20000) != (int)n)
			return -1;
		if (!check((uint8_t *)m, n, 7, c->tmp))
			return -1;
		if (!quiet)
			printf("%s: ok\n", op);
		return 0;
	}
	if (IS("csend")) {
		if (n > RSZ)
			return -1;
		snprintf(t, sizeof(t), "C %lu %lu", n, seed);
		if (sendtext(c, t))
			return -1;
		pattern(c->sbuf, n, seed);
		if (post(c, IBV_WR_SEND, c->sbuf, n, c->smr, 0, 0, 0, op))
			return -1;
		return verdict(c, op);
	}
	if (IS("fread")) {
		snprintf(t, sizeof(t), "F %lu %lu", n, seed);
		memset(c->buf, 0, n);
		if (sendtext(c, t) || verdict(c, t) ||
		    post(c, IBV_WR_RDMA_READ, c->buf, n, c->mr, c->peer.addr, c->peer.rkey, 0, op))
			return -1;
		if (!check(c->buf, n, seed, c->tmp)) {
			printf("%s: bad\n", op);
			return -1;
		}
		if (!quiet)
			printf("%s: ok\n", op);
		return 0;
	}
	if (IS("reads"))
		return reads(c, n, seed, op);
	if (IS("mixed"))
		return mixed(c, n, strchr(strchr(op, ':') + 1, ':') ? seed : 1, op);
	if (IS("badwrite"))
		return post(c, IBV_WR_RDMA_WRITE, c->buf, 64, c->mr, c->peer.addr, c->peer.rkey ^ 0x5500, 0, op);
	if (IS("badread"))
		return post(c, IBV_WR_RDMA_READ, c->buf, 64, c->mr, c->peer.addr, c->peer.rkey ^ 0x5500, 0, op);
	if (IS("oob"))
		return post(c, IBV_WR_RDMA_WRITE, c->buf, 64, c->mr, c->peer.addr + c->peer.len - 32, c->peer.rkey, 0, op);
	if (IS("sleep"))
		return usleep(n * 1000);
	if (IS("stream")) {
		unsigned long long left = n << 20;
		int i = 0;

		clock_gettime(CLOCK_MONOTONIC, &t0);
		for (; left; i++) {
			size_t k = left < c->len ? left : c->len;

			pattern(c->buf, k, i);
			if (post(c, IBV_WR_RDMA_WRITE, c->buf, k, c->mr, c->peer.addr, c->peer.rkey, 0, op))
				return -1;
			snprintf(t, sizeof(t), "V %zu %d", k, i);
			if (sendtext(c, t) || getmsg(c, m, sizeof(m), 60000) < 0 || strcmp(m, "ok")) {
				printf("%s: bad at %d\n", op, i);
				return -1;
			}
			left -= k;
		}
		clock_gettime(CLOCK_MONOTONIC, &t1);
		double s = t1.tv_sec - t0.tv_sec + (t1.tv_nsec - t0.tv_nsec) / 1e9;
		printf("%s: ok, %.1f s, %.1f MB/s (with checking)\n", op, s, n / s);
		return 0;
	}
	printf("unknown operation %s\n", op);
	return -1;
}

int main(int argc, char **argv)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *res;
	struct ibv_qp_init_attr qa = { .cap = { 64, NRECV + 4, 1, 1, 0 }, .qp_type = IBV_QPT_RC, .sq_sig_all = 0 };
	struct rdma_conn_param cp = { .responder_resources = 16, .initiator_depth = 16, .retry_count = 7 };
	const char *addr = NULL, *port = "9999";
	int o, server = 0, reject = 0, n = 1, rc = 0;
	size_t len = 1 << 20;
	struct info mi;

	setvbuf(stdout, NULL, _IOLBF, 0);
	while ((o = getopt(argc, argv, "s:c:p:n:S:r:x")) != -1) {
		switch (o) {
		case 's': server = 1; addr = optarg; break;
		case 'c': addr = optarg; break;
		case 'p': port = optarg; break;
		case 'n': n = atoi(optarg); break;
		case 'S': len = strtoul(optarg, NULL, 0); break;
		case 'r': cp.responder_resources = cp.initiator_depth = atoi(optarg); break;
		case 'x': reject = 1; break;
		default: return 2;
		}
	}
	if (!addr)
		return 2;
	if (server)
		hints.ai_flags = RAI_PASSIVE;
	if (rdma_getaddrinfo(addr, port, &hints, &res)) {
		perror("rdma_getaddrinfo");
		return 1;
	}
	if (server) {
		struct rdma_cm_id *l;

		if (rdma_create_ep(&l, res, NULL, NULL) || rdma_listen(l, 4)) {
			perror("listen");
			return 1;
		}
		while (n-- > 0) {
			struct conn c = { 0 };
			struct ibv_qp_init_attr q = qa; /* rdma_create_qp writes into it */

			if (rdma_get_request(l, &c.id)) {
				perror("rdma_get_request");
				return 1;
			}
			peerinfo(&c, &c.id->event->param.conn);
			if (reject) {
				rdma_reject(c.id, "not today", 9);
				continue;
			}
			if (rdma_create_qp(c.id, NULL, &q)) {
				perror("rdma_create_qp");
				return 1;
			}
			if (setup(&c, len)) {
				perror("setup");
				return 1;
			}
			myinfo(&c, &mi);
			cp.private_data = &mi;
			cp.private_data_len = sizeof(mi);
			if (rdma_accept(c.id, &cp)) {
				perror("rdma_accept");
				return 1;
			}
			if (!serve(&c))
				rdma_disconnect(c.id);
			teardown(&c);
		}
		return 0;
	}
	struct conn c = { 0 };

	if (rdma_create_ep(&c.id, res, NULL, &qa) || setup(&c, len)) {
		perror("setup");
		return 1;
	}
	myinfo(&c, &mi);
	cp.private_data = &mi;
	cp.private_data_len = sizeof(mi);
	if (rdma_connect(c.id, &cp)) {
		perror("rdma_connect");
		if (c.id->event)
			printf("event %s status %d, %d bytes of private data\n", rdma_event_str(c.id->event->event),
			       c.id->event->status, c.id->event->param.conn.private_data_len);
		return 1;
	}
	peerinfo(&c, &c.id->event->param.conn);
	for (; optind < argc && rc == 0; optind++)
		rc = doop(&c, argv[optind]) ? 1 : 0;
	if (rc)
		usleep(300000);
	rdma_disconnect(c.id);
	printf(rc ? "FAILED\n" : "all done\n");
	return rc;
}
