/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The kernel datapath: drld.capture.packet, drld.capture.matcher and drld.police.policer in C.
 *
 * `police` runs at ingress or egress of an interface (tcx or clsact). Each hook has an instance; they
 * differ only in their frozen maps. `apply` puts new records in force, after it has settled tokens at
 * the old rate. The daemon runs it with BPF_PROG_TEST_RUN, in one system call for all limits that
 * changed. docs/performance.md has the cost of a packet.
 */
#include "bucket.h"
#include "packet.h"
#include "flow.h"
#include "mark.h"

#include "classify.h"

/* Called after the packet is counted: the daemon reads the counts after it has cleared the flag. */
inline_always void mark_traffic(struct drld_limit *limit)
{
	if (unlikely(!volatile_read(limit->had_traffic)))
		*(volatile u16 *)&limit->had_traffic = 1;
}

/* The verdict: drld.police.policer.police. */

inline_always void count(struct drld_counts *mine, struct packet *packet, u64 outcome,
			 int forwarded)
{
	if (likely(outcome != DROPPED && forwarded)) {
		mine->forwarded_bytes += packet->length;
		mine->forwarded_packets += packet->segments;
		if (unlikely(outcome == MARKED)) {
			mine->marked_bytes += packet->length;
			mine->marked_packets += packet->segments;
		}
	} else if (outcome == DROPPED) {
		mine->dropped_bytes += packet->length;
		mine->dropped_packets += packet->segments;
	} else {
		mine->refused_bytes += packet->length;
		mine->refused_packets += packet->segments;
	}
}

/* Charges the bucket of a forwarded packet's flow, unless `due` is 0. */
inline_always void pay_flow(struct drld_flow_bucket *bucket, u64 due)
{
	/* Another CPU may have charged the flow meanwhile, and more than one packet. */
	if (bucket && volatile_read(bucket->due_ns) < due)
		*(volatile u64 *)&bucket->due_ns = due;
}

inline_always void hit(struct drld_flow_bucket *bucket, u64 bytes)
{
	if (bucket)
		__sync_fetch_and_add(&bucket->hits, bytes);
}

/* The verdict on a packet under one limit, which `state` holds: sampled, checked, charged and counted
 * in one pass, as no other limit can refuse it. Returns the action of tc. */
inline_always int police_one(struct __sk_buff *skb, struct state *state, struct packet *packet,
			     u64 present)
{
	u64 cost = packet->length * 1000000000ull, due;
	u64 outcome = check(state, cost, present);
	u64 place = sample(state, packet->flow, packet->length);
	if (likely(outcome == CHARGED) && state->mine->flows) {
		struct drld_flow_bucket *bucket = bucket_at(state, place);
		int marks = 0;
		if (unlikely(state->limit->flags & DRLD_MARK))
			marks = ecn_capable(skb, packet);
		outcome = check_flow(state->limit, bucket, packet->length, cost, marks, &due);
		pay_flow(bucket, due);
	}
	/* The path of nearly all packets comes first, on its own. */
	if (likely(outcome == CHARGED)) {
		charge(state->limit, cost);
		count(state->mine, packet, CHARGED, 1);
		mark_traffic(state->limit);
		return TC_ACT_UNSPEC;
	}
	if (outcome == MARKED)
		charge(state->limit, cost);
	count(state->mine, packet, outcome, 1);
	mark_traffic(state->limit);
	if (outcome == FREE)
		return TC_ACT_UNSPEC;
	hit(bucket_at(state, place), packet->length);
	if (state->limit->flags & DRLD_SHADOW)
		return TC_ACT_UNSPEC;
	if (outcome == DROPPED)
		return TC_ACT_SHOT;
	mark(skb, packet);
	return TC_ACT_UNSPEC;
}

/* The verdict on a packet under several limits, whose slots are in `room->lists`. The first loop
 * samples the flow at each limit, and checks the limits until one refuses. The second loop charges
 * all limits, or none if one has refused, and counts the packet at each. `state` holds one limit, so
 * it finds each again. `room->judged` has the outcomes meanwhile. Returns the action of tc. */
