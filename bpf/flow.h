/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The flows of a limit: a sample (drld.estimate.flows), and a bucket for each flow in it
 * (drld.allocators.flow_bucket). Part of limiter.c.
 *
 * A flow's bucket goes by the time up to which the limit's bucket is settled, which is in the cache
 * line that a packet reads anyway: at most two jiffies behind. So a flow's bucket may seem empty for
 * two jiffies longer than it is, and one packet after silence may be charged two jiffies early.
 *
 * CPUs. `due_ns` is read at a packet's check and stored at its charge, without a lock: of packets of
 * one flow on n CPUs at once, one alone may be charged, so that the flow gets up to n times its
 * level. The limit's bucket, whose charges are exact, bounds them all.
 *
 * `apply` writes the four fields of `drld_limit.flow` while packets read them: a packet meanwhile is
 * judged by some of the old level and some of the new.
 */
#ifndef DRLD_FLOW_H
#define DRLD_FLOW_H

#include "bucket.h"
#include "packet.h"

/* An id is a hash of the five-tuple; nobody has to turn it back. */

inline_always u64 mixed(u64 x)
{
	x ^= x >> 32;
	x *= 0x9e3779b97f4a7c15;
	return x ^ x >> 29;
}

inline_always u64 flow_of(struct packet *packet, u64 seed)
{
	return seed ^ ((u64)packet->protocol << 32 | packet->ports);
}

inline_always u64 flow_between(u64 id, u32 source, u32 destination)
{
	return mixed(id * 0xd6e8feb86659fd93 ^ ((u64)source << 32 | destination));
}

inline_always u64 flow_id(struct packet *packet, u64 seed)
{
	u64 id = flow_of(packet, seed);
	if (packet->family == FAMILY_4)
		id = flow_between(id, packet->source[0], packet->destination[0]);
	else if (packet->family == FAMILY_6)
		no_unroll for (int i = 0; i < 4; i++)
			id = flow_between(id, packet->source[i], packet->destination[i]);
	return id | 1;
}

#define NO_PLACE (DRLD_FLOW_SETS * DRLD_FLOW_WAYS)

/* Counts a packet of a flow; the flow's place in the table, or NO_PLACE. */
inline_always u64 sample(struct drld_flows *table, u64 id, u64 bytes)
{
	u64 first = (id >> 60) * DRLD_FLOW_WAYS;
	struct drld_flow *set = &table->slot[first];
#pragma unroll
	for (int way = 0; way < DRLD_FLOW_WAYS; way++) {
		if (likely(volatile_read(set[way].id) == id)) {
			__sync_fetch_and_add(&set[way].bytes, bytes);
			return first + way;
		}
	}
#pragma unroll
	for (int way = 0; way < DRLD_FLOW_WAYS; way++) {
		u64 was = volatile_read(set[way].id);
		if (!was)
			was = compare_and_swap(&set[way].id, 0, id);
		if (!was || was == id) {
			__sync_fetch_and_add(&set[way].bytes, bytes);
			return first + way;
		}
	}
	return NO_PLACE;
}

/* 0 for NO_PLACE. By way of memory, where the verifier forgets the place: it would follow each apart. */
inline_always struct drld_flow_bucket *bucket_at(struct state *state, u64 place)
{
	*(volatile u32 *)&state->mine->place = place;
	place = volatile_read(state->mine->place);
	return place == NO_PLACE ? 0 : &state->table->bucket[place & (NO_PLACE - 1)];
}

/* All ones where x < y, else 0: without a branch, or the verifier follows each way apart. */
inline_always u64 less(s64 x, s64 y)
{
	return (x - y) >> 63;
}

/* What the flow's bucket makes of a packet that the limit's covers: the rest of Policer.refuses.
 * `marks`: whether this packet may be marked. `due`: of the flow's bucket once the packet is
 * forwarded; 0: as it is, which is so for one that is dropped. Below are masks, all ones for true. */
inline_always u64 check_flow(struct drld_limit *limit, struct drld_flow_bucket *bucket, u64 length,
			     u64 cost, int marks, u64 *due)
{
	u64 scaled = volatile_read(limit->flow.scaled), charged = 0, uncovered = 0, mark = 0;
	u64 hopeless = ~0ull;
	*due = 0;
	if (likely(scaled && bucket)) {
		u64 now = volatile_read(limit->updated_ns), start = volatile_read(bucket->due_ns);
		u64 span = volatile_read(limit->flow.span);
		u64 worth = length * scaled >> DRLD_SCALE_BITS;
		if (start < now)
			start = now;
		charged = start + worth;
		*due = charged;
		if (likely(charged - now <= span && !marks))
			return CHARGED;
		uncovered = less(span, charged - now) & less(now, start);
		hopeless = less(DRLD_MARKED_SPANS * span, charged - now);
	}
	if (marks)
		mark = volatile_read(limit->flow.mark_below);
	else
		hopeless = ~0ull;
	if (!(uncovered | mark))
		return CHARGED;
	s64 reserve = cost + volatile_read(limit->flow.reserve), mark_below = cost + mark;
	s64 tokens = volatile_read(limit->tokens);
	u64 below = uncovered & less(tokens, reserve), may_mark = less(0, mark);
	if (unlikely(below | (may_mark & less(tokens, mark_below)))) {
		u32 sequence = volatile_read(limit->sequence);
		settle(limit, &limit->record[sequence & 1], sequence, fine_time(), 1);
		tokens = volatile_read(limit->tokens);
		below &= less(tokens, reserve);
	}
	*due = charged & ~(uncovered & ~below) & ~(below & hopeless);
	u64 marked = (below | (may_mark & less(tokens, mark_below))) & 1;
	return (CHARGED + marked) & ~(below & hopeless);
}

#endif
