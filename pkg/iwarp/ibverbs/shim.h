// Calls of libibverbs and librdmacm in the shape that cgo is fast and safe with:
// flat structs that Go fills in C memory, one call for many requests or
// completions, and handles (numbers) where C keeps a pointer for its user.
#ifndef RDISTCC_IBVERBS_SHIM_H
#define RDISTCC_IBVERBS_SHIM_H

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SHIM_BATCH 32 // requests or completions of one call

// shim_wr is a send request; what an operation has no use for is zero.
struct shim_wr {
	uint64_t id, remote;
	uint32_t rkey, inv;
	int op, flags, nsge;
	struct ibv_sge *sge;
};

struct shim_wc {
	uint64_t id;
	uint32_t status, bytes, flags, inv;
};

// shim_post_send posts n requests. It returns an errno, and in *bad the index of
// the first request that was not taken: n if all were.
static int shim_post_send(struct ibv_qp *qp, struct shim_wr *w, int n, int *bad)
{
	struct ibv_send_wr wr[SHIM_BATCH], *refused = NULL;
	int i, err;

	for (i = 0; i < n; i++) {
		memset(&wr[i], 0, sizeof wr[i]);
		wr[i].wr_id = w[i].id;
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
		wr[i].sg_list = w[i].sge;
		wr[i].num_sge = w[i].nsge;
		wr[i].opcode = w[i].op;
		wr[i].send_flags = w[i].flags;
		wr[i].wr.rdma.remote_addr = w[i].remote;
		wr[i].wr.rdma.rkey = w[i].rkey;
		if (w[i].op == IBV_WR_SEND_WITH_INV) {
			wr[i].invalidate_rkey = w[i].inv;
			wr[i].wr.rdma.rkey = w[i].inv; // where libsiw looks for it
		}
	}
	*bad = n;
	err = ibv_post_send(qp, wr, &refused);
	if (err && refused)
		*bad = refused - wr;
	return err < 0 ? (errno ? errno : EIO) : err;
}

static int shim_post_recv(struct ibv_qp *qp, uint64_t id, struct ibv_sge *sge, int nsge)
{
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = sge, .num_sge = nsge}, *bad;
	int err = ibv_post_recv(qp, &wr, &bad);

	return err < 0 ? -err : err;
}

static int shim_poll(struct ibv_cq *cq, struct shim_wc *out)
{
	struct ibv_wc wc[SHIM_BATCH];
	int i, n = ibv_poll_cq(cq, SHIM_BATCH, wc);

	for (i = 0; i < n; i++) {
		out[i].id = wc[i].wr_id;
		out[i].status = wc[i].status;
		out[i].bytes = wc[i].byte_len;
		out[i].flags = wc[i].wc_flags;
		out[i].inv = wc[i].wc_flags & IBV_WC_WITH_INV ? wc[i].invalidated_rkey : 0;
	}
	return n;
}

static int shim_arm(struct ibv_cq *cq, int solicited) { return ibv_req_notify_cq(cq, solicited); }

static struct ibv_cq *shim_create_cq(struct ibv_context *ctx, int depth, uintptr_t handle,
				     struct ibv_comp_channel *ch, int vector)
{
	return ibv_create_cq(ctx, depth, (void *)handle, ch, vector);
}

// shim_cq_event takes one event off the channel: the CQ's handle, or 0 if there is none.
static uintptr_t shim_cq_event(struct ibv_comp_channel *ch)
{
	struct ibv_cq *cq;
	void *handle;

	if (ibv_get_cq_event(ch, &cq, &handle))
		return 0;
	ibv_ack_cq_events(cq, 1);
	return (uintptr_t)handle;
}

struct shim_async {
	int type;
	uintptr_t handle; // of the QP or CQ
	uint32_t num;     // of the QP
};

