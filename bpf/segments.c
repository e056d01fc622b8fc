/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Records the time at which each TCP segment came in, for the arrival times of messages
 * (drld/messages/front/stamps.py).
 *
 * A socket filter on a listening socket, which the accepted sockets inherit. The kernel runs it in
 * tcp_v4_rcv and tcp_v6_rcv, before the segment is put behind others, merged with them or made
 * readable. So what can be read has its record. The packet begins with its TCP header. All packets
 * pass.
 *
 * A segment that the kernel handles for the listening socket belongs to a connection that is not
 * there yet: the last acknowledgement of a handshake, perhaps with data, or a SYN with data (TCP Fast
 * Open, RFC 7413). Its record has the addresses instead of the connection's cookie. It goes to a ring
 * of its own, so that a flood of forged handshakes does not push out the segments of connections.
 */
#include <uapi/linux/bpf.h>
#include <uapi/linux/if_ether.h>
#include <uapi/linux/ip.h>
#include <uapi/linux/ipv6.h>
#include <uapi/linux/tcp.h>
#include "atomics.h"

#define LISTENING 10		/* TCP_LISTEN of net/tcp_states.h */

/* Times are nanoseconds of CLOCK_MONOTONIC. `sequence` is that of the first byte of the payload. */
struct segment {
	__u64 time_ns;
	__u64 cookie;
	__u32 sequence, length;
};

/* An IPv4 address is ::ffff:a.b.c.d. Ports are in network order. */
struct opening {
	__u64 time_ns;
	__u32 client[4], server[4];
	__u16 client_port, server_port;
	__u32 sequence, length, reserved;
};

BPF_RINGBUF_OUTPUT(segments, 1);
BPF_RINGBUF_OUTPUT(openings, 1);
/* Records that met a full ring, of both. */
BPF_TABLE("array", u32, u64, lost, 1);

static __always_inline void count_lost(void)
{
	u32 first = 0;
	u64 *count = lost.lookup(&first);

	if (count)
		__sync_fetch_and_add(count, 1);
}

static __always_inline void opens(struct __sk_buff *skb, const struct tcphdr *tcp, __u32 length)
{
	struct opening record = {
		.time_ns = bpf_ktime_get_ns(),
		.client_port = tcp->source,
		.server_port = tcp->dest,
		.sequence = bpf_ntohl(tcp->seq) + tcp->syn,
		.length = length,
	};

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		record.client[2] = record.server[2] = bpf_htonl(0xffff);
		bpf_skb_load_bytes_relative(skb, offsetof(struct iphdr, saddr), &record.client[3], 4,
					    BPF_HDR_START_NET);
		bpf_skb_load_bytes_relative(skb, offsetof(struct iphdr, daddr), &record.server[3], 4,
					    BPF_HDR_START_NET);
	} else {
		bpf_skb_load_bytes_relative(skb, offsetof(struct ipv6hdr, saddr), record.client, 16,
					    BPF_HDR_START_NET);
		bpf_skb_load_bytes_relative(skb, offsetof(struct ipv6hdr, daddr), record.server, 16,
					    BPF_HDR_START_NET);
	}
	if (openings.ringbuf_output(&record, sizeof(record), BPF_RB_NO_WAKEUP))
		count_lost();
}

int take_down(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	struct tcphdr tcp;
	__u32 header, length;

	if (!sk || bpf_skb_load_bytes(skb, 0, &tcp, sizeof(tcp)) || tcp.rst)
		return skb->len;
	header = tcp.doff * 4;
	length = skb->len > header ? skb->len - header : 0;
	if (sk->state == LISTENING) {
		if (length || !tcp.syn)
			opens(skb, &tcp, length);
	} else if (length) {
		struct segment record = {
			.time_ns = bpf_ktime_get_ns(),
			.cookie = bpf_get_socket_cookie(skb),
			.sequence = bpf_ntohl(tcp.seq) + tcp.syn,
			.length = length,
		};
		if (segments.ringbuf_output(&record, sizeof(record), BPF_RB_NO_WAKEUP))
			count_lost();
	}
	return skb->len;
}
