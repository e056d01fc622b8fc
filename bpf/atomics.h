/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Atomic operations that return the old value: in Linux since 5.12, in LLVM since 12. With an older
 * compiler (Ubuntu 22.04's bcc has LLVM 11) they are calls with numbers that no helper has.
 * drld/ebpf/bytecode/atomics.py replaces the calls by the instructions, and says why. */
#ifndef DRLD_ATOMICS_H
#define DRLD_ATOMICS_H

#if __clang_major__ >= 12
#define compare_and_swap(at, old, new) __sync_val_compare_and_swap(at, old, new)
#define fetch_and_add(at, value) __sync_fetch_and_add(at, value)
#else
static __u64 (*compare_and_swap)(void *at, __u64 old, __u64 new) = (void *)0x7d000001;
static __u64 (*fetch_and_add)(void *at, __u64 value) = (void *)0x7d000002;
#endif

#endif
