/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The contract between the BPF programs and user space: structs, bounds, meanings.
 *
 * drld/capture/kernel_layout.py holds the same numbers and layouts; tests/kernel compare the two.
 * Times are nanoseconds of CLOCK_MONOTONIC. Sizes are bytes of IP packets. Tokens are bytes x 1e-9,
 * so that a rate in bytes/s times nanoseconds is exact; 2^63 of them are 9.2 GB, above the largest
 * depth that a configuration may ask for (4 GB).
 */
#ifndef DRLD_H
#define DRLD_H

#define DRLD_ABI 4
#define DRLD_COPY_BYTES 256	/* bytes of a packet that are parsed: packet.COPY_BYTES */
#define DRLD_MAX_JUMBO 0x80000	/* payload of a jumbogram: packet.MAX_JUMBO_PAYLOAD */
#define DRLD_MAX_EXTENSIONS 8	/* IPv6 extension headers: packet.MAX_EXTENSIONS */
#define DRLD_MAX_LIST 8		/* limits that one packet falls under */
#define DRLD_MAX_GROUPS 16	/* combinations of prefix lengths and mark mask, per hook and family */
#define DRLD_MAX_ENTRIES 32	/* limits that differ only in protocol and ports */
#define DRLD_MAX_RANGES 16	/* port ranges of a limit, source and destination each */
#define DRLD_FLOW_SETS 16	/* the flow sample of a limit: sets of one cache line each */
#define DRLD_FLOW_WAYS 4

#define DRLD_VALUE_HOOK 1	/* stands for the address of the value of `hook` until it is known */

#define DRLD_BUCKET 1		/* flags of a record: the limit has a bucket */
#define DRLD_DRAIN 2		/* the rate drains the bucket */
#define DRLD_SHADOW 1		/* flags of a limit: count drops and marks, do not carry them out */
#define DRLD_MARK 2		/* mark ECN-capable packets before dropping them */
#define DRLD_SCALE_BITS 16	/* flow_bucket.SCALE_BITS */
#define DRLD_MARKED_SPANS 2	/* flow_bucket.MARKED_SPANS */
#define DRLD_ANY_PROTOCOL 256

/* An enforcement (drld.model). */
struct drld_record {
	__u64 mode;		/* threshold << 8 | flags: dropped if a random u32 < threshold */
	__u64 rate;		/* bytes/s */
	__u64 depth;		/* tokens */
	__u64 span;		/* longest pause that counts, ns: it fills or drains any bucket */
};

/* The flow buckets of an enforcement. */
struct drld_flow_record {
	__u64 scaled;		/* ns a byte of a flow's bucket, times 2^16; 0: flows are not policed */
	__u64 span;		/* ns in which an empty bucket of a flow fills */
	__u64 per_ns;		/* tokens that a packet leaves for each ns that its flow owes */
	__u64 reserved;
};

/* State of a limit. Packets use record[sequence & 1], and `fallback` while the daemon is dead. The
 * fallback polices no flow. A packet whose jiffy is settled needs only the first cache line. */
struct drld_limit {
	__u64 tokens;		/* signed: CPUs that charge at once may overdraw */
	__u64 updated_ns;
	__u64 grace_ns;		/* largest age of a heartbeat before the daemon is dead */
	__u32 sequence;
	__u16 flags;
	__u16 had_traffic;	/* 1: a packet came since the daemon set this to 0 */
	struct drld_flow_record flow;
	struct drld_record record[2];
	struct drld_record fallback;
	__u64 credit_id;	/* of the last credit */
	__u32 id;		/* of the limit; 0: the slot is free */
	/* The bits of source addresses that make a flow, as in a packet; 0: the five-tuple makes it. */
	__u32 source4, source6[4];
};

/* Counts of a limit's packets on one CPU, in one cache line. Each packet is forwarded, dropped or
 * refused. Counts of packets wrap at 2^32, at most once between two reads. */
