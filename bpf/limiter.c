/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The kernel datapath: what drld.capture.{packet,matcher,policer} do, for each packet, in there.
 *
 * `police` runs at clsact ingress or egress of an interface: one instance a hook, which differ only
 * in their frozen maps. `apply` puts new records in force; the daemon runs it (BPF_PROG_TEST_RUN,
 * one system call for all limits that changed) and it settles tokens at the old rate first.
 *
 * What a packet costs: docs/performance.md.
 */
#include "bucket.h"
#include "packet.h"

/* The flow sample. An id is a hash of the five-tuple; nobody has to turn it back. */

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

inline_always void sample(struct drld_flows *table, u64 id, u64 bytes)
{
	struct drld_flow *set = &table->slot[(id >> 60) * DRLD_FLOW_WAYS];
#pragma unroll
	for (int way = 0; way < DRLD_FLOW_WAYS; way++) {
		if (likely(volatile_read(set[way].id) == id)) {
			__sync_fetch_and_add(&set[way].bytes, bytes);
			return;
		}
	}
#pragma unroll
	for (int way = 0; way < DRLD_FLOW_WAYS; way++) {
		u64 was = volatile_read(set[way].id);
		if (!was)
			was = compare_and_swap(&set[way].id, 0, id);
		if (!was || was == id) {
			__sync_fetch_and_add(&set[way].bytes, bytes);
			return;
		}
	}
}

#include "classify.h"

/* After the packet was counted: who sees the mark and takes it away reads what it stands for. */
inline_always void stir(struct drld_limit *limit)
{
	if (unlikely(!volatile_read(limit->stirred)))
		*(volatile u16 *)&limit->stirred = 1;
}

/* The verdict: drld.capture.policer.police. */

inline_always void count(struct drld_counts *mine, struct packet *packet, int outcome,
			 int forwarded)
{
	if (likely(outcome != DROPPED && forwarded)) {
		mine->forwarded_bytes += packet->length;
		mine->forwarded_packets += packet->segments;
	} else if (outcome == DROPPED) {
		mine->dropped_bytes += packet->length;
		mine->dropped_packets += packet->segments;
	} else {
		mine->refused_bytes += packet->length;
		mine->refused_packets += packet->segments;
	}
}

