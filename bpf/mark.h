/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Congestion marks (ECN, RFC 3168): drld.capture.packet.ecn_capable and marked. Part of limiter.c.
 *
 * The helper bpf_skb_ecn_set_ce is not used. It marks no packet that shares its memory with another
 * packet (a clone, such as a raw socket's or a bridge's). Behind a VLAN tag inside the packet it may
 * take the tag for the IP header. The helpers used here first copy a shared packet, and write where
 * the parser read.
 */
#ifndef DRLD_MARK_H
#define DRLD_MARK_H

#include "packet.h"

#define CE4 0x03 /* the two ECN bits, in the second byte of an IP header */
#define CE6 0x30

/* Whether a packet is ECN-capable: it has no defect, and ECT(0), ECT(1) or CE. */
inline_always int ecn_capable(struct __sk_buff *skb, struct packet *packet)
{
	u8 bytes[2];
	if (bpf_skb_load_bytes(skb, packet->header, bytes, 2)) /* fails for NO_HEADER */
		return 0;
	return bytes[1] & (packet->family == FAMILY_4 ? CE4 : CE6);
}

/* Sets CE in an ECN-capable packet. Pointers into the packet become invalid. */
inline_always void mark(struct __sk_buff *skb, struct packet *packet)
{
	u8 bytes[2];
	if (bpf_skb_load_bytes(skb, packet->header, bytes, 2))
		return;
	int four = packet->family == FAMILY_4;
	u16 from = *(u16 *)bytes;
	u8 marked = bytes[1] | (four ? CE4 : CE6);
	if (marked == bytes[1])
		return;
	bytes[1] = marked;
	/* In IPv4, the header's own checksum cancels the change in the packet's (CHECKSUM_COMPLETE). */
	if (four)
		bpf_l3_csum_replace(skb, packet->header + 10, from, *(u16 *)bytes, 2);
	bpf_skb_store_bytes(skb, packet->header, bytes, 2, four ? 0 : BPF_F_RECOMPUTE_CSUM);
}

#endif
