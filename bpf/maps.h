/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The maps, and helpers of all parts of limiter.c. */
#ifndef DRLD_MAPS_H
#define DRLD_MAPS_H

#include <uapi/linux/bpf.h>
#include <uapi/linux/if_ether.h>
#include <uapi/linux/in.h>
#include <uapi/linux/pkt_cls.h>
#include "drld.h"

/* The daemon makes the maps, and chooses their sizes and flags. Each hook has its own `hook`,
 * `entries`, `ports`, `keys4`, `keys6` and `scratch`. All hooks of a limiter share the others.
 * drld/ebpf/compiler.py reads the maps' names here, so each stands in a line of its own. */
BPF_TABLE("array", u32, struct drld_hook, hook, 1);
BPF_TABLE("array", u32, struct drld_control, control, 1);
BPF_TABLE("array", u32, struct drld_limit, limits, 1);
BPF_TABLE("array", u32, struct drld_counts, counts, 1);
BPF_TABLE("array", u32, struct drld_parse_anomalies, parse_anomalies, 1);
BPF_TABLE("array", u32, struct drld_flows, flows, 1);
BPF_TABLE("array", u32, struct drld_command, commands, 1);
BPF_TABLE("array", u32, struct drld_entry, entries, 1);
BPF_TABLE("array", u32, struct drld_ports, ports, 1);
BPF_TABLE("hash", struct drld_key4, struct drld_found, keys4, 1);
BPF_TABLE("hash", struct drld_key6, struct drld_found, keys6, 1);

/* The only value of `hook`. The daemon writes its address into the instructions, as a lookup costs
 * each packet a dozen instructions. kernel_layout.VALUES has the number. */
#define HOOK ((struct drld_hook *)bpf_pseudo_fd(2, DRLD_VALUE_HOOK))

/* State of the careful parser. It is in memory and not in registers, as the verifier forgets values in
 * memory, and so does not follow every way through a loop separately. */
struct walk {
	__u32 offset, protocol, length, fragmented, later, defect;
};

/* The verdict of one of a packet's limits; in memory for the same reason. */
struct judged {
	__u64 due_ns;
	__u32 outcome, place;
};

struct scratch {
	__u8 bytes[2 * DRLD_COPY_BYTES];	/* indices are masked to the first half */
	__s64 lists[DRLD_MAX_LIST];
	struct judged judged[DRLD_MAX_LIST];
	__u32 forwarded, marked;
	struct walk walk;
};
BPF_TABLE("percpu_array", u32, struct scratch, scratch, 1);

#define NO_LIMIT 0x7fffffffffffffffll /* position and slot of no limit, after all others */
#define inline_always static __always_inline
#define volatile_read(x) (*(volatile typeof(x) *)&(x))
/* Rare paths go to the end of the program: instructions that are not fetched cost nothing. */
#define unlikely(x) __builtin_expect(!!(x), 0)
#define likely(x) __builtin_expect(!!(x), 1)
#define no_unroll _Pragma("clang loop unroll(disable)")

inline_always struct drld_parse_anomalies *anomalies(void)
{
	u32 cpu = bpf_get_smp_processor_id();
	return parse_anomalies.lookup(&cpu);
}

#endif
