/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The parser of headers: drld.capture.packet, byte for byte. Part of limiter.c. */

#ifndef DRLD_PACKET_H
#define DRLD_PACKET_H

#include "maps.h"

/* The parsed headers of a packet. */
struct packet {
	__u32 source[4], destination[4];
	__u64 flow, length, segments;
	__u32 header;	 /* offset of the IP header in the frame; NO_HEADER: it has a defect */
	__u32 transport; /* offset of the transport header, if ports are known */
	__u32 ports;	 /* source and destination, as they are in the packet */
	__u8 protocol, family, ports_known; /* families are indices of drld_hook.family */
};

/* Compilers may read fields before they need them, and the verifier of Linux 5.15 refuses reads of
 * unwritten stack. Ubuntu 22.04, which has that kernel, has LLVM 11. */
#if __clang_major__ >= 12
#define new_packet(name) struct packet name
#else
#define new_packet(name) struct packet name = {}
#endif

#define NO_HEADER 0xffffffff

enum { FAMILY_4, FAMILY_6, FAMILY_UNKNOWN };
enum { SOUND, TRUNCATED, MALFORMED };

inline_always int has_ports(u32 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == 33 ||
	       protocol == 132 || protocol == 136;
}

inline_always u32 be16(const u8 *bytes)
{
	return bytes[0] << 8 | bytes[1];
}

inline_always u32 be32(const u8 *bytes)
{
	return be16(bytes) << 16 | be16(bytes + 2);
}

inline_always u8 *at(struct scratch *room, u32 offset)
{
	return &room->bytes[offset & (DRLD_COPY_BYTES - 1)];
}

inline_always u32 jumbo_payload(struct scratch *room, u32 copied)
{
	volatile struct walk *walk = &room->walk;
	if (copied < 48)
		return 0;
	u32 end = 40 + (room->bytes[41] + 1) * 8;
	if (end > copied)
		end = copied;
	walk->offset = 42;
	no_unroll for (u32 i = 0; i < DRLD_COPY_BYTES; i++) {
		u32 option = walk->offset;
		if (option + 6 > end)
			return 0;
		u8 *bytes = at(room, option);
		if (bytes[0] == 0xc2)
			return bytes[1] == 4 ? be32(bytes + 2) : 0;
		walk->offset = option + (bytes[0] ? bytes[1] + 2 : 1);
	}
	return 0;
}

inline_always void read_ports(struct packet *packet, struct scratch *room, u32 copied)
{
	volatile struct walk *walk = &room->walk;
	u32 offset = walk->offset;
	if (offset + 4 > walk->length) {
		walk->defect = MALFORMED;
	} else if (offset + 4 > copied) {
		walk->defect = TRUNCATED;
	} else {
		__builtin_memcpy(&packet->ports, at(room, offset), 4);
		packet->ports_known = 1;
		packet->transport = offset;
	}
}

/* `present`: bytes of the packet. `wire`: length of a GSO packet; 0: the length field counts. */
inline_always void parse4(struct packet *packet, struct scratch *room, u32 copied, u32 present,
			  u32 wire)
{
	volatile struct walk *walk = &room->walk;
	u8 *bytes = room->bytes;
	if (copied < 20) {
		walk->defect = TRUNCATED;
		return;
	}
	u32 header = (bytes[0] & 15) * 4, length = wire ? wire : be16(bytes + 2);
	u32 fragment = be16(bytes + 6), protocol = bytes[9];
	if (length > present)
		length = present;
	packet->family = FAMILY_4;
	__builtin_memcpy(packet->source, bytes + 12, 4);
	__builtin_memcpy(packet->destination, bytes + 16, 4);
	walk->protocol = protocol;
	walk->fragmented = (fragment & 0x3fff) != 0;
	if (length >= header && length >= 20)
		walk->length = length;
	walk->defect = SOUND;
	if (header < 20 || length < header) {
		walk->defect = MALFORMED;
	} else if (!(fragment & 0x1fff) && has_ports(protocol)) {
		walk->offset = header;
		read_ports(packet, room, copied);
	}
}

inline_always int is_extension(u32 protocol)
{
	return protocol == 0 || protocol == 43 || protocol == 44 || protocol == 51 ||
	       protocol == 60;
}