inline_always int police_one(struct state *state, struct packet *packet, u64 present)
{
	u64 cost = packet->length * 1000000000ull;
	int forwarded = 1, outcome = check(state, cost, present);
	sample(state->table, packet->flow, packet->length);
	if (unlikely(outcome == DROPPED))
		forwarded = state->limit->flags & DRLD_SHADOW;
	else if (likely(outcome == CHARGED))
		charge(state->limit, cost);
	count(state->mine, packet, outcome, forwarded);
	stir(state->limit);
	return forwarded ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

inline_always int police_many(struct drld_hook *fixed, struct packet *packet, struct scratch *room)
{
	u64 cost = packet->length * 1000000000ull, present = jiffy();
	struct state state;
	int forwarded = 1;
	no_unroll for (u32 i = 0; i < DRLD_MAX_LIST; i++) {
		u32 slot = room->lists[i];
		room->outcomes[i] = UNCHECKED;
		if (!forwarded || room->lists[i] == NO_LIMIT)
			continue;
		if (!find(fixed, slot, &state))
			continue;
		u32 outcome = check(&state, cost, present);
		room->outcomes[i] = outcome;
		if (outcome == DROPPED && !(state.limit->flags & DRLD_SHADOW))
			forwarded = 0;
	}
	no_unroll for (u32 i = 0; i < DRLD_MAX_LIST; i++) {
		u32 slot = room->lists[i];
		if (room->lists[i] == NO_LIMIT)
			break;
		if (!find(fixed, slot, &state))
			continue;
		sample(state.table, packet->flow, packet->length);
		count(state.mine, packet, room->outcomes[i], forwarded);
		if (forwarded && room->outcomes[i] == CHARGED)
			charge(state.limit, cost);
		stir(state.limit);
	}
	return forwarded ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

enum { NOT_PLAIN = 1000 }; /* no verdict */

/* Nearly every packet of a hook whose one limit is for all packets. Apart from the way of all others,
 * so that its instructions are few and stand together: most of what it costs is to fetch them. What
 * LLVM takes for calls comes first, when there are no registers yet to save. */
inline_always int police_plain(struct __sk_buff *skb, struct drld_hook *fixed)
{
	new_packet(packet);
	struct state state;
	u64 present = jiffy();
	if (skb->protocol != bpf_htons(ETH_P_IP))
		return NOT_PLAIN;
	if (!find(fixed, fixed->family[FAMILY_4].sole - 1, &state))
		return TC_ACT_UNSPEC;
	if (!parse_plain4(skb, fixed, &packet))
		return NOT_PLAIN;
	u64 id = flow_of(&packet, fixed->seed);
	packet.flow = flow_between(id, packet.source[0], packet.destination[0]) | 1;
	return police_one(&state, &packet, present);
}

int police(struct __sk_buff *skb)
{
	struct drld_hook *fixed = HOOK;
	new_packet(packet);
	if (fixed->family[FAMILY_4].sole) {
		int verdict = police_plain(skb, fixed);
		if (likely(verdict != NOT_PLAIN))
			return verdict;
	}
	if (!parse(skb, fixed, &packet))
		return TC_ACT_UNSPEC;
	packet.flow = flow_id(&packet, fixed->seed);
	s64 only = NO_LIMIT;
	struct scratch *room = 0;
	if (fixed->longest > 1) {
		u32 zero = 0;
		room = scratch.lookup(&zero);
		if (!room)
			return TC_ACT_UNSPEC;
#pragma unroll
		for (int i = 0; i < DRLD_MAX_LIST; i++)
			*(volatile s64 *)&room->lists[i] = NO_LIMIT;
	}
	if (likely(packet.family == FAMILY_4))
		classify(skb, fixed, &packet, &fixed->family[FAMILY_4], room, &only);
	else if (packet.family == FAMILY_6)
		classify(skb, fixed, &packet, &fixed->family[FAMILY_6], room, &only);
	else
		classify(skb, fixed, &packet, &fixed->family[FAMILY_UNKNOWN], room, &only);
	if (room)
		only = volatile_read(room->lists[0]);
	if (unlikely(only == NO_LIMIT)) {
		struct drld_oddities *counted = odd();
		if (counted)
			counted->unmatched++;
		return TC_ACT_UNSPEC;
	}
	if (unlikely(room && volatile_read(room->lists[1]) != NO_LIMIT))
		return police_many(fixed, &packet, room);
	struct state state;
	if (!find(fixed, only, &state))
		return TC_ACT_UNSPEC;
	return police_one(&state, &packet, jiffy());
}

/* Put the next letter in force: TokenBucket.program. */
int apply(struct __sk_buff *skb)
{
	u32 zero = 0;
	struct drld_control *shared = control.lookup(&zero);
	if (!shared)
		return 0;
	u32 cursor = shared->cursor++;
	struct drld_letter *letter = letters.lookup(&cursor);
	if (!letter)
		return 0;
	u32 slot = letter->slot;
	struct drld_limit *limit = limits.lookup(&slot);
	if (!limit)
		return 0;
	u32 sequence = limit->sequence;
	struct drld_record *old = record_in_force(limit, sequence, letter->now_ns);
	struct drld_record *next = &limit->record[(sequence + 1) & 1];
	settle(limit, old, sequence, letter->now_ns, 1);
	u64 had_bucket = old->mode & DRLD_BUCKET;
	s64 depth = letter->record.depth, tokens = volatile_read(limit->tokens), then = tokens;
	next->rate = letter->record.rate;
	next->depth = depth;
	next->span = letter->record.span;
	next->mode = letter->record.mode;
	if (!had_bucket || then > depth)
		then = depth;
	if (letter->credit_id != limit->credit_id) {
		limit->credit_id = letter->credit_id;
		then += letter->credit;
		if (then > depth)
			then = depth;
	}
	/* That takes a value is a full barrier: who sees the new number sees the new record. */
	u64 before = fetch_and_add(&limit->tokens, then - tokens);
	asm volatile("" : : "r"(before) : "memory");
	*(volatile u32 *)&limit->sequence = sequence + 1;
	return 1;
}
