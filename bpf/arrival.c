/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Stamps a packet with the time of its arrival, for the nfqueue datapath (drld/capture/nfqueue/arrival.py).
 *
 * Runs at clsact ingress. The stamp, nanoseconds of CLOCK_MONOTONIC, goes where the kernel keeps a
 * received packet's own time: into a field that is empty unless somebody asked for timestamps, that
 * survives GRO, segmentation and routing up to the forward hook, that nfnetlink_queue hands to user
 * space, and that the kernel clears before a packet leaves. Nothing else of the packet is touched.
 *
 * What is there already stays: the kernel's timestamp (whose clock is CLOCK_REALTIME; user space
 * knows the two apart), and a departure time that lies in the future (somebody paces this packet).
 * A departure time in the past asks for nothing any more, but every TCP packet of a network
 * namespace of this host bears one, and it hides what is written here: it gives way to the stamp.
 */
#include <uapi/linux/bpf.h>
#include <uapi/linux/pkt_cls.h>

int stamp(struct __sk_buff *skb)
{
	__u64 there = skb->tstamp;
	__u64 now;

	if (!skb->tstamp_type) {
		if (!there)
			skb->tstamp = bpf_ktime_get_ns();
		return TC_ACT_UNSPEC;	/* the next filter decides */
	}
	now = bpf_ktime_get_ns();
	/* Fails for what is not IP, and then leaves both as they are. */
	if (there <= now && !bpf_skb_set_tstamp(skb, 0, BPF_SKB_TSTAMP_UNSPEC))
		skb->tstamp = now;
	return TC_ACT_UNSPEC;
}