inline_always void parse6(struct packet *packet, struct scratch *room, u32 copied, u32 present,
			  u32 wire)
{
	volatile struct walk *walk = &room->walk;
	u8 *bytes = room->bytes;
	if (copied < 40) {
		walk->defect = TRUNCATED;
		return;
	}
	u32 length = be16(bytes + 4) + 40;
	packet->family = FAMILY_6;
	__builtin_memcpy(packet->source, bytes + 8, 16);
	__builtin_memcpy(packet->destination, bytes + 24, 16);
	walk->protocol = bytes[6];
	walk->defect = SOUND;
	if (wire) {
		length = wire;
	} else if (length == 40 && bytes[6] == 0) {
		u32 jumbo = jumbo_payload(room, copied);
		length = jumbo + 40;
		if (jumbo < 0x10000 || jumbo > DRLD_MAX_JUMBO) {
			walk->defect = MALFORMED;
			length = copied;
		}
	}
	if (length > present)
		length = present;
	walk->length = length;
	walk->offset = 40;
	no_unroll for (int i = 0; i < DRLD_MAX_EXTENSIONS; i++) {
		u32 offset = walk->offset, protocol = walk->protocol;
		if (!is_extension(protocol) || walk->defect)
			break;
		if (offset + 8 > walk->length) {
			walk->defect = MALFORMED;
			break;
		}
		if (offset + 8 > copied) {
			walk->defect = TRUNCATED;
			break;
		}
		bytes = at(room, offset);
		walk->protocol = bytes[0];
		if (protocol == 44) {
			u32 field = be16(bytes + 2);
			walk->fragmented = (field & 0xfff9) != 0;
			walk->later = (field & 0xfff8) != 0;
			walk->offset = offset + 8;
			if (walk->later)
				break;
		} else {
			u32 words = bytes[1];
			walk->offset = offset + (protocol == 51 ? (words + 2) * 4 : (words + 1) * 8);
		}
	}
	if (walk->defect || walk->later)
		return;
	if (walk->offset > walk->length)
		walk->defect = MALFORMED;
	else if (is_extension(walk->protocol))
		walk->defect = TRUNCATED;
	else if (has_ports(walk->protocol))
		read_ports(packet, room, copied);
}

/* Parses any packet: drld.capture.packet.parse, byte for byte. */
inline_always int parse_with_care(struct __sk_buff *skb, struct packet *packet, u64 offset,
				  u32 available, u32 wire)
{
	u32 zero = 0, copied = available;
	struct scratch *room = scratch.lookup(&zero);
	if (!room)
		return 0;
	volatile struct walk *walk = &room->walk;
	packet->family = FAMILY_UNKNOWN;
	packet->ports = packet->ports_known = 0;
	if (copied > DRLD_COPY_BYTES)
		copied = DRLD_COPY_BYTES;
	walk->protocol = 255;
	walk->length = copied;
	walk->fragmented = walk->later = 0;
	walk->defect = MALFORMED;
	if (copied) {
		u64 size = copied;
		asm volatile("" : "+r"(size)); /* else the compiler drops the bound as known */
		if (bpf_skb_load_bytes(skb, offset, room->bytes,
				       ((size - 1) & (DRLD_COPY_BYTES - 1)) + 1))
			return 0;
		if (room->bytes[0] >> 4 == 4)
			parse4(packet, room, copied, available, wire);
		else if (room->bytes[0] >> 4 == 6)
			parse6(packet, room, copied, available, wire);
	}
	packet->protocol = walk->protocol;
	packet->length = walk->length;
	packet->header = walk->defect ? NO_HEADER : offset;
	if (walk->defect || walk->fragmented) {
		struct drld_parse_anomalies *counted = anomalies();
		if (counted) {
			counted->truncated += walk->defect == TRUNCATED;
			counted->malformed += walk->defect == MALFORMED;
			counted->fragments += walk->fragmented;
		}
	}
	return 1;
}

/* Parses a plain packet: TCP or UDP, no fragment, no options of IP, its headers in linear memory. */
inline_always int parse_plain(struct __sk_buff *skb, struct packet *packet, u64 offset,
			      u32 available, u32 wire)
{
	u8 *bytes = (u8 *)(long)skb->data + offset, *end = (u8 *)(long)skb->data_end;
	if (unlikely(bytes + 24 > end))
		return 0;
	u32 length, protocol;
	u8 *transport;
	if (bytes[0] == 0x45) {
		length = wire ? wire : bpf_ntohs(*(u16 *)(bytes + 2));
		protocol = bytes[9];
		transport = bytes + 20;
		if (unlikely(length < 24 || *(u16 *)(bytes + 6) & bpf_htons(0x3fff)))
			return 0;
		packet->family = FAMILY_4;
		packet->source[0] = *(u32 *)(bytes + 12);
		packet->destination[0] = *(u32 *)(bytes + 16);
	} else {
		if (bytes[0] >> 4 != 6 || bytes + 44 > end)
			return 0;
		length = wire ? wire : be16(bytes + 4) + 40;
		protocol = bytes[6];
		transport = bytes + 40;
		if (length < 44)
			return 0;
		packet->family = FAMILY_6;
		__builtin_memcpy(packet->source, bytes + 8, 16);
		__builtin_memcpy(packet->destination, bytes + 24, 16);
	}
	if (unlikely((protocol != IPPROTO_TCP && protocol != IPPROTO_UDP) || length > available))
		return 0;
	packet->protocol = protocol;
	packet->length = length;
	packet->header = offset;
	packet->transport = transport - bytes;
	packet->ports = *(u32 *)transport;
	packet->ports_known = 1;
	return 1;
}