// shim_async_event takes one event of the device; 0 if there is none.
static int shim_async_event(struct ibv_context *ctx, struct shim_async *out)
{
	struct ibv_async_event ev;

	if (ibv_get_async_event(ctx, &ev))
		return 0;
	out->type = ev.event_type;
	out->handle = 0;
	switch (ev.event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		out->handle = (uintptr_t)ev.element.qp->qp_context;
		out->num = ev.element.qp->qp_num;
		break;
	case IBV_EVENT_CQ_ERR:
		out->handle = (uintptr_t)ev.element.cq->cq_context;
		break;
	default:
		break;
	}
	ibv_ack_async_event(&ev);
	return 1;
}

static struct ibv_qp *shim_create_qp(struct ibv_pd *pd, uintptr_t handle, struct ibv_cq *scq, struct ibv_cq *rcq,
				     int sends, int recvs, int sges, int inl)
{
	struct ibv_qp_init_attr a = {
		.qp_context = (void *)handle,
		.send_cq = scq,
		.recv_cq = rcq,
		.cap = {.max_send_wr = sends, .max_recv_wr = recvs, .max_send_sge = sges, .max_recv_sge = sges,
			.max_inline_data = inl},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	return ibv_create_qp(pd, &a);
}

static int shim_modify(struct ibv_qp *qp, enum ibv_qp_state s)
{
	struct ibv_qp_attr a = {.qp_state = s};

	return ibv_modify_qp(qp, &a, IBV_QP_STATE);
}

// shim_attach gives id a QP that was made before it, in state INIT with all rights:
// those of the regions decide.
static int shim_attach(struct rdma_cm_id *id, struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT};
	int mask = 0;

	if (rdma_init_qp_attr(id, &a, &mask))
		return errno;
	a.qp_access_flags |= IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	mask |= IBV_QP_ACCESS_FLAGS;
	if (ibv_modify_qp(qp, &a, mask))
		return errno ? errno : EINVAL;
	id->qp = qp;
	return 0;
}

static void shim_detach(struct rdma_cm_id *id) { id->qp = NULL; }

static struct rdma_cm_id *shim_create_id(struct rdma_event_channel *ch, uintptr_t handle)
{
	struct rdma_cm_id *id = NULL;

	return rdma_create_id(ch, &id, (void *)handle, RDMA_PS_TCP) ? NULL : id;
}

static void shim_set_handle(struct rdma_cm_id *id, uintptr_t handle) { id->context = (void *)handle; }

struct shim_addr {
	uint8_t ip[16]; // 4 of them used if !v6
	uint16_t port;  // host order
	int v6;
	uint32_t scope;
};

static void shim_to_sockaddr(const struct shim_addr *a, struct sockaddr_storage *ss)
{
	memset(ss, 0, sizeof *ss);
	if (a->v6) {
		struct sockaddr_in6 *s = (struct sockaddr_in6 *)ss;
		s->sin6_family = AF_INET6;
		s->sin6_port = htons(a->port);
		s->sin6_scope_id = a->scope;
		memcpy(&s->sin6_addr, a->ip, 16);
	} else {
		struct sockaddr_in *s = (struct sockaddr_in *)ss;
		s->sin_family = AF_INET;
		s->sin_port = htons(a->port);
		memcpy(&s->sin_addr, a->ip, 4);
	}
}

static void shim_from_sockaddr(const struct sockaddr *sa, struct shim_addr *a)
{
	memset(a, 0, sizeof *a);
	if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *s = (const struct sockaddr_in6 *)sa;
		a->v6 = 1;
		a->port = ntohs(s->sin6_port);
		a->scope = s->sin6_scope_id;
		memcpy(a->ip, &s->sin6_addr, 16);
	} else {
		const struct sockaddr_in *s = (const struct sockaddr_in *)sa;
		a->port = ntohs(s->sin_port);
		memcpy(a->ip, &s->sin_addr, 4);
	}
}

static int shim_resolve_addr(struct rdma_cm_id *id, const struct shim_addr *to, int ms)
{
	struct sockaddr_storage ss;

	shim_to_sockaddr(to, &ss);
	return rdma_resolve_addr(id, NULL, (struct sockaddr *)&ss, ms) ? errno : 0;
}

