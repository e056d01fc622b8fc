/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The kernel datapath: what drld.capture.{packet,matcher,policer} do, for each packet, in there.
 *
 * `police` runs at clsact ingress or egress of an interface: one instance a hook, which differ only
 * in their frozen maps. `apply` puts new records in force; the daemon runs it (BPF_PROG_TEST_RUN,
 * one system call for all limits that changed) and it settles tokens at the old rate first.
 *
 * Clock. CLOCK_MONOTONIC costs some 45 ns on a machine whose clock source is slow. Its coarse form
 * costs 15 ns and moves once a jiffy, so it is asked once a jiffy and remembered; it is then at most
 * two jiffies behind, never ahead, and a bucket's time never runs backward. While it stands still
 * there is nothing to settle: a CPU's first packet of a jiffy under a limit does that, and looks at
 * the heartbeat; for the others it is enough that there are tokens. The exact time is asked for in
 * two cases:
 *
 * - The packet does not conform at the coarse time. It may at the exact one, as a bucket fills.
 * - The bucket is full: what it cannot hold is lost, so it matters when that was.
 *
 * So a packet that conforms is never refused. One that does not may pass if the bucket was full,
 * and was not known to be, within two jiffies: the bytes that pass in any time are at most those of the
 * rate, the depth, and two jiffies of the rate; of a bucket that drains (GTB's), two jiffies of the
 * drain.
 *
 * What a packet costs: docs/performance.md.
 *
 * CPUs. There is no lock. Counters are per CPU. Who moves `updated_ns` with compare-and-swap adds
 * what the time is worth; charging is an atomic subtraction. Between a packet's check and its
 * charge other CPUs may charge: the bucket may be overdrawn by one packet a CPU, which the next
 * filling pays back.
 *
 * Records are double-buffered. `mode` is one word; the other fields are used only if `sequence` has
 * not moved while they were read, for the buffer may be written again by the next but one `apply`.
 */
#include "maps.h"

#ifdef DRLD_TEST
BPF_TABLE("array", u32, struct drld_test, test, 1);

inline_always struct drld_test *test_input(void)
{
	u32 zero = 0;
	return test.lookup(&zero);
}

inline_always u64 coarse_time(void)
{
	struct drld_test *input = test_input();
	return input ? input->coarse_ns : 0;
}

inline_always u64 jiffy(void)
{
	return coarse_time() + 1; /* never 0 */
}

inline_always u64 fine_time(void)
{
	struct drld_test *input = test_input();
	return input ? input->fine_ns : 0;
}

inline_always u32 draw(void)
{
	struct drld_test *input = test_input();
	if (!input)
		return 0;
	u32 index = input->drawn++;
	return input->draws[index & (DRLD_MAX_LIST - 1)];
}
#else
inline_always u64 jiffy(void)
{
	return bpf_jiffies64();
}

/* The helper costs 15 ns and its answer moves once a jiffy: ask it once a jiffy and CPU. */
inline_always u64 coarse_time(void)
{
	u64 present = jiffy();
	struct drld_oddities *mine = odd();
	if (!mine)
		return bpf_ktime_get_coarse_ns();
	if (mine->jiffies != present) {
		mine->coarse_ns = bpf_ktime_get_coarse_ns();
		mine->jiffies = present;
	}
	return mine->coarse_ns;
}

inline_always u64 fine_time(void)
{
	return bpf_ktime_get_ns();
}

inline_always u32 draw(void)
{
	return bpf_get_prandom_u32();
}
#endif

/* The token bucket: drld.allocators.token_bucket. */

inline_always void settle(struct drld_limit *limit, struct drld_record *record, u32 sequence,
			  u64 now, int exact)
{
	u64 updated = volatile_read(limit->updated_ns);
	s64 dt = now - updated;
	if (likely(dt <= 0))
		return;
	u64 rate = volatile_read(record->rate);
	u64 depth = volatile_read(record->depth);
	u64 span = volatile_read(record->span);
	u64 mode = volatile_read(record->mode);
	if (volatile_read(limit->sequence) != sequence)
		return; /* `apply` has just settled */
	if (!exact && !(mode & DRLD_DRAIN) &&
	    ((u64)dt >= span ||
	     (s64)volatile_read(limit->tokens) + (s64)(rate * dt) >= (s64)depth)) {
		now = fine_time();
		dt = now - updated;
	}
	if (__sync_val_compare_and_swap(&limit->updated_ns, updated, now) != updated)
		return; /* another CPU does it */
	s64 tokens = volatile_read(limit->tokens), next;
	if (mode & DRLD_DRAIN) {
		next = (u64)dt >= span ? 0 : tokens - (s64)(rate * dt);
		if (next < 0)
			next = 0;
		if (next > tokens)
			next = tokens; /* overdrawn: draining gives nothing back */
	} else {
		next = (u64)dt >= span ? depth : tokens + (s64)(rate * dt);
	}
	if (next > (s64)depth)
		next = depth;
	if (next != tokens)
		__sync_fetch_and_add(&limit->tokens, next - tokens);
}

inline_always struct drld_record *record_in_force(struct drld_limit *limit, u32 sequence, u64 now)
{
	u32 zero = 0;
	struct drld_control *shared = control.lookup(&zero);
	if (shared &&
	    unlikely((s64)(now - volatile_read(shared->heartbeat_ns)) > (s64)limit->grace_ns))
		return &limit->fallback;
	return &limit->record[sequence & 1];
}

/* What a limit makes of a packet, and what then becomes of it if no other limit refuses. */
enum { DROPPED, CHARGED, FREE, UNCHECKED };

inline_always struct drld_counts *counts_of(struct drld_hook *fixed, u32 slot)
{
	u32 index = slot * fixed->cpus + bpf_get_smp_processor_id();
	return counts.lookup(&index);
}

/* As Policer.refuses, but for the second look at the clock. What a jiffy's first packet has done on
 * this CPU, the others need not do again: the coarse clock stands still, so nothing is to settle. */
inline_always int check(struct drld_limit *limit, struct drld_counts *mine, u64 cost)
{
	u32 sequence = volatile_read(limit->sequence);
	u64 present = jiffy();
	if (likely(mine->jiffies == present && mine->sequence == sequence &&
		   (s64)volatile_read(limit->tokens) >= (s64)cost))
		return CHARGED;
	u64 now = coarse_time();
	struct drld_record *record = record_in_force(limit, sequence, now);
	u64 mode = volatile_read(record->mode);
	if (mode & DRLD_BUCKET)
		settle(limit, record, sequence, now, 0);
	if (unlikely(mode >> 8) && draw() < mode >> 8)
		return DROPPED;
	if (!(mode & DRLD_BUCKET))
		return FREE;
	if (!(mode >> 8)) {
		mine->jiffies = present;
		mine->sequence = sequence;
	}
	if (likely((s64)volatile_read(limit->tokens) >= (s64)cost))
		return CHARGED;
	settle(limit, record, sequence, fine_time(), 1);
	return (s64)volatile_read(limit->tokens) >= (s64)cost ? CHARGED : DROPPED;
}

inline_always void charge(struct drld_limit *limit, u64 cost)
{
	__sync_fetch_and_add(&limit->tokens, -cost);
}

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

inline_always void sample(u32 slot, u64 id, u64 bytes)
{
	struct drld_flows *table = flows.lookup(&slot);
	if (!table)
		return;
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
			was = __sync_val_compare_and_swap(&set[way].id, 0, id);
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

inline_always int police_one(struct drld_hook *fixed, struct packet *packet, u32 slot)
{
	struct drld_limit *limit = limits.lookup(&slot);
	struct drld_counts *mine = counts_of(fixed, slot);
	if (!limit || !mine)
		return TC_ACT_UNSPEC;
	u64 cost = packet->length * 1000000000ull;
	int forwarded = 1, outcome = check(limit, mine, cost);
	sample(slot, packet->flow, packet->length);
	if (unlikely(outcome == DROPPED))
		forwarded = limit->flags & DRLD_SHADOW;
	else if (likely(outcome == CHARGED))
		charge(limit, cost);
	count(mine, packet, outcome, forwarded);
	stir(limit);
	return forwarded ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

inline_always int police_many(struct drld_hook *fixed, struct packet *packet, struct scratch *room)
{
	u64 cost = packet->length * 1000000000ull;
	int forwarded = 1;
	no_unroll for (u32 i = 0; i < DRLD_MAX_LIST; i++) {
		u32 slot = room->lists[i];
		room->outcomes[i] = UNCHECKED;
		if (!forwarded || room->lists[i] == NO_LIMIT)
			continue;
		struct drld_limit *limit = limits.lookup(&slot);
		struct drld_counts *mine = counts_of(fixed, slot);
		if (!limit || !mine)
			continue;
		u32 outcome = check(limit, mine, cost);
		room->outcomes[i] = outcome;
		if (outcome == DROPPED && !(limit->flags & DRLD_SHADOW))
			forwarded = 0;
	}
	no_unroll for (u32 i = 0; i < DRLD_MAX_LIST; i++) {
		u32 slot = room->lists[i];
		if (room->lists[i] == NO_LIMIT)
			break;
		sample(slot, packet->flow, packet->length);
		struct drld_limit *limit = limits.lookup(&slot);
		struct drld_counts *mine = counts_of(fixed, slot);
		if (!limit || !mine)
			continue;
		count(mine, packet, room->outcomes[i], forwarded);
		if (forwarded && room->outcomes[i] == CHARGED)
			charge(limit, cost);
		stir(limit);
	}
	return forwarded ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

/* Nearly every packet of a hook whose one limit is for all packets. Apart from the way of all others,
 * so that its instructions are few and stand together: most of what it costs is to fetch them. */
inline_always int police_plain(struct drld_hook *fixed, struct packet *packet)
{
	u64 id = flow_of(packet, fixed->seed);
	packet->flow = flow_between(id, packet->source[0], packet->destination[0]) | 1;
	return police_one(fixed, packet, fixed->family[FAMILY_4].sole - 1);
}

int police(struct __sk_buff *skb)
{
	struct drld_hook *fixed = HOOK;
	struct packet plain, packet;
	if (fixed->family[FAMILY_4].sole && likely(parse_plain4(skb, fixed, &plain)))
		return police_plain(fixed, &plain);
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
	return police_one(fixed, &packet, only);
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
	u64 before = __sync_fetch_and_add(&limit->tokens, then - tokens);
	asm volatile("" : : "r"(before) : "memory");
	*(volatile u32 *)&limit->sequence = sequence + 1;
	return 1;
}
