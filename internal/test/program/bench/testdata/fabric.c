/* A peer of rdistcc-perf: libfabric's endpoints of messages, over its provider for TCP.
 *
 *   fabric PORT                                      server of one client
 *   fabric PORT TEST SIZE CONNECTIONS SECONDS WAIT   client: TEST is write, send or read, WAIT is poll or sleep
 *
 * "write" keeps 16 RDMA Writes under way on each connection, and ends with a Send that the server answers, so that
 * all has arrived. "send" and "read" measure round trips on the first connection. The client prints MESSAGES SECONDS
 * P50_US. The server takes WAIT from the client. */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEPTH = 16, MOST = 8, WINDOW = 4 << 20 /* bytes */ };
struct hello { uint64_t addr, key; uint32_t size, sleep, connections; };

static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_eq *eq;
static struct fid_cq *cq;
static struct fid_ep *ep[MOST];
static struct fid_mr *mr;
static struct hello mine, theirs[MOST];
static char *window; /* of each connection what is written, read and sent; then room for what is received */
static int asleep, bytes = 64;

static int ok(int err, const char *what)
{
	if (err < 0) {
		fprintf(stderr, "fabric: %s: %s\n", what, fi_strerror(-err));
		exit(1);
	}
	return err;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* reap returns 1 with a completion, 0 without one. */
static int reap(struct fi_cq_msg_entry *e, int wait)
{
	ssize_t n = wait && asleep ? fi_cq_sread(cq, e, 1, NULL, 100) : fi_cq_read(cq, e, 1);
	if (n == -FI_EAGAIN || n == -FI_EINTR)
		return 0;
	if (n == -FI_EAVAIL) {
		struct fi_cq_err_entry err = {0};
		fi_cq_readerr(cq, &err, 0);
		ok(-(err.err ? err.err : FI_EIO), "completion");
	}
	return ok(n, "fi_cq_read");
}

static uint32_t event(struct fi_eq_cm_entry *e, size_t room, ssize_t *got)
{
	uint32_t kind;
	while ((*got = fi_eq_sread(eq, &kind, e, room, -1, 0)) == -FI_EAGAIN)
		;
	if (*got == -FI_EAVAIL) {
		struct fi_eq_err_entry err = {0};
		fi_eq_readerr(eq, &err, 0);
		ok(-(err.err ? err.err : FI_EIO), "connection");
	}
	ok(*got, "fi_eq_sread");
	return kind;
}

static void open_domain(struct fi_info *info)
{
	struct fi_cq_attr ca = {.format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_UNSPEC, .size = 4096};
	if (domain)
		return;
	ok(fi_domain(fabric, info, &domain, NULL), "fi_domain");
	ok(fi_cq_open(domain, &ca, &cq, NULL), "fi_cq_open");
	window = aligned_alloc(4096, (MOST + 1) * WINDOW);
	for (size_t i = 0; i < (MOST + 1) * WINDOW; i++)
		window[i] = i >> 3;
	ok(fi_mr_reg(domain, window, (MOST + 1) * WINDOW, FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &mr, NULL), "fi_mr_reg");
	mine.key = fi_mr_key(mr);
	mine.addr = info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)window : 0;
}

static void receive(int i)
{
	ok(fi_recv(ep[i], window + MOST * WINDOW, WINDOW, fi_mr_desc(mr), 0, (void *)(uintptr_t)i), "fi_recv");
}