static int shim_resolve_route(struct rdma_cm_id *id, int ms) { return rdma_resolve_route(id, ms) ? errno : 0; }

static int shim_listen(struct rdma_cm_id *id, const struct shim_addr *at, int backlog)
{
	struct sockaddr_storage ss;

	shim_to_sockaddr(at, &ss);
	if (rdma_bind_addr(id, (struct sockaddr *)&ss))
		return errno;
	return rdma_listen(id, backlog) ? errno : 0;
}

// shim_owner is the device that an address belongs to; NULL and an errno in *err if it is none's.
static struct ibv_context *shim_owner(struct rdma_event_channel *ch, const struct shim_addr *at, int *err)
{
	struct rdma_cm_id *id = shim_create_id(ch, 0);
	struct ibv_context *ctx;
	struct sockaddr_storage ss;

	if (!id) {
		*err = errno;
		return NULL;
	}
	shim_to_sockaddr(at, &ss);
	*err = rdma_bind_addr(id, (struct sockaddr *)&ss) ? errno : 0;
	ctx = *err ? NULL : id->verbs;
	rdma_destroy_id(id);
	return ctx;
}

static void shim_addrs(struct rdma_cm_id *id, struct shim_addr *local, struct shim_addr *remote)
{
	shim_from_sockaddr(rdma_get_local_addr(id), local);
	shim_from_sockaddr(rdma_get_peer_addr(id), remote);
	local->port = ntohs(rdma_get_src_port(id));
	remote->port = ntohs(rdma_get_dst_port(id));
}

static void shim_param(struct rdma_conn_param *p, const void *data, int n, int ird, int ord)
{
	memset(p, 0, sizeof *p);
	p->private_data = data;
	p->private_data_len = n;
	p->responder_resources = ird;
	p->initiator_depth = ord;
	p->retry_count = 7;
}

static int shim_connect(struct rdma_cm_id *id, const void *data, int n, int ird, int ord)
{
	struct rdma_conn_param p;

	shim_param(&p, data, n, ird, ord);
	return rdma_connect(id, &p) ? errno : 0;
}

static int shim_accept(struct rdma_cm_id *id, const void *data, int n, int ird, int ord)
{
	struct rdma_conn_param p;

	shim_param(&p, data, n, ird, ord);
	return rdma_accept(id, &p) ? errno : 0;
}

static int shim_reject(struct rdma_cm_id *id, const void *data, int n)
{
	return rdma_reject(id, data, n) ? errno : 0;
}

static int shim_disconnect(struct rdma_cm_id *id) { return rdma_disconnect(id) ? errno : 0; }

struct shim_event {
	int type, status, ird, ord, len;
	uintptr_t handle;      // of the id, or of the listening one for a request
	struct rdma_cm_id *id; // new with a request
	uint8_t data[256];
};

// shim_cm_event takes one event off the channel, copied and acknowledged: 0, or an
// errno, EAGAIN if there is none.
static int shim_cm_event(struct rdma_event_channel *ch, struct shim_event *out)
{
	struct rdma_cm_event *ev;

	if (rdma_get_cm_event(ch, &ev))
		return errno ? errno : EIO;
	out->type = ev->event;
	out->status = ev->status < 0 ? -ev->status : ev->status;
	out->id = ev->id;
	out->handle = (uintptr_t)(ev->event == RDMA_CM_EVENT_CONNECT_REQUEST ? ev->listen_id->context : ev->id->context);
	out->ird = ev->param.conn.responder_resources;
	out->ord = ev->param.conn.initiator_depth;
	out->len = 0;
	if (ev->param.conn.private_data) {
		out->len = ev->param.conn.private_data_len;
		memcpy(out->data, ev->param.conn.private_data, out->len);
	}
	rdma_ack_cm_event(ev);
	return 0;
}

static struct ibv_mr *shim_reg_mr(struct ibv_pd *pd, uintptr_t addr, size_t n, int access)
{
	return ibv_reg_mr(pd, (void *)addr, n, access);
}

#endif
