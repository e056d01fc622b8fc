/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Classification: drld.capture.matcher, over the tables of drld.capture.kernel_classifier. Part of
 * limiter.c. */

#include "packet.h"

inline_always int within(struct drld_range *ranges, u32 count, u32 port)
{
	s64 misses = -(s64)(count != 0); /* negative while no range has the port */
	/* Without a branch: the verifier would follow both ways separately. */
#pragma unroll
	for (u32 i = 0; i < DRLD_MAX_RANGES; i++)
		misses &= ((s64)port - ranges[i].low) | ((s64)ranges[i].high - port);
	return misses >= 0;
}

inline_always void collect(struct drld_hook *fixed, struct packet *packet, struct drld_found *found,
			   struct scratch *room, s64 *only)
{
	u32 first = found->first, count = found->count;
	no_unroll for (u32 i = 0; i < DRLD_MAX_ENTRIES; i++) {
		if (i >= fixed->most_entries || i >= count)
			break;
		u32 index = first + i;
		struct drld_entry *entry = entries.lookup(&index);
		if (!entry)
			break;
		if (entry->protocol != DRLD_ANY_PROTOCOL &&
		    (packet->family == FAMILY_UNKNOWN || entry->protocol != packet->protocol))
			continue;
		if (fixed->with_ports && entry->ports) {
			if (!packet->ports_known)
				continue;
			u32 which = entry->ports;
			struct drld_ports *wanted = ports.lookup(&which);
			u32 both = bpf_ntohl(packet->ports);
			if (!wanted || !within(wanted->source, wanted->sources, both >> 16) ||
			    !within(wanted->destination, wanted->destinations, both & 0xffff))
				continue;
		}
		s64 next = (u64)entry->position << 32 | entry->slot;
		if (!room) {
			*only = next;
			break;
		}
#pragma unroll
		for (int j = 0; j < DRLD_MAX_LIST; j++) {
			/* A swap without a branch: the verifier would follow 2^8 ways. */
			s64 here = volatile_read(room->lists[j]);
			s64 exchanged = (next ^ here) & ((next - here) >> 63);
			*(volatile s64 *)&room->lists[j] = here ^ exchanged;
			next ^= exchanged;
		}
	}
}

inline_always void classify(struct __sk_buff *skb, struct drld_hook *fixed, struct packet *packet,
			    struct drld_family *family, struct scratch *room, s64 *only)
{
	if (family->always.count)
		collect(fixed, packet, &family->always, room, only);
	no_unroll for (u32 i = 0; i < DRLD_MAX_GROUPS; i++) {
		if (i >= family->groups)
			break;
		struct drld_group *group = &family->group[i];
		struct drld_found *found;
		if (family == &fixed->family[FAMILY_6]) {
			struct drld_key6 key = { .group = i, .mark = skb->mark & group->mark };
#pragma unroll
			for (int word = 0; word < 4; word++) {
				key.source[word] = packet->source[word] & group->source[word];
				key.destination[word] =
					packet->destination[word] & group->destination[word];
			}
			found = keys6.lookup(&key);
		} else {
			struct drld_key4 key = { .group = i, .mark = skb->mark & group->mark };
			if (family == &fixed->family[FAMILY_4]) {
				key.source = packet->source[0] & group->source[0];
				key.destination = packet->destination[0] & group->destination[0];
			} else {
				key.group += DRLD_MAX_GROUPS;
			}
			found = keys4.lookup(&key);
		}
		if (found)
			collect(fixed, packet, found, room, only);
	}
}
