/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The token bucket: drld.police.token_bucket, for packets on several CPUs at once. Part of
 * limiter.c.
 *
 * Clock. Reading CLOCK_MONOTONIC takes some 45 ns on a machine with a slow clock source. The coarse
 * clock takes 15 ns and moves once a jiffy, so each CPU reads it once a jiffy and keeps the value. It
 * is at most two jiffies behind, never ahead, and a bucket's time never runs backward. While it
 * stands still, a bucket has nothing to settle. A CPU's first packet of a jiffy under a limit settles
 * and checks the heartbeat; later packets only need tokens. The exact clock is read in three cases:
 *
 * - The packet does not conform at the coarse time. It may conform at the exact time.
 * - The packet would leave too few tokens for its flow (flow.h): likewise.
 * - The bucket is full at the coarse time: the time at which it became full matters, as the excess
 *   is lost.
 *
 * So a packet that conforms is never refused. A packet that does not conform may pass if the bucket
 * was full, unnoticed, within the last two jiffies. So the bytes that pass in any time are at most
 * those of the rate, the depth, and two jiffies of the rate (of the drain, for GTB's buckets).
 *
 * CPUs. There is no lock. Counters are per CPU. The CPU that moves `updated_ns` with compare-and-swap
 * adds the tokens of the time. Charging is an atomic subtraction. Other CPUs may charge between a
 * packet's check and its charge. So the bucket may be overdrawn by one packet a CPU, and the next
 * filling pays that back.
 *
 * Debt. A packet larger than the depth passes when the bucket is full, and leaves it in debt. Of a
 * pause, at most `span` counts. In `span` the rate fills the depth and pays kernel_layout._DEBT, so
 * no debt is forgiven. The sum stays below 2^63: a depth of 4 GB twice, 1 GB, and a nanosecond of
 * any rate.
 *
 * Records are double-buffered. `mode` is one word. The other fields are used only if `sequence` has
 * not changed while they were read, as the next `apply` but one writes the same buffer.
 */

#ifndef DRLD_BUCKET_H
#define DRLD_BUCKET_H

#include "maps.h"
#include "atomics.h"

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

/* A number for the current jiffy. Times that differ only in the higher 32 bits differ here, too. */
inline_always u64 jiffy(void)
{
	return (coarse_time() + 1) * 0x9e3779b97f4a7c15 >> 32;
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

/* The helper takes 15 ns and its answer moves once a jiffy: each CPU calls it once a jiffy. */
inline_always u64 coarse_time(void)
{
	u64 present = jiffy();
	struct drld_parse_anomalies *mine = anomalies();
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
	s64 worth = rate * ((u64)dt < span ? dt : span);
	if (!exact && !(mode & DRLD_DRAIN) &&
	    (s64)volatile_read(limit->tokens) + worth >= (s64)depth) {
		now = fine_time();
		dt = now - updated;
		worth = rate * ((u64)dt < span ? dt : span);
	}
	if (compare_and_swap(&limit->updated_ns, updated, now) != updated)
		return; /* another CPU settles */
	s64 tokens = volatile_read(limit->tokens), next;
	if (mode & DRLD_DRAIN) {
		next = tokens - worth;
		if (next < 0)
			next = 0;
		if (next > tokens)
			next = tokens; /* in debt: draining gives nothing back */
	} else {
		next = tokens + worth;
	}
	if (next > (s64)depth)
		next = depth;
	if (next != tokens)
		__sync_fetch_and_add(&limit->tokens, next - tokens);
}

/* Whether the daemon is dead: the fallback is then in force. */
inline_always int dead(struct drld_limit *limit, u64 now)
{
	u32 zero = 0;
	struct drld_control *shared = control.lookup(&zero);
	return shared &&
	       unlikely((s64)(now - volatile_read(shared->heartbeat_ns)) > (s64)limit->grace_ns);
}

/* A limit's verdict on a packet, which holds if no other limit refuses the packet. */
enum { DROPPED, UNCHECKED, FREE, CHARGED, MARKED };

/* A limit's state as seen by this CPU. */
struct state {
	struct drld_limit *limit;
	struct drld_counts *mine;
	struct drld_flows *table;
};

inline_always int find(struct drld_hook *fixed, u32 slot, struct state *state)
{
	u32 index = slot * fixed->cpus + bpf_get_smp_processor_id();
	state->limit = limits.lookup(&slot);
	state->mine = counts.lookup(&index);
	state->table = flows.lookup(&slot);
	return state->limit && state->mine && state->table;
}

/* Whether a packet conforms: TokenBucket.conforms. */
inline_always int conforms(struct drld_limit *limit, struct drld_record *record, u64 cost)
{
	s64 tokens = volatile_read(limit->tokens), depth = volatile_read(record->depth);
	return likely(tokens >= (s64)cost) || (tokens >= depth && depth);
}

/* Policer.refuses without flow buckets; it may also read the exact clock. The first packet of a jiffy
 * on this CPU settles the bucket. Later packets need not, as the coarse clock stands still. */
inline_always u64 check(struct state *state, u64 cost, u64 present)
{
	struct drld_limit *limit = state->limit;
	struct drld_counts *mine = state->mine;
	u32 sequence = volatile_read(limit->sequence);
	u64 settled = present << 32 | sequence;
	if (likely(mine->settled == settled && (s64)volatile_read(limit->tokens) >= (s64)cost))
		return CHARGED;
	u64 now = coarse_time();
	struct drld_record *record = &limit->record[sequence & 1];
	mine->flows = volatile_read(limit->flow.scaled) != 0;
	if (dead(limit, now)) {
		record = &limit->fallback;
		mine->flows = 0;
	}
	u64 mode = volatile_read(record->mode);
	if (mode & DRLD_BUCKET)
		settle(limit, record, sequence, now, 0);
	if (unlikely(mode >> 8) && draw() < mode >> 8)
		return DROPPED;
	if (!(mode & DRLD_BUCKET))
		return FREE;
	if (!(mode >> 8))
		mine->settled = settled;
	if (likely(conforms(limit, record, cost)))
		return CHARGED;
	settle(limit, record, sequence, fine_time(), 1);
	return conforms(limit, record, cost) ? CHARGED : DROPPED;
}

inline_always void charge(struct drld_limit *limit, u64 cost)
{
	__sync_fetch_and_add(&limit->tokens, -cost);
}

#endif