struct drld_counts {
	__u64 forwarded_bytes;
	__u64 dropped_bytes;	/* by this limit; in shadow mode, bytes that it would drop */
	__u64 refused_bytes;	/* dropped by another limit of the packet's list */
	__u64 marked_bytes;	/* part of the forwarded; in shadow mode, bytes that it would mark */
	__u32 forwarded_packets, dropped_packets, refused_packets, marked_packets;
	__u64 settled;		/* jiffies << 32 | sequence: time and record of the last settling */
	__u32 flows;		/* whether the record of the last settling polices flows or marks */
	__u32 place;		/* place of the last packet's flow in the sample */
};

/* One CPU's counts of packets that are not plain (drld.capture.gate.Counts), and its coarse clock. */
struct drld_parse_anomalies {
	__u64 truncated, malformed, fragments, unmatched;
	__u64 jiffies, coarse_ns;
	__u64 reserved[2];
};

struct drld_flow {
	__u64 id;		/* 0: free */
	__u64 bytes;		/* never reset, also not when the slot gets another flow */
};

struct drld_flow_bucket {
	__u64 due_ns;		/* when the bucket is full again; 0 for a new flow */
	__u64 hits;		/* bytes refused or marked; never reset */
};

/* Two arrays: packets of a limit without flow buckets mostly need only the first. */
struct drld_flows {
	struct drld_flow slot[DRLD_FLOW_SETS * DRLD_FLOW_WAYS];
	struct drld_flow_bucket bucket[DRLD_FLOW_SETS * DRLD_FLOW_WAYS];
};

/* State of the whole limiter. */
struct drld_control {
	__u64 heartbeat_ns;
	__u32 abi;
	__u32 capacity;		/* limits that the maps have room for */
	__u32 cpus;
	__u32 cursor;		/* the next command for `apply` */
};

/* A record that `apply` puts in force. */
struct drld_command {
	__u64 now_ns;
	__u64 credit_id;
	__u64 credit;		/* tokens */
	__u32 slot;
	__u32 reserved;
	struct drld_record record;
	struct drld_flow_record flow;
};

/* Masks of the bits of a packet that the keys of a group hold. */
struct drld_group {
	__u32 source[4], destination[4], mark;
	__u32 reserved[3];
};

struct drld_found {
	__u32 first, count;	/* a range of `entries` */
};

struct drld_family {
	__u32 groups;
	struct drld_found always;	/* limits without prefixes and mark */
	__u32 sole;		/* 1 + slot of the only limit, if it matches all packets; else 0 */
	struct drld_group group[DRLD_MAX_GROUPS];
};

/* Constants of a hook's program. The map is frozen, so the verifier takes its values for constants
 * and removes dead code. */
struct drld_hook {
	__u32 cpus;
	__u32 link_bytes;	/* length of the link header */
	__u32 longest;		/* most limits that a packet can fall under */
	__u32 most_entries;	/* most limits of one key */
	__u32 with_ports;	/* whether any limit compares ports */
	__u32 by_source;	/* whether any limit's flows are sources */
	__u64 seed;		/* seed of the hash of flow ids */
	struct drld_family family[3];	/* IPv4, IPv6, addresses unknown */
};

struct drld_key4 {
	__u32 group, mark, source, destination;
};

struct drld_key6 {
	__u32 group, mark, source[4], destination[4];
};

struct drld_entry {
	__u32 slot;
	__u32 position;		/* in the configuration: the order of a packet's limits */
	__u32 protocol;		/* or DRLD_ANY_PROTOCOL */
	__u32 ports;		/* index into `ports`; 0: any */
};

struct drld_range {
	__u16 low, high;
};

struct drld_ports {
	__u32 sources, destinations;	/* 0: any; places without a range are (1, 0) */
	struct drld_range source[DRLD_MAX_RANGES], destination[DRLD_MAX_RANGES];
};

/* Only in the test build: the source of time and randomness. */
struct drld_test {
	__u64 coarse_ns, fine_ns;
	__u32 draws[DRLD_MAX_LIST];
	__u32 drawn;
	__u32 reserved;
};

#endif
