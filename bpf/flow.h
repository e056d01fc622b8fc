/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The flows of a limit: a sample (drld.estimate.flows), and a bucket for each flow in it
 * (drld.police.flow_bucket). Part of limiter.c.
 *
 * Time. The time of a flow's bucket is the time up to which the limit's bucket is settled. It is in
 * the cache line that a packet reads anyway, and at most two jiffies behind. So a flow's bucket may
 * seem empty for two jiffies longer than it is. A packet after silence may be charged two jiffies
 * early.
 *
 * CPUs. `due_ns` is read at a packet's check and stored at its charge, without a lock. If n CPUs
 * handle packets of one flow at once, perhaps only one of these packets is charged, so the flow may
 * get n times its level. The limit's bucket, whose charges are exact, bounds all CPUs together.
 *
 * Records. `apply` writes the three fields of `drld_limit.flow` while packets read them. A packet of
 * that moment may be judged by some fields of the old level and some of the new.
 */
#ifndef DRLD_FLOW_H
#define DRLD_FLOW_H

#include "bucket.h"
#include "packet.h"

/* A flow id is a hash of the five-tuple; no code inverts it. */

/* Two rounds: after one, the four top bits, which choose the set, crowd flows of neighbouring ports. */
inline_always u64 mixed(u64 x)
{
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93;
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93;
	return x ^ x >> 32;
}

inline_always u64 flow_of(struct packet *packet, u64 seed)
{
	return seed ^ ((u64)packet->protocol << 32 | packet->ports);
}

