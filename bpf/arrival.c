/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Stamps a packet with the time of its arrival, for the nfqueue datapath (drld/capture/nfqueue/arrival.py).
 *
 * The program runs at the ingress of an interface (tcx or clsact). It writes nanoseconds of
 * CLOCK_MONOTONIC into the field of the packet's time stamp, and changes nothing else. The field is
 * empty unless a process asked for timestamps. It survives GRO, segmentation and routing up to the
 * forward hook. nfnetlink_queue passes it to user space, and the kernel clears it before a packet
 * leaves.
 *
 * Two earlier values of the field stay: the kernel's timestamp (of CLOCK_REALTIME; user space tells
 * the two apart by value), and a departure time in the future (the packet is paced). A departure
 * time in the past has no effect any more, but would hide the stamp, so the stamp replaces it. Every
 * TCP packet from a network namespace of this host has one.
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
	/* Fails for packets other than IP, and then changes nothing. */
	if (there <= now && !bpf_skb_set_tstamp(skb, 0, BPF_SKB_TSTAMP_UNSPEC))
		skb->tstamp = now;
	return TC_ACT_UNSPEC;
}