/* Adds the headers of a GSO packet's segments, each of gso_size bytes of payload, to its length. */
inline_always void segment(struct __sk_buff *skb, struct packet *packet, u64 offset, u32 size)
{
	u32 headers = packet->transport + 8, segments = skb->gso_segs;
	if (packet->protocol == IPPROTO_TCP) {
		u64 place = (offset + packet->transport + 12) & (2 * DRLD_COPY_BYTES - 1);
		u8 *bytes = (u8 *)(long)skb->data + place, words;
		if (likely(bytes + 1 <= (u8 *)(long)skb->data_end))
			words = *bytes;
		else if (bpf_skb_load_bytes(skb, place, &words, 1))
			return;
		headers = packet->transport + (words >> 4) * 4;
	}
	if (packet->length <= headers)
		return;
	/* The kernel counts the segments of packets from virtual machines and tun devices later. */
	if (unlikely(!segments))
		segments = (packet->length - headers + size - 1) / size;
	packet->segments = segments;
	packet->length += (segments - 1) * headers;
}

/* Parses a plain IPv4 packet, which nearly all are, with as few instructions as possible: 64-bit
 * variables, which BPF need not extend, and nothing for other packets. */
inline_always int parse_plain4(struct __sk_buff *skb, struct drld_hook *fixed,
			       struct packet *packet)
{
	u64 offset = fixed->link_bytes & 31;
	u8 *bytes = (u8 *)(long)skb->data + offset, *end = (u8 *)(long)skb->data_end;
	if (unlikely(bytes + 24 > end || bytes[0] != 0x45 ||
		     *(u16 *)(bytes + 6) & bpf_htons(0x3fff)))
		return 0;
	u64 protocol = bytes[9], length = bpf_ntohs(*(u16 *)(bytes + 2)), size = skb->gso_size;
	u64 available = skb->len - offset;
	if (unlikely(protocol != IPPROTO_TCP) && protocol != IPPROTO_UDP)
		return 0;
	if (unlikely(size))
		length = available;
	if (unlikely(length < 24 || length > available))
		return 0;
	packet->family = FAMILY_4;
	packet->source[0] = *(u32 *)(bytes + 12);
	packet->destination[0] = *(u32 *)(bytes + 16);
	packet->protocol = protocol;
	packet->ports = *(u32 *)(bytes + 20);
	packet->ports_known = 1;
	packet->header = offset;
	packet->transport = 20;
	packet->length = length;
	packet->segments = 1;
	if (unlikely(size))
		segment(skb, packet, offset, size);
	return 1;
}

inline_always int parse(struct __sk_buff *skb, struct drld_hook *fixed, struct packet *packet)
{
	u32 protocol = skb->protocol;
	u64 offset = fixed->link_bytes & 31; /* a bound for the verifier if it is not a constant */
	if (offset) {
		no_unroll for (int tags = 0; tags < 2; tags++) {
			u16 inner;
			if (likely(protocol != bpf_htons(ETH_P_8021Q) &&
				   protocol != bpf_htons(ETH_P_8021AD)))
				break;
			if (bpf_skb_load_bytes(skb, offset + 2, &inner, 2))
				return 0;
			protocol = inner;
			offset += 4;
		}
	}
	if (protocol != bpf_htons(ETH_P_IP) && protocol != bpf_htons(ETH_P_IPV6))
		return 0;
	u32 size = skb->gso_size, available = skb->len - offset;
	if ((s32)available < 0)
		return 0;
	u32 wire = size ? available : 0;
	packet->segments = 1;
	if (unlikely(!parse_plain(skb, packet, offset, available, wire)) &&
	    !parse_with_care(skb, packet, offset, available, wire))
		return 0;
	if (unlikely(size && packet->ports_known))
		segment(skb, packet, offset, size);
	return 1;
}

#endif