static void open_ep(struct fi_info *info, int i)
{
	open_domain(info);
	ok(fi_endpoint(domain, info, &ep[i], NULL), "fi_endpoint");
	ok(fi_ep_bind(ep[i], &eq->fid, 0), "fi_ep_bind");
	ok(fi_ep_bind(ep[i], &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
	ok(fi_enable(ep[i]), "fi_enable");
	receive(i);
	receive(i);
}

static struct fi_info *look(const char *port, uint64_t flags)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	hints->ep_attr->type = FI_EP_MSG;
	hints->caps = FI_MSG | FI_RMA;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->fabric_attr->prov_name = strdup("tcp");
	ok(fi_getinfo(FI_VERSION(1, 9), "127.0.0.1", port, flags, hints, &info), "fi_getinfo");
	ok(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
	struct fi_eq_attr ea = {.wait_obj = FI_WAIT_UNSPEC};
	ok(fi_eq_open(fabric, &ea, &eq, NULL), "fi_eq_open");
	return info;
}

static int post_send(int i, size_t n)
{
	ssize_t err;
	while ((err = fi_send(ep[i], window, n, fi_mr_desc(mr), 0, (void *)(uintptr_t)i)) == -FI_EAGAIN)
		fi_cq_read(cq, NULL, 0);
	return ok(err, "fi_send");
}

/* serve answers one client: its connections, then its messages, until each connection has told of its end, and
 * been answered. */
static void serve(void)
{
	char room[sizeof(struct fi_eq_cm_entry) + 256];
	struct fi_eq_cm_entry *e = (void *)room;
	struct fi_cq_msg_entry c;
	ssize_t got;
	int n = 0, up = 0, more = 1;
	while (n < more || up < n) {
		uint32_t kind = event(e, sizeof room, &got);
		if (kind == FI_CONNECTED) {
			up++;
		} else if (kind == FI_CONNREQ) {
			struct hello h;
			memcpy(&h, e->data, sizeof h);
			more = h.connections, asleep = h.sleep, bytes = h.size;
			open_ep(e->info, n);
			ok(fi_accept(ep[n++], &mine, sizeof mine), "fi_accept");
			fi_freeinfo(e->info);
		}
	}
	for (int left = n, unsent = 0; left > 0 || unsent > 0;) {
		if (!reap(&c, 1))
			continue;
		if (c.flags & FI_SEND)
			unsent--;
		if (!(c.flags & FI_RECV))
			continue;
		int i = (uintptr_t)c.op_context;
		receive(i);
		post_send(i, c.len);
		unsent++;
		left -= c.len == 1; /* the end of a connection's messages */
	}
}

static int less(const void *a, const void *b)
{
	double x = *(double *)a, y = *(double *)b;
	return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
	struct fi_cq_msg_entry c;
	if (argc == 2) {
		struct fid_pep *pep;
		struct fi_info *info = look(argv[1], FI_SOURCE);
		ok(fi_passive_ep(fabric, info, &pep, NULL), "fi_passive_ep");
		ok(fi_pep_bind(pep, &eq->fid, 0), "fi_pep_bind");
		ok(fi_listen(pep), "fi_listen");
		printf("listening\n");
		fflush(stdout);
		serve();
		return 0;
	}
	if (argc != 7)
		return 2;
	const char *test = argv[2];
	int n = atoi(argv[4]), depth = *test == 'w' ? DEPTH : 1;
	double seconds = atof(argv[5]);
	bytes = atoi(argv[3]);
	asleep = argv[6][0] == 's';
	if (n < 1 || n > MOST || bytes < 1 || bytes > WINDOW)
		return 2;
	struct fi_info *info = look(argv[1], 0);
	char room[sizeof(struct fi_eq_cm_entry) + 256];
	struct fi_eq_cm_entry *e = (void *)room;
	ssize_t got;
	for (int i = 0; i < n; i++) {
		struct hello h = {.size = bytes, .sleep = asleep, .connections = n};
		open_ep(info, i);
		ok(fi_connect(ep[i], info->dest_addr, &h, sizeof h), "fi_connect");
		if (event(e, sizeof room, &got) != FI_CONNECTED)
			ok(-FI_ECONNREFUSED, "fi_connect");
		memcpy(&theirs[i], e->data, sizeof theirs[i]);
	}
	int posted[MOST] = {0}, waiting = 0;
	long done = 0, room_for = 1 << 20;
	double *took = malloc(room_for * sizeof *took), t0 = now(), t, began = t0;
	while ((t = now()) - t0 < seconds) {
		int full = 1;
		for (int i = 0; i < n; i++)
			while (posted[i] < depth) {
				ssize_t err = -FI_EAGAIN;
				void *ctx = (void *)(uintptr_t)i;
				if (*test == 'w')
					err = fi_write(ep[i], window + i * WINDOW, bytes, fi_mr_desc(mr), 0, theirs[i].addr + i * WINDOW, theirs[i].key, ctx);
				else if (*test == 'r')
					err = fi_read(ep[i], window + i * WINDOW, bytes, fi_mr_desc(mr), 0, theirs[i].addr + i * WINDOW, theirs[i].key, ctx);
				else
					err = fi_send(ep[i], window, bytes, fi_mr_desc(mr), 0, ctx);
				if (err == -FI_EAGAIN)
					break;
				ok(err, "post");
				posted[i]++, waiting++;
				began = now();
			}
		while (waiting && reap(&c, full)) {
			int i = (uintptr_t)c.op_context;
			full = 0;
			if (*test == 's' ? !(c.flags & FI_RECV) : !(c.flags & (FI_WRITE | FI_READ)))
				continue;
			if (*test == 's')
				receive(i);
			posted[i]--, waiting--;
			if (done < room_for)
				took[done] = now() - began;
			done++;
		}
	}
	for (int i = 0, left = 0; i < n || left > 0 || waiting > 0;) {
		if (i < n)
			post_send(i, 1), i++, left++;
		if (reap(&c, 1)) {
			if (c.flags & FI_RECV && c.len == 1)
				left--;
			else if (*test == 's' ? c.flags & FI_RECV : c.flags & (FI_WRITE | FI_READ))
				waiting--, done++;
		}
	}
	t = now() - t0;
	if (done < room_for)
		room_for = done;
	qsort(took, room_for, sizeof *took, less);
	printf("%ld %.6f %.2f\n", done, t, room_for ? took[room_for / 2] * 1e6 : 0);
	return 0;
}