inline_always u64 flow_between(u64 id, u32 source, u32 destination)
{
	return mixed(id * 0x9e3779b97f4a7c15 ^ ((u64)source << 32 | destination));
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

/* A mask: all ones where x < y, else 0. It has no branch, as the verifier would follow both ways
 * separately. The empty instruction hides the difference from LLVM, which makes a branch of its
 * sign. */
inline_always u64 less(s64 x, s64 y)
{
	s64 difference = x - y;
	asm("" : "+r"(difference));
	return difference >> 63;
}

/* The flow of a packet under a limit: drld.police.source_sample. Only programs of hooks with a limit
 * on sources contain this. */
inline_always u64 flow_in(struct drld_hook *fixed, struct drld_limit *limit, struct packet *packet)
{
	if (!volatile_read(limit->source4))
		return packet->flow;
	u64 id = fixed->seed;
	if (packet->family == FAMILY_6) {
		no_unroll for (int i = 0; i < 4; i++)
			id = flow_between(id, packet->source[i] & volatile_read(limit->source6[i]), 0);
	} else {
		u32 source = packet->family == FAMILY_4 ? packet->source[0] : 0;
		id = flow_between(id, source & volatile_read(limit->source4), 0);
	}
	return id | 1;
}

#define NO_PLACE (DRLD_FLOW_SETS * DRLD_FLOW_WAYS)

/* A flow may be in two sets of the table. This returns the index of the first way of its first set. */
inline_always u64 first_set(u64 id)
{
	return (id >> 60) * DRLD_FLOW_WAYS;
}

/* The same index, which it is already. The verifiers before Linux 6.10 know nothing of an exclusive
 * or of two values that they do not know. The empty instruction hides from LLVM that the mask changes
 * nothing. */
inline_always u64 a_set(u64 first)
{
	asm("" : "+r"(first));
	return first & (NO_PLACE - DRLD_FLOW_WAYS);
}

/* The same for its second set: any set but the first, equally likely. */
inline_always u64 second_set(u64 id)
{
	u64 distance = 1 + ((id >> 44 & 0xffff) * (DRLD_FLOW_SETS - 1) >> 16);
	return a_set(((id >> 60) ^ distance) * DRLD_FLOW_WAYS);
}

/* The place of a flow that is not in its first set, or NO_PLACE. A new flow enters the set with more
 * room. The first set is preferred while more than half of it is free, as a flow in it costs its
 * packets one cache line less. */
inline_always u64 place_beyond(struct drld_flows *table, u64 id, u64 first)
{
	u64 set = second_set(id), here = 0, there = 0, was;
#pragma unroll
	for (int way = 0; way < DRLD_FLOW_WAYS; way++) {
		was = volatile_read(table->slot[set + way].id);
		if (was == id)
			return set + way;
		there += was & 1; /* all ids are odd */
	}
#pragma unroll
	for (int way = 0; way < DRLD_FLOW_WAYS; way++)
		here += volatile_read(table->slot[first + way].id) & 1;
	if (likely(here + there == 2 * DRLD_FLOW_WAYS))
		return NO_PLACE;
	set = a_set(first ^ ((first ^ set) & less(there, here) & less(DRLD_FLOW_WAYS / 2 - 1, here)));
#pragma unroll
	for (int way = 0; way < DRLD_FLOW_WAYS; way++) {
		was = volatile_read(table->slot[set + way].id);
		if (!was)
			was = compare_and_swap(&table->slot[set + way].id, 0, id);
		if (!was || was == id)
			return set + way;
	}
	return NO_PLACE;
}

/* The same place, passed through memory so that the verifier forgets its value. It would otherwise
 * follow each place separately. */
inline_always u64 forgotten(struct state *state, u64 place)
{
	*(volatile u32 *)&state->mine->place = place;
	return volatile_read(state->mine->place);
}

/* Counts a packet of a flow. Returns the flow's place in the table, or NO_PLACE. If two CPUs see a
 * new flow at once, it may get two places. Packets then find one of them, and the daemon adds their
 * counts. */
inline_always u64 sample(struct state *state, u64 id, u64 bytes)
{
	struct drld_flows *table = state->table;
	u64 first = first_set(id);
	struct drld_flow *set = &table->slot[first];
#pragma unroll
	for (int way = 0; way < DRLD_FLOW_WAYS; way++) {
		if (likely(volatile_read(set[way].id) == id)) {
			__sync_fetch_and_add(&set[way].bytes, bytes);
			return first + way;
		}
	}
	u64 place = forgotten(state, place_beyond(table, id, first));
	if (place < NO_PLACE)
		__sync_fetch_and_add(&table->slot[place].bytes, bytes);
	return place;
}

/* The bucket at a place; 0 for NO_PLACE. */
inline_always struct drld_flow_bucket *bucket_at(struct state *state, u64 place)
{
	place = forgotten(state, place);
	return place == NO_PLACE ? 0 : &state->table->bucket[place & (NO_PLACE - 1)];
}

/* A mask: whether the limit's bucket has fewer tokens than a packet needs, and is not full. */
inline_always u64 lacks(struct drld_limit *limit, s64 needed, s64 depth)
{
	s64 tokens = volatile_read(limit->tokens);
	return less(tokens, needed) & less(tokens, depth);
}

/* The flow bucket's verdict on a packet that the limit's bucket covers: the rest of Policer.refuses.
 * `marks`: whether this packet may be marked. `due`: the bucket's `due_ns` once the packet is
 * forwarded; 0: no change, as for every dropped packet. `busy`, `beyond`, `below` and `refused` are
 * masks, all ones for true.
 *
 * A debt of a lower level is cut to what is possible at today's (FlowBuckets.bounded), for good: also
 * if the packet is dropped. Another CPU may have charged the flow meanwhile; that charge is lost.
 *
 * No product overflows. A flow owes at most two spans of 2^61 ns and two packets of 2^47 ns. At most
 * one span of that counts, so a packet leaves at most the reserve: 2^62 tokens. */
inline_always u64 check_flow(struct drld_limit *limit, struct drld_flow_bucket *bucket, u64 length,
			     u64 cost, int marks, u64 *due)
{
	u64 scaled = volatile_read(limit->flow.scaled), charged = 0, left = 0;
	*due = 0;
	if (scaled && bucket) {
		u64 now = volatile_read(limit->updated_ns), full = volatile_read(bucket->due_ns);
		u64 span = volatile_read(limit->flow.span), busy = less(now, full);
		u64 debt = (full - now) & busy, most = DRLD_MARKED_SPANS * span + scaled;
		if (unlikely(debt > most)) {
			debt = most;
			*(volatile u64 *)&bucket->due_ns = now + most;
		}
		u64 owed = (length * scaled >> DRLD_SCALE_BITS) + debt;
		u64 beyond = less(span, owed);
		left = (owed + ((span - owed) & beyond)) * volatile_read(limit->flow.per_ns);
		charged = now + owed;
		*due = charged & ~(beyond & busy);
	}
	if (likely((s64)(volatile_read(limit->tokens) - cost - left) >= 0))
		return CHARGED;
	/* Few packets come here, so the values needed from here on are read again. */
	u64 owed = charged - volatile_read(limit->updated_ns), refused = ~0ull;
	if (marks)
		refused = less(DRLD_MARKED_SPANS * volatile_read(limit->flow.span), owed) &
			  less(length * scaled >> DRLD_SCALE_BITS, owed);
	u32 sequence = volatile_read(limit->sequence);
	struct drld_record *record = &limit->record[sequence & 1];
	u64 depth = volatile_read(record->depth), below = lacks(limit, cost + left, depth);
	if (below) {
		settle(limit, record, sequence, fine_time(), 1);
		below = lacks(limit, cost + left, depth);
	}
	/* Or LLVM would make two ways of the rest, for the verifier to follow separately. */
	asm("" : "+r"(below));
	refused &= below;
	*due = ((charged & below) | (*due & ~below)) & ~refused;
	return (CHARGED + (below & 1)) & ~refused;
}

#endif