inline_always int police_many(struct __sk_buff *skb, struct drld_hook *fixed, struct packet *packet,
			      struct scratch *room)
{
	u64 cost = packet->length * 1000000000ull, present = jiffy();
	struct state state;
	struct drld_flow_bucket *bucket;
	volatile struct judged *judged;
	room->forwarded = 1;
	room->marked = 0;
	no_unroll for (u32 i = 0; i < DRLD_MAX_LIST; i++) {
		u32 slot = room->lists[i];
		if (room->lists[i] == NO_LIMIT)
			break;
		if (!find(fixed, slot, &state))
			continue;
		judged = &room->judged[i];
		judged->due_ns = 0;
		judged->outcome = UNCHECKED;
		u64 flow = packet->flow;
		if (unlikely(fixed->by_source))
			flow = flow_in(fixed, state.limit, packet);
		judged->place = sample(&state, flow, packet->length);
		if (!volatile_read(room->forwarded))
			continue;
		judged->outcome = check(&state, cost, present);
		if (state.mine->flows && judged->outcome == CHARGED) {
			u64 due;
			int marks = state.limit->flags & DRLD_MARK && ecn_capable(skb, packet);
			bucket = bucket_at(&state, judged->place);
			judged->outcome = check_flow(state.limit, bucket, packet->length, cost,
						     marks, &due);
			judged->due_ns = due;
		}
		if (judged->outcome == DROPPED && !(state.limit->flags & DRLD_SHADOW))
			room->forwarded = 0;
	}
	int forwarded = volatile_read(room->forwarded);
	no_unroll for (u32 i = 0; i < DRLD_MAX_LIST; i++) {
		u32 slot = room->lists[i];
		if (room->lists[i] == NO_LIMIT)
			break;
		if (!find(fixed, slot, &state))
			continue;
		judged = &room->judged[i];
		u64 outcome = judged->outcome;
		count(state.mine, packet, outcome, forwarded);
		if (forwarded && outcome >= CHARGED) {
			charge(state.limit, cost);
			if (judged->due_ns)
				pay_flow(bucket_at(&state, judged->place), judged->due_ns);
		}
		if (unlikely(outcome == DROPPED || (forwarded && outcome == MARKED)))
			hit(bucket_at(&state, judged->place), packet->length);
		if (outcome == MARKED && !(state.limit->flags & DRLD_SHADOW))
			room->marked = 1;
		mark_traffic(state.limit);
	}
	if (!forwarded)
		return TC_ACT_SHOT;
	if (volatile_read(room->marked))
		mark(skb, packet);
	return TC_ACT_UNSPEC;
}

enum { NOT_PLAIN = 1000 }; /* no verdict */

/* The path of nearly every packet at a hook with one limit for all packets. It is separate, so that
 * its instructions are few and stand together: fetching them is most of the cost. Helpers that LLVM
 * treats as calls come first, while there are no registers to save. */
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
	if (unlikely(fixed->by_source))
		packet.flow = flow_in(fixed, state.limit, &packet);
	return police_one(skb, &state, &packet, present);
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
		struct drld_parse_anomalies *counted = anomalies();
		if (counted)
			counted->unmatched++;
		return TC_ACT_UNSPEC;
	}
	if (unlikely(room && volatile_read(room->lists[1]) != NO_LIMIT))
		return police_many(skb, fixed, &packet, room);
	struct state state;
	if (!find(fixed, only, &state))
		return TC_ACT_UNSPEC;
	if (unlikely(fixed->by_source))
		packet.flow = flow_in(fixed, state.limit, &packet);
	return police_one(skb, &state, &packet, jiffy());
}

/* Puts the next command in force: TokenBucket.program. */
int apply(struct __sk_buff *skb)
{
	u32 zero = 0;
	struct drld_control *shared = control.lookup(&zero);
	if (!shared)
		return 0;
	u32 cursor = shared->cursor++;
	struct drld_command *command = commands.lookup(&cursor);
	if (!command)
		return 0;
	u32 slot = command->slot;
	struct drld_limit *limit = limits.lookup(&slot);
	if (!limit)
		return 0;
	u32 sequence = limit->sequence;
	struct drld_record *old = &limit->record[sequence & 1];
	/* A fallback without a bucket leaves the bucket alone, which goes on filling. */
	if (dead(limit, command->now_ns) && limit->fallback.mode & DRLD_BUCKET)
		old = &limit->fallback;
	struct drld_record *next = &limit->record[(sequence + 1) & 1];
	settle(limit, old, sequence, command->now_ns, 1);
	u64 had_bucket = old->mode & DRLD_BUCKET;
	s64 depth = command->record.depth, tokens = volatile_read(limit->tokens), then = tokens;
	next->rate = command->record.rate;
	next->depth = depth;
	next->span = command->record.span;
	next->mode = command->record.mode;
	if (!had_bucket || then > depth)
		then = depth;
	if (command->credit_id != limit->credit_id) {
		limit->credit_id = command->credit_id;
		then += command->credit;
		if (then > depth)
			then = depth;
	}
	limit->flow.span = command->flow.span;
	limit->flow.per_ns = command->flow.per_ns;
	limit->flow.scaled = command->flow.scaled;
	/* With its result used, this is a full barrier: the record is visible before its number. */
	u64 before = fetch_and_add(&limit->tokens, then - tokens);
	asm volatile("" : : "r"(before) : "memory");
	*(volatile u32 *)&limit->sequence = sequence + 1;
	return 1;
}
